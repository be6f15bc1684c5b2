"""Sources of every kind continue where they were after Spark's own checkpoint is deleted, and only there.

Reading a checkpoint touches nothing else: a manifest cannot make Spark read, or delete, other files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import xxhash
from tests.support.spark.pipelines import events, read_output, read_stream, write_input

import lakestate as ls
from lakestate.codec import encode_manifest
from lakestate.protocol.metadata import Manifest, NamedBytes
from lakestate.protocol.records import CommittedRecord, EpochRecord
from lakestate.protocol.values import ObjectRef
from lakestate.sinks.formats.parquet.sink import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Files = dict[str, bytes]


def test_sources_continue_exactly_after_sparks_checkpoint_directory_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    backend = ls.ParquetBackend(f"file://{tmp_path}/checkpoints", cache_dir=tmp_path / "cache")
    # Spark 3.5 has no sources in Python.
    has_counting_source = hasattr(spark, "dataSource")
    if has_counting_source:
        from tests.support.spark.counting_source import CountingSource

        spark.dataSource.register(CountingSource)

    def run_until(count: int, parallelism: int) -> None:
        pipeline = ls.Pipeline("mixed", backend, parallelism=parallelism)
        rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        frames = {"rate": rate, "files": read_stream(spark, tmp_path / "in")}
        if has_counting_source:
            frames["counted"] = spark.readStream.format("counting").option("last", 12).load()
        for name, frame in frames.items():
            source = pipeline.source(frame, name=name)
            source.sink(name, ParquetSink(f"file://{tmp_path}/{name}"))
        query = pipeline.start(spark_checkpoint=tmp_path / "spark")
        deadline = time.monotonic() + 60
        while query.lastProgress is None or query.lastProgress.epoch < count:
            assert time.monotonic() < deadline
            assert not query.awaitTermination(0.05)
        query.stop(finish_files=True)
        assert list((tmp_path / "spark").iterdir()) == []

    rows = [events(number, 20) for number in range(3)]
    write_input(tmp_path / "in", 0, rows[0])
    run_until(2, 2)
    write_input(tmp_path / "in", 1, rows[1])
    write_input(tmp_path / "in", 2, rows[2])
    first = backend.load_checkpoint_metadata("mixed")
    run_until(int(first.epoch) + 3, 3)
    numbers = sorted(row["value"] for row in read_output(tmp_path / "rate"))
    assert numbers == list(range(len(numbers)))
    assert numbers
    found = sorted(read_output(tmp_path / "files"), key=str)
    assert found == sorted(pa.concat_tables(rows).to_pylist(), key=str)
    manifest = backend.load_checkpoint_metadata("mixed")
    if has_counting_source:
        counted = sorted(row["n"] for row in read_output(tmp_path / "counted"))
        assert counted == list(range(12))
        assert json.loads(manifest.sources[2].offsets) == {"next": 12}
    assert [source.source for source in manifest.sources][:2] == ["rate", "files"]


class Job:
    """A job that copies files, and whoever can write to its checkpoints."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.backend = ls.ParquetBackend(f"file://{root}/checkpoints", cache_dir=root / "cache")
        self.path = root / "in*"

    def frame(self) -> DataFrame:
        return read_stream(self.spark, self.path)

    def run(self, **source: object) -> None:
        pipeline = ls.Pipeline("copy", self.backend, parallelism=1)
        stream = pipeline.source(self.frame(), **source)  # type: ignore[arg-type]
        stream.sink("out", ls.ParquetSink(f"file://{self.root}/out"))
        query = pipeline.start(trigger={"availableNow": True}, spark_checkpoint=self.root / "spark")
        query.awaitTermination()
        query.stop(finish_files=True)

    def forge(self, change: Callable[[Files, int], Files]) -> None:
        """Replace Spark's files in the newest manifest, with checksums that are right."""
        manifest = self.backend.load_checkpoint_metadata("copy")
        files = change({file.name: file.data for file in manifest.engine_files}, manifest.epoch.batch_id)
        forged = replace(manifest, engine_files=tuple(NamedBytes(name, data) for name, data in files.items()))
        self.replace_manifest(forged)

    def replace_manifest(self, forged: Manifest) -> None:
        job, data = self.backend.objects("copy"), encode_manifest(forged)
        ref = ObjectRef("checkpoints/1/manifest.forged.pb", len(data), xxhash.xxh3_64_intdigest(data))
        job.store.put(job.store_path(ref.path), data)
        record = EpochRecord("copy", forged.epoch, forged.generation, ref, 1)
        marker = CommittedRecord("copy", forged.epoch, forged.generation, ref)
        job.store.put(job.store_path(job.paths.epoch_record(forged.epoch)), record.encode())
        job.store.put(job.store_path(job.paths.commit_marker(forged.epoch)), marker.encode())

    @property
    def output(self) -> list[dict[str, object]]:
        return sorted(read_output(self.root / "out"), key=str)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    write_input(tmp_path / "in1", 0, events(0, 5))
    write_input(tmp_path / "secret", 7, events(7, 5))
    job = Job(spark, tmp_path)
    job.run()
    return job


