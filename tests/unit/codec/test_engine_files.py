"""Spark's files in a manifest: what an epoch needs is kept, everything else is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from lakestate.codec.engine_files import (
    COMMITTED_BATCH,
    METADATA,
    SINK_SCHEMA,
    SparkFiles,
    engine_file_damage,
)
from lakestate.errors import CorruptionError
from lakestate.protocol.metadata import NamedBytes
from lakestate.protocol.values import Epoch

EPOCH = Epoch.of_batch(12)
QUERY = b'{"id":"8d1f2a8e-6f6e-4a55-9a39-5b1f64a3b2c1"}'
SHUFFLES = {"spark.sql.shuffle.partitions": "2"}
Files = dict[str, bytes]


def offsets(*sources: str, conf: object = SHUFFLES) -> bytes:
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf}, separators=(",", ":"))
    return "\n".join(["v1", metadata, *sources]).encode()


def entry(number: int, path: str = "file:///in/a") -> str:
    return json.dumps({"path": path, "timestamp": 1, "batchId": number})


def log(*numbers: int) -> bytes:
    return "\n".join(["v1", *map(entry, numbers)]).encode()


def sound() -> Files:
    """A file source that has read 12 times, and a source that keeps only where it began."""
    return {
        METADATA: QUERY,
        "offsets/11": offsets('{"logOffset":10}', "7"),
        "offsets/12": offsets('{"logOffset":11}', "9"),
        "commits/11": COMMITTED_BATCH,
        "commits/12": COMMITTED_BATCH,
        "sources/0/9.compact": log(*range(10)),
        "sources/0/10": log(10),
        "sources/0/11": log(11),
        "sources/1/0": b"v1\n1794962101206",
    }


def named(files: Files) -> list[NamedBytes]:
    return [NamedBytes(name, data) for name, data in files.items()]


def test_what_spark_wrote_comes_back_byte_by_byte() -> None:
    files = SparkFiles.parse(named(sound()), EPOCH)
    assert {file.name: file.data for file in files.encode()} == sound()
    assert [path for _, path in files.file_paths()] == ["file:///in/a"] * 12
    assert engine_file_damage(named(sound()), EPOCH) is None


def test_logs_that_a_compacted_one_replaces_are_left_out() -> None:
    old = {f"sources/0/{number}": log(number) for number in (0, 3)}
    older = {"sources/0/4.compact": log(*range(5))}
    files = SparkFiles.parse(named({**sound(), **old, **older}), EPOCH)
    assert {file.name: file.data for file in files.encode()} == sound()


def test_a_source_that_the_plan_uses_twice_has_two_lines_of_offsets_and_one_log() -> None:
    repeated = {
        **sound(),
        "offsets/12": offsets('{"logOffset":11}', '{"logOffset":11}', '{"logOffset":0}'),
        "sources/1/0": log(0),
    }
    assert engine_file_damage(named(repeated), EPOCH) is None


def test_a_source_with_a_name_has_its_log_under_it() -> None:
    files = {name.replace("sources/0/", "sources/orders/"): data for name, data in sound().items()}
    files["offsets/12"] = offsets('orders:{"logOffset":11}', "clock:9").replace(b"v1", b"v2", 1)
    assert engine_file_damage(named(files), EPOCH) is None
    del files["sources/orders/11"]
    assert engine_file_damage(named(files), EPOCH) is not None


def test_a_kafka_topic_may_be_called_path() -> None:
    files = {**sound(), "sources/1/0": b'\0v1\n{"path":{"0":23}}'}
    assert engine_file_damage(named(files), EPOCH) is None


def test_a_job_without_spark_has_none_and_one_of_the_data_source_a_schema() -> None:
    assert engine_file_damage((), EPOCH) is None
    assert engine_file_damage([NamedBytes(SINK_SCHEMA, b"arrow")], EPOCH) is None


def test_a_class_that_spark_would_load_is_not_passed_on() -> None:
    told = {"spark.sql.streaming.stateStore.providerClass": "evil.Provider", **SHUFFLES}
    files = {**sound(), "offsets/12": offsets('{"logOffset":11}', "9", conf=told)}
    found = {file.name: file.data for file in SparkFiles.parse(named(files), EPOCH).encode()}
    assert found == sound()


def test_a_later_epoch_that_has_read_no_more_continues_from_the_same_offsets() -> None:
    later = SparkFiles.parse(named(sound()), EPOCH).at(Epoch.of_batch(20))
    before = sound()
    expected = {name: data for name, data in before.items() if not name.startswith(("offsets/", "commits/"))}
    expected |= {f"offsets/{number}": before["offsets/12"] for number in (19, 20)}
    expected |= {f"commits/{number}": COMMITTED_BATCH for number in (19, 20)}
    assert {file.name: file.data for file in later.encode()} == expected
    assert SparkFiles.parse(later.encode(), Epoch.of_batch(20)) == later


FORGERIES: dict[str, tuple[Callable[[Files], Files], str]] = {
    "offsets of the next batch": (lambda f: f | {"offsets/13": f["offsets/12"]}, "offsets/13"),
    "offsets of an old batch": (lambda f: f | {"offsets/2": f["offsets/12"]}, "offsets/2"),
    "a commit of the next batch": (lambda f: f | {"commits/13": COMMITTED_BATCH}, "commits/13"),
    "no offsets": (lambda f: {name: f[name] for name in f if name != "offsets/12"}, "offsets/12"),
    "a log after the offsets": (lambda f: f | {"sources/0/12": log(12)}, "sources/0/12"),
    "a log after the batch": (lambda f: f | {"sources/0/13": log(13)}, "sources/0/13"),
    "a log too few": (lambda f: {name: f[name] for name in f if name != "sources/0/10"}, "sources/0/11"),
    "offsets that go beyond the log": (
        lambda f: f | {"offsets/12": offsets('{"logOffset":12}', "9")},
        "sources/0/11",
    ),
    "a log of another name": (lambda f: f | {"sources/0/011": log(11)}, "sources/0/011"),
    "a file of a source's own": (lambda f: f | {"sources/0/rocksdb": b"x"}, "sources/0/rocksdb"),
    "a folder within a log": (lambda f: f | {"sources/0/offsets/0": b"v1\n{}"}, "sources/0/offsets/0"),
    "Spark's state": (lambda f: f | {"state/0/0/1.delta": b"x"}, "state/0/0/1.delta"),
    "an entry with another field": (
        lambda f: f | {"sources/0/11": b'v1\n{"path":"file:///a","timestamp":1,"batchId":1,"x":1}'},
        "sources/0/11",
    ),
    "an entry of a later log": (lambda f: f | {"sources/0/11": log(12)}, "sources/0/11"),
    "a log of a file source without files": (lambda f: f | {"sources/0/11": b"v1\n7"}, "sources/0/11"),
    "a log of another version": (lambda f: f | {"sources/1/0": b"v7\n7"}, "sources/1/0"),
    "bytes that are not text": (lambda f: f | {"sources/1/0": b"v1\n\xff"}, "sources/1/0"),
    "a setting that is not of Spark SQL": (
        lambda f: f | {"offsets/12": offsets('{"logOffset":11}', "9", conf={"spark.jars": "http://x"})},
        "offsets/12",
    ),
    "settings that are no map": (
        lambda f: f | {"offsets/12": offsets('{"logOffset":11}', "9", conf=["x"])},
        "offsets/12",
    ),
    "another version of the offsets": (
        lambda f: f | {"offsets/12": f["offsets/12"].replace(b"v1", b"v3", 1)},
        "offsets/12",
    ),
    "an empty line": (lambda f: f | {"offsets/12": f["offsets/12"] + b"\n"}, "offsets/12"),
    "a query without an id": (lambda f: f | {METADATA: b'{"id":"../.."}'}, METADATA),
    "a commit that is no JSON": (lambda f: f | {"commits/12": b"v1\nx"}, "commits/12"),
}


@pytest.mark.parametrize(("forge", "name"), FORGERIES.values(), ids=FORGERIES)
def test_whatever_the_epoch_does_not_have_is_refused_by_name(
    forge: Callable[[Files], Files], name: str
) -> None:
    damage = engine_file_damage(named(forge(sound())), EPOCH)
    assert damage is not None
    assert damage.object_name == f"{name} in the manifest"


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(CorruptionError, match="several files of this name"):
        SparkFiles.parse([*named(sound()), NamedBytes(METADATA, QUERY)], EPOCH)
