"""The limits that are stated in docs/limits.md, at their full size. Each test prints what it cost."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from tests.support.jobs.table_job import TableJob
from tests.support.metadata import FILE

import lakestate as ls
from lakestate.codec import encode_manifest, encode_subtask
from lakestate.coordinator.recover import recover_job
from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.coordinator.retention.retain import read_references, retain_epochs
from lakestate.protocol.key_ranges import key_range_of
from lakestate.protocol.metadata import (
    Manifest,
    OperatorEntry,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableConfig,
    TableFiles,
)
from lakestate.protocol.records import EpochRecord
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy
from lakestate.protocol.table_types import KEYED
from lakestate.protocol.values import Epoch, Generation, ObjectRef

pytestmark = pytest.mark.soak

EPOCHS, TABLES, SUBTASKS, FILES = 10_000, 1_000, 512, 100_000
GIB = 1 << 30

Tell = Callable[[str], None]


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Prints a step with the processor time since the last one."""
    last_s = time.process_time()

    def told(what: str) -> None:
        nonlocal last_s
        now_s = time.process_time()
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        with capsys.disabled():
            print(f"\n{what}: {now_s - last_s:.2f} s of processor time, at most {used:,} MB so far", end="")
        last_s = time.process_time()

    return told


@pytest.fixture
def jobs() -> Iterator[Any]:
    made: list[TableJob] = []

    def make(*tables: Any) -> TableJob:
        made.append(TableJob(tables))
        return made[-1]

    yield make
    for job in made:
        job.close()


def test_ten_thousand_retained_epochs(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.KeyedTable("t", key="k bigint", value="n bigint"))
    for number in range(EPOCHS):
        if number % 10 == 0:
            job.managers[0].keyed("t").put(pa.table({"k": [number % 50], "n": [number]}))
        job.checkpoint()
        if number % 40 == 39:
            job.compact()
            job.restart()
    tell(f"{EPOCHS:,} epochs written")
    objects, claim = job.backend.objects("job"), job.backend.claim("job")
    found = recover_job(objects, claim)
    assert found is not None
    assert found.record.epoch == EPOCHS
    tell("recovery")
    known = KnownReferences()
    for turn in ("first", "second"):
        plan = retain_epochs(objects, claim, RetentionPolicy(EPOCHS - 100), job.backend.ambient, None, known)
        assert isinstance(plan, RetentionPlan)
        tell(f"{turn} retention")
    assert len(objects.list_epochs()) == EPOCHS - 100
    job.restart()
    assert job.managers[0].keyed("t").count() == 5


def test_a_thousand_tables(jobs: Any, tell: Tell) -> None:
    names = [f"t{number}" for number in range(TABLES)]
    job = jobs(*[ls.KeyedTable(name, key="k bigint", value="n bigint") for name in names])
    for epoch in range(2):
        for name in names:
            job.managers[0].keyed(name).put(pa.table({"k": [epoch], "n": [epoch]}))
        job.checkpoint()
        tell(f"checkpoint of {TABLES:,} changed tables")
    job.restart()
    assert [job.managers[0].keyed(name).count() for name in names] == [2] * TABLES
    tell("restored and counted")


def test_a_hundred_thousand_files_in_512_subtasks(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.KeyedTable("t", key="k bigint", value="n bigint"))
    job.checkpoint()
    objects, claim = job.backend.objects("job"), job.backend.claim("job")
    entries = tuple(_stored_subtask(objects, index) for index in range(SUBTASKS))
    operator = OperatorEntry("op", SUBTASKS, entries)
    generation, state_id = claim.generation, claim.state_id
    manifest = Manifest(
        "job", Epoch(2), generation, Epoch(1), 0, 0, Epoch(1), operators=(operator,), state_id=state_id
    )
    data = encode_manifest(manifest)
    ref = _put(objects, "checkpoints/2/manifest.pb", data)
    record = EpochRecord("job", Epoch(2), generation, ref, 0)
    objects.store.put(objects.store_path(objects.paths.epoch_record(Epoch(2))), record.encode())
    tell(f"written; manifest {len(data):,} bytes, metadata {entries[0].metadata.size_bytes:,} bytes each")
    found = recover_job(objects, claim)
    assert found is not None
    assert found.manifest == manifest
    tell("recovery")
    references = read_references(objects, Epoch(2))
    assert isinstance(references, frozenset)
    assert len(references) > FILES
    tell("all references read")


