"""Offsets of the Kafka source as Spark writes them, kept in a manifest and given back; without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakestate.codec import decode_manifest, encode_manifest
from lakestate.codec.engine_files import COMMITTED_BATCH
from lakestate.coordinator.engine.batches import engine_files_without_batch
from lakestate.protocol.metadata import Manifest, SourceOffsets
from lakestate.protocol.values import Epoch, Generation
from lakestate.spark.checkpoint.offsets import read_engine_files, rebuild_directory, source_offsets

BATCH = 41
OFFSET_METADATA = json.dumps(
    {
        "batchWatermarkMs": 0,
        "batchTimestampMs": 1_767_225_600_000,
        "conf": {
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
            ),
            "spark.sql.shuffle.partitions": "200",
        },
        "sourceMetadataInfo": {},
    },
    separators=(",", ":"),
    ensure_ascii=False,
)


def kafka_offsets(first: int, topics: int = 2, partitions: int = 3) -> str:
    """`KafkaSourceOffset.json`: topics in order, the partitions of each as text."""
    found = {
        f"orders.eu-west_{topic}": {
            str(number): first + topic * 1000 + number for number in range(partitions)
        }
        for topic in range(topics)
    }
    return json.dumps(found, separators=(",", ":"))


def offset_log(*sources: str) -> bytes:
    """`OffsetSeqLog`: the version, the metadata, one line for each source, no newline at the end."""
    return "\n".join(["v1", OFFSET_METADATA, *sources]).encode()


def checkpoint(folder: Path, *sources: str) -> Path:
    """Spark's directory while batch 41 runs. A Kafka source keeps only where it began, under sources/."""
    before = [kafka_offsets(0) if source != "-" else "-" for source in sources]
    files = {
        "metadata": b'{"id":"8d1f2a8e-6f6e-4a55-9a39-5b1f64a3b2c1"}',
        f"offsets/{BATCH - 1}": offset_log(*before),
        f"offsets/{BATCH}": offset_log(*sources),
        f"commits/{BATCH - 1}": COMMITTED_BATCH,
        # As `KafkaSourceInitialOffsetWriter` writes it: a null byte first, for Spark 2.1.0.
        "sources/0/0": b"\0v1\n" + kafka_offsets(0).encode(),
        f"offsets/.{BATCH}.crc": b"crc\0",
    }
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def stored_and_read(files: tuple, sources: list[str]) -> Manifest:
    """The manifest of the epoch, through the bytes that a store would hold."""
    manifest = Manifest(
        job_id="orders",
        epoch=Epoch.of_batch(BATCH),
        generation=Generation(3),
        parent=Epoch(BATCH),
        started_ms=1,
        finished_ms=2,
        min_epoch=Epoch(1),
        watermark_us=None,
        sources=tuple(SourceOffsets(f"source-{number}", read, None) for number, read in enumerate(sources)),
        engine_files=files,
    )
    return decode_manifest(encode_manifest(manifest), "manifest.pb", "orders")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


CASES = {
    "one source": [kafka_offsets(500)],
    "two sources": [kafka_offsets(500), kafka_offsets(70_000, topics=1, partitions=12)],
    "a source that has read nothing yet": [kafka_offsets(500), "-"],
    "a long line": [kafka_offsets(2**40, topics=40, partitions=500)],
    "kafka beside files": [kafka_offsets(9), '{"logOffset":7}'],
}


@pytest.mark.parametrize("sources", CASES.values(), ids=CASES)
def test_offsets_come_back_byte_by_byte_through_the_manifest(tmp_path: Path, sources: list[str]) -> None:
    epoch = Epoch.of_batch(BATCH)
    files = read_engine_files(checkpoint(tmp_path / "before", *sources), epoch).files
    read = source_offsets(files, epoch, len(sources))
    assert read == sources
    manifest = stored_and_read(files, read)
    assert [source.offsets for source in manifest.sources] == sources
    rebuild_directory(tmp_path / "after", manifest.engine_files)
    expected = contents(tmp_path / "before") | {f"commits/{BATCH}": COMMITTED_BATCH}
    del expected[f"offsets/.{BATCH}.crc"]
    assert contents(tmp_path / "after") == expected


def test_a_draining_epoch_repeats_the_offsets_of_the_one_before(tmp_path: Path) -> None:
    sources = [kafka_offsets(500), kafka_offsets(900)]
    files = read_engine_files(checkpoint(tmp_path, *sources), Epoch.of_batch(BATCH)).files
    drained = engine_files_without_batch(stored_and_read(files, sources), Epoch.of_batch(BATCH + 1)).files
    assert source_offsets(drained, Epoch.of_batch(BATCH + 1), 2) == sources
    rebuild_directory(tmp_path, drained)
    found = contents(tmp_path)
    assert found[f"offsets/{BATCH + 1}"] == found[f"offsets/{BATCH}"] == offset_log(*sources)
    assert found["sources/0/0"] == b"\0v1\n" + kafka_offsets(0).encode()


def test_the_offsets_of_a_source_are_the_json_that_people_know(tmp_path: Path) -> None:
    files = read_engine_files(checkpoint(tmp_path, kafka_offsets(500)), Epoch.of_batch(BATCH)).files
    assert json.loads(source_offsets(files, Epoch.of_batch(BATCH), 1)[0]) == {
        "orders.eu-west_0": {"0": 500, "1": 501, "2": 502},
        "orders.eu-west_1": {"0": 1500, "1": 1501, "2": 1502},
    }
