"""`ParquetBackend` in other hands than the driver's: who has the job, and who may delete from it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.clocks import StandingClock
from tests.support.jobs.table_job import EAGER, TableJob

import lakestate as ls
from lakestate.coordinator import administration
from lakestate.coordinator.retention.retain import read_references
from lakestate.errors import ConflictError, FencedError, InvalidInputError
from lakestate.job import published_epochs
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.retention import RetentionPlan
from lakestate.protocol.values import Epoch
from lakestate.storage.parallel import run_sequentially

pytestmark = pytest.mark.usefixtures("separate_runs")

TABLE = ls.KeyedTable("t", key="k string", value="n bigint")


@pytest.fixture
def job() -> Iterator[TableJob]:
    """A job that runs, with four epochs."""
    made = TableJob([TABLE])
    run(made, 4)
    yield made
    made.close()


def run(job: TableJob, count: int) -> None:
    for _ in range(count):
        number = 0 if job.epoch is None else job.epoch
        job.managers[0].keyed("t").put(pa.table({"k": [f"key {number}"], "n": [number]}))
        job.checkpoint()


def rows(job: TableJob) -> dict[str, int]:
    found = pa.Table.from_batches(job.opened(job.epoch)[0].keyed("t").scan()).to_pydict()
    return dict(zip(found["k"], found["n"], strict=True))


def script(job: TableJob) -> ls.ParquetBackend:
    """A backend of a process beside the driver's, on the same host."""
    return ls.ParquetBackend(job.backend._config, cache_dir=job.backend._cache_dir)


def test_compaction_fences_no_driver(job: TableJob) -> None:
    before = job.backend.objects("job").read_fence()
    beside = script(job)
    merged = beside.compact_operator("job", "op", policy=EAGER)
    assert merged.bytes_written > 0
    assert beside.compact_operator("job", "op").bytes_written == 0
    assert job.backend.objects("job").read_fence() == before
    run(job, 1)


def test_what_was_merged_without_a_claim_is_swapped_in_by_the_driver(job: TableJob) -> None:
    expected = rows(job)
    job.compacted = script(job).compact_operator("job", "op", policy=EAGER)
    job.restart()
    job.checkpoint()
    metadata = job.backend.load_operator_metadata("job", 5, "op")[0]
    [file] = metadata.tables[0].files
    assert file.epoch == 5
    assert rows(job) == expected
    job.retain(keep=1)
    assert rows(job) == expected


def test_merged_files_that_nobody_swaps_in_stay_until_retention_passes_their_epoch(job: TableJob) -> None:
    objects = job.backend.objects("job")
    merged = script(job).compact_operator("job", "op", policy=EAGER)
    [file] = merged.of_subtask(0)[0].merged
    run(job, 3)
    for oldest, expected in ((4, True), (5, True), (6, False)):
        assert isinstance(job.backend.cleanup_checkpoint("job", oldest), RetentionPlan)
        there = {info.path for info in objects.store.list()}
        assert (objects.store_path(file.path) in there) is expected
    job.compacted = merged
    with pytest.raises(ConflictError, match="retention has passed a merge before it was swapped in"):
        job.restart()


def times(factor: int) -> ls.KeyedTable:
    def migrate(rows: pa.Table) -> pa.Table:
        return rows.append_column("m", pc.multiply(rows["n"], factor)).drop_columns(["n"])

    steps = [ls.ArrowMigration(1, migrate)]
    return ls.KeyedTable("t", key="k string", value="m bigint", version=2, migrations=steps)


def test_what_a_script_makes_of_older_versions_is_not_what_the_driver_finds_in_the_cache(
    job: TableJob,
) -> None:
    generation = job.backend.claim("job").generation
    task = ls.TaskInfo("job", "op", generation=generation)
    tables = ls.TableManager.load(task, [times(100)], job.backend, restore_from=4)
    job.backend.write_checkpoint_metadata("job", 5, [tables.checkpoint(5, 1, None, False)])
    with run_sequentially():
        merged = script(job).compact_operator("job", "op", policy=EAGER, tables=[times(10)])
        assert merged.bytes_written > 0
        again = ls.TableManager.load(task, [times(100)], job.backend, restore_from=5)
        found = again.keyed("t").get(pa.table({"k": ["key 3"]}))
    assert found["m"].to_pylist() == [300]


def test_only_the_driver_that_has_the_job_deletes_from_it(job: TableJob) -> None:
    beside = script(job)
    before = [info.path for info in job.backend.objects("job").store.list()]
    with pytest.raises(InvalidInputError, match=r"job job is not claimed.*claim\(job_id\).*fences a driver"):
        beside.cleanup_checkpoint("job", 3)
    assert [info.path for info in job.backend.objects("job").store.list()] == before
    run(job, 1)
    beside.claim("job")
    assert isinstance(beside.cleanup_checkpoint("job", 3), RetentionPlan)
    with pytest.raises(FencedError):
        job.backend.cleanup_checkpoint("job", 4)
    with pytest.raises(FencedError):
        run(job, 1)


def test_a_claim_forgets_what_was_known_of_the_job(job: TableJob) -> None:
    """The job was deleted and begun again under its name."""
    objects = job.backend.objects("job")
    job.backend.cleanup_checkpoint("job", 2)
    objects.store.delete_many([info.path for info in objects.store.list()])
    again = TableJob([TABLE], url=job.backend._config.url)
    run(again, 4)
    again.compact()
    again.restart()
    run(again, 2)
    job.backend.claim("job")
    job.backend.cleanup_checkpoint("job", 3)
    there = {info.path for info in objects.store.list()}
    for epoch in objects.list_epochs():
        references = read_references(objects, epoch)
        assert isinstance(references, frozenset)
        needed = {objects.store_path(path) for path in references}
        assert needed - there == {objects.store_path(objects.paths.commit_marker(epoch))}
    again.close()