def secret_log(job: Job, number: int) -> bytes:
    path = next((job.root / "secret").iterdir())
    entry = {"path": path.as_uri(), "timestamp": 1, "batchId": number}
    return f"v1\n{json.dumps(entry)}".encode()


def next_batch(job: Job) -> Callable[[Files, int], Files]:
    """Offsets of a batch that has not run, and a log that says which files it reads."""

    def change(files: Files, batch: int) -> Files:
        offsets = files[f"offsets/{batch}"].replace(b'{"logOffset":0}', b'{"logOffset":1}')
        return files | {f"offsets/{batch + 1}": offsets, "sources/0/1": secret_log(job, 1)}

    return change


def log_ahead(job: Job) -> Callable[[Files, int], Files]:
    """A log beyond the offsets: Spark would take what it names for new files."""
    return lambda files, batch: files | {"sources/0/1": secret_log(job, 1)}


@pytest.mark.parametrize("forgery", [next_batch, log_ahead])
def test_invented_offsets_and_logs_are_refused_and_reported(job: Job, forgery: Callable[..., object]) -> None:
    before = job.output
    job.forge(forgery(job))  # type: ignore[arg-type]
    with pytest.raises(ls.CorruptionError, match="files of Spark that the epoch does not have"):
        job.run()
    assert job.output == before == sorted(events(0, 5).to_pylist(), key=str)
    report = ls.verify(job.backend, "copy")
    assert not report.is_clean
    assert [finding.kind for finding in report.findings] == ["manifest"]


def test_a_file_elsewhere_is_refused_even_where_spark_would_only_remember_it(job: Job) -> None:
    job.forge(lambda files, batch: files | {"sources/0/0": secret_log(job, 0)})
    with pytest.raises(ls.CorruptionError, match="names a file that the source does not read") as refused:
        job.run()
    assert refused.value.object_name == "sources/0/0"
    assert refused.value.expected == f"a file below file:{job.root}/in*"


def test_input_that_was_moved_continues_once_its_earlier_path_is_given(job: Job) -> None:
    first = job.path
    job.path = job.root / "moved"
    write_input(job.path, 1, events(1, 5))
    with pytest.raises(ls.CorruptionError, match="file_paths"):
        job.run()
    job.run(file_paths=[str(first)])
    rows = pa.concat_tables([events(0, 5), events(1, 5)]).to_pylist()
    assert job.output == sorted(rows, key=str)


def test_a_source_is_read_exactly_once_through_many_compacted_logs(job: Job) -> None:
    """Spark sums up a source's log every so often. Only the newest sum and what follows it is kept."""
    logs = []
    for first, last in ((1, 8), (9, 9), (10, 18), (19, 22), (23, 41)):
        for number in range(first, last + 1):
            write_input(job.root / "in2", number, events(number, 2))
        job.run()
        manifest = job.backend.load_checkpoint_metadata("copy")
        kept = [each.name for each in (*manifest.engine_files, *manifest.engine_logs)]
        names = [name.removeprefix("sources/0/") for name in kept if name.startswith("sources/0/")]
        logs.append(sorted(names, key=lambda name: int(name.removesuffix(".compact"))))
    assert logs == [
        ["0", "1", "2", "3", "4", "5", "6", "7", "8"],
        ["9.compact"],
        ["9.compact", "10", "11", "12", "13", "14", "15", "16", "17", "18"],
        ["19.compact", "20", "21", "22"],
        # From a single sum Spark may conclude that it sums up more rarely. It never forgets that it does.
        ["39.compact", "40", "41"],
    ]
    rows = pa.concat_tables([events(0, 5), *(events(number, 2) for number in range(1, 42))])
    assert job.output == sorted(rows.to_pylist(), key=str)
    assert ls.verify(job.backend, "copy").is_clean


def test_one_frame_as_two_sources_has_one_log(job: Job) -> None:
    backend = ls.ParquetBackend(f"file://{job.root}/checkpoints", cache_dir=job.root / "cache")

    def run() -> None:
        pipeline = ls.Pipeline("twice", backend, parallelism=1)
        frame = job.frame()
        rate = job.spark.readStream.format("rate").load()
        for name, each in (("one", frame), ("two", frame), ("clock", rate)):
            pipeline.source(each, name=name).sink(name, ls.ParquetSink(f"file://{job.root}/{name}"))
        query = pipeline.start(trigger={"availableNow": True}, spark_checkpoint=job.root / "spark")
        query.awaitTermination()
        query.stop(finish_files=True)

    run()
    write_input(job.root / "in3", 3, events(3, 4))
    run()
    rows = sorted(pa.concat_tables([events(0, 5), events(3, 4)]).to_pylist(), key=str)
    assert [sorted(read_output(job.root / name), key=str) for name in ("one", "two")] == [rows, rows]