def _stored_subtask(objects: Any, index: int) -> SubtaskEntry:
    keys = key_range_of(index, SUBTASKS)
    files = tuple(
        replace(FILE, path=f"checkpoints/2/operator-op/t-{index}-{number:032x}.parquet", blocks=())
        for number in range(-(-FILES // SUBTASKS))
    )
    metadata = SubtaskMetadata(
        "job", "op", index, SUBTASKS, Epoch(2), Generation(1), "a", keys, 0, 0,
        configs=(TableConfig("t", KEYED),), tables=(TableFiles("t", KEYED, files),),
    )  # fmt: skip
    ref = _put(objects, f"checkpoints/2/operator-op-{index}.metadata", encode_subtask(metadata))
    return SubtaskEntry(index, keys, ref, StateSummary(len(files), 0, 0, 0))


def _put(objects: Any, path: str, data: bytes) -> ObjectRef:
    objects.store.put(objects.store_path(path), data)
    return ObjectRef(path, len(data), xxhash.xxh3_64_intdigest(data))


def test_512_subtasks(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.KeyedTable("t", key="k bigint", value="n bigint"))
    job.managers[0].keyed("t").put(pa.table({"k": range(100_000), "n": range(100_000)}))
    job.checkpoint()
    job.restart(parallelism=SUBTASKS)
    tell(f"restored by {SUBTASKS} subtasks")
    job.checkpoint()
    tell("checkpoint of all")
    assert sum(manager.keyed("t").count() for manager in job.managers) == 100_000
    job.restart(parallelism=1)
    assert job.managers[0].keyed("t").count() == 100_000


def test_a_value_of_a_gibibyte_in_a_keyed_table(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.KeyedTable("t", key="k bigint", value="v binary"))
    value = bytes(GIB)
    job.managers[0].keyed("t").put(pa.table({"k": [1], "v": pa.array([value], pa.binary())}))
    job.checkpoint()
    tell("checkpoint")
    job.restart()
    found = job.managers[0].keyed("t").get(pa.table({"k": [1]})).column("v")[0]
    assert found.as_buffer().equals(pa.py_buffer(value))
    tell("restored and read")


def test_a_key_of_100_megabytes(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.KeyedTable("t", key="k string", value="n bigint"))
    key = "x" * 100_000_000
    rows = pa.table({"k": [key, f"{key[1:]}y", "short"], "n": [1, 2, 3]})
    job.managers[0].keyed("t").put(rows)
    job.checkpoint()
    tell("checkpoint of two")
    job.restart()
    assert job.managers[0].keyed("t").get(rows.select(["k"])).column("n").to_pylist() == [1, 2, 3]
    tell("restored and found")


def test_a_value_of_a_gibibyte_in_a_global_keyed_table(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.GlobalKeyedTable("g", key=str, value=bytes))
    value = bytes(GIB)
    job.managers[0].global_keyed("g").insert("large", value)
    job.checkpoint()
    tell("checkpoint")
    job.restart()
    assert job.managers[0].global_keyed("g").get("large") == value
    tell("restored and read")


def test_an_epoch_with_more_text_than_32_bits_count(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.KeyedTable("t", key="k bigint", value="v binary"))
    size = 450 << 20
    for number in range(5):
        rows = pa.table({"k": [number], "v": pa.array([bytes([number]) * size], pa.binary())})
        job.managers[0].keyed("t").put(rows)
    job.checkpoint()
    tell(f"checkpoint of {5 * size:,} bytes")
    job.restart()
    for number in range(5):
        found = job.managers[0].keyed("t").get(pa.table({"k": [number]})).column("v")[0].as_buffer()
        assert (found.size, found[0], found[size - 1]) == (size, number, number)
    tell("restored and read")


def test_a_run_with_more_nested_text_than_32_bits_count(jobs: Any, tell: Tell) -> None:
    job = jobs(ls.KeyedTable("t", key="k bigint", value="v array<string>"))
    count, length = 100_000, 3_000
    for part in range(8):
        keys = range(part * count, (part + 1) * count)
        values = pa.array([[f"{key}".ljust(length, "x")] for key in keys], pa.list_(pa.string()))
        job.managers[0].keyed("t").put(pa.table({"k": pa.array(keys), "v": values}))
        job.checkpoint()
    tell(f"{8 * count * length:,} bytes in eight runs")
    job.compact()
    job.restart()
    job.checkpoint()
    tell("merged")
    job.restart()
    view = job.managers[0].keyed("t")
    assert view.get(pa.table({"k": [7]})).column("v")[0].as_py() == ["7".ljust(length, "x")]
    assert sum(batch.num_rows for batch in view.scan()) == 8 * count
    tell("restored and read")