@pytest.mark.parametrize("hand", ["another process", "the driver's own backend"])
def test_clean_up_by_hand_leaves_a_merge_that_an_epoch_in_flight_has_swapped_in(
    hand: str, job: TableJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = script(job).compact_operator("job", "op", policy=EAGER)
    [file] = merged.of_subtask(0)[0].merged
    run(job, 3)
    expected = rows(job)
    job.compacted = merged
    job.restart()
    cleaning = script(job) if hand == "another process" else job.backend
    objects = job.backend.objects("job")
    create = objects.store.create

    def cleaned_first(path: str, data: bytes) -> object:
        """The driver sleeps between its look at the fence and the record of its epoch."""
        if path.endswith("epochs/0000000008.json"):
            cleaning.claim("job")
            plan = cleaning.cleanup_checkpoint("job", 7)
            assert isinstance(plan, RetentionPlan)
            assert objects.paths.epoch_record(Epoch(6)) in plan.delete_first
            assert file.path in plan.kept
        return create(path, data)

    monkeypatch.setattr(objects.store, "create", cleaned_first)
    assert job.checkpoint() == 8
    assert rows(job) == expected


def passes_the_newest(monkeypatch: pytest.MonkeyPatch, job: TableJob, module: ModuleType, step: str) -> None:
    """Between a listing and what follows it, retention passes the epoch that was the newest."""
    real = getattr(module, step)
    naps = iter([True])

    def after_a_nap(*args: object) -> object:
        if next(naps, False):
            run(job, 1)
            job.backend.cleanup_checkpoint("job", job.epoch or 1)
        return real(*args)

    monkeypatch.setattr(module, step, after_a_nap)


def test_the_newest_epoch_is_found_though_retention_passes_the_one_that_was_listed(
    job: TableJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = script(job)
    passes_the_newest(monkeypatch, job, published_epochs, "open_epoch")
    newest = beside.newest_checkpoint("job")
    assert newest is not None
    assert newest.epoch == job.epoch == 5
    assert beside.newest_checkpoint("another") is None


def test_the_newest_epoch_is_tagged_though_retention_passes_the_one_that_was_listed(
    job: TableJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = script(job)
    passes_the_newest(monkeypatch, job, administration, "create_tag")
    assert beside.create_tag("job", "release").epoch == job.epoch == 5


def test_what_travels_to_executors_reads_state_and_holds_no_claim(job: TableJob) -> None:
    job.backend.claim("job")
    shipped = pickle.loads(pickle.dumps(job.backend))
    assert type(shipped) is StateBackend
    assert shipped.load_checkpoint_metadata("job").epoch == job.epoch
    assert not hasattr(shipped, "claim")
    assert not hasattr(shipped, "cleanup_checkpoint")


def test_a_merge_of_a_replicated_table_that_was_quiet_for_long_is_swapped_in() -> None:
    job = TableJob([TABLE, ls.GlobalKeyedTable("rates", key=str, value=int)])
    for number in range(3):
        job.managers[0].global_keyed("rates").insert(f"rate {number}", number)
        run(job, 1)
    run(job, 5)
    job.retain(keep=1)
    job.compact()
    job.restart()
    run(job, 1)
    assert len(job.backend.load_operator_metadata("job", 9, "op")[0].tables[1].files) == 1
    assert len(job.opened(job.epoch)[0].global_keyed("rates")) == 3
    job.close()


def test_what_a_later_generation_has_merged_is_not_damage(job: TableJob) -> None:
    """Subtasks by hand that do not tell their generation."""
    job.backend.claim("job")
    run(job, 1)
    job.compact()
    job.restart()
    run(job, 1)
    assert ls.verify(script(job), "job").is_clean


def test_a_host_whose_clock_is_behind_does_not_bring_back_what_has_expired(tmp_path: Path) -> None:
    table = ls.KeyedTable("t", key="k string", value="n bigint", ttl="1 hour")
    task = ls.TaskInfo("job", "op")
    bytes_merged = 0
    for epoch, minutes in ((1, 0), (2, 40), (3, 61)):
        backend = ls.ParquetBackend(tmp_path.as_uri(), ambient=StandingClock(minutes))
        tables = ls.TableManager.load(task, [table], backend, restore_from=epoch - 1 or None)
        if epoch == 3:
            # In one file with a row that lives on, it does not go with its file.
            merges = backend.compact_operator("job", "op", policy=EAGER)
            bytes_merged = merges.bytes_written
            tables.apply_compacted(merges.of_subtask(0))
        tables.keyed("t").put(pa.table({"k": [f"in {epoch}"], "n": [epoch]}))
        done = tables.checkpoint(epoch=epoch, min_epoch=1, watermark=None, then_stop=False)
        backend.write_checkpoint_metadata("job", epoch, [done])
    assert bytes_merged > 0
    behind = ls.ParquetBackend(tmp_path.as_uri(), ambient=StandingClock(30))
    found = ls.TableManager.load(task, [table], behind, restore_from=3).keyed("t")
    assert sorted(pa.Table.from_batches(found.scan())["k"].to_pylist()) == ["in 2", "in 3"]
