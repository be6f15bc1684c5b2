"""Files of a job that does not run are merged by hand: same rows, offsets and open files, whatever fails."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.jobs.shop_job import ORDERS, backend_of, make_clicks, run_orders, shop_job

import lakestate as ls
from lakestate.codec.engine_files import SINK_SCHEMA
from lakestate.errors import FencedError, IncompatibleStateError, LakestateError
from lakestate.protocol.metadata import NamedBytes
from lakestate.repair import CompactedJob, PlannedMerge, compact_job, compacting, plan_job_compaction
from lakestate.testing.faults import Fault, FaultyStore, Operation, SimulatedCrash, faults_at
from lakestate.verification import verify

EAGER = ls.CompactionPolicy(files_min=2, files_max=2)
TOTALS = [
    {"user": "ada", "n": 2, "spend": 10.0},
    {"user": "bob", "n": 2, "spend": 3.0},
    {"user": "dan", "n": 1, "spend": 7.25},
    {"user": "eve", "n": 1, "spend": 4.0},
]
MANY = [(f"user-{number}", 1.0) for number in range(20)]
"""Orders of an epoch whose run the next one does not write again."""
QUICK = (Fault.CRASH_AFTER, Fault.ANSWER_LOST)
FAULTS = [
    pytest.param(fault, marks=() if fault in QUICK else pytest.mark.full, id=fault.name.lower())
    for fault in Fault
    if fault is not Fault.NONE
]


def make_job(where: str | Path, out: str) -> ls.ParquetBackend:
    """A shop with an open file, and several runs of a table."""
    backend = backend_of(where, "shop")
    run_orders(shop_job(backend, out), ORDERS)
    return backend


def totals(backend: ls.ParquetBackend) -> list[dict[str, object]]:
    return ls.read_state(backend.url, "shop", "per_user", "totals").sort_by("user").to_pylist()


def visible(folder: Path) -> list[tuple[str, float]]:
    rows = [pq.read_table(file).to_pylist() for file in folder.glob("*.parquet")]
    return sorted((row["user"], row["spend"]) for each in rows for row in each)


def test_rows_are_the_same_in_fewer_files(tmp_path: Path) -> None:
    backend = make_job(tmp_path / "state", f"file://{tmp_path}/out")
    planned = plan_job_compaction(backend, "shop", EAGER)
    done = compact_job(backend, "shop", EAGER)
    assert [(each.operator, each.table) for each in planned] == [
        ("out", "open_files"),
        ("per_user", "totals"),
    ]
    merged = sum(each.merged_files - 1 for each in planned)
    assert (done.epoch, done.merges, done.after.file_count) == (5, 2, done.before.file_count - merged)
    assert totals(backend) == TOTALS
    assert verify(backend, "shop").is_clean
    assert plan_job_compaction(backend, "shop", EAGER) == []


def test_tables_of_all_types_are_merged_of_all_subtasks(tmp_path: Path) -> None:
    make_clicks(tmp_path)
    backend = backend_of(tmp_path, "later")
    before = {
        table: ls.read_state(tmp_path, "clicks", "pages", table).to_pylist()
        for table in ("seen", "items", "rates")
    }
    compact_job(backend, "clicks", EAGER)
    assert verify(backend, "clicks").is_clean
    assert {
        table: ls.read_state(tmp_path, "clicks", "pages", table).to_pylist() for table in before
    } == before
    assert plan_job_compaction(backend, "clicks", EAGER) == []


def test_a_job_continues_its_open_files_after_a_merge(tmp_path: Path) -> None:
    out = f"file://{tmp_path}/out"
    make_job(tmp_path / "state", out)
    compact_job(ls.ParquetBackend(tmp_path / "state", cache_bytes=0), "shop", EAGER)
    # Its first epoch cleans up: what the merged epoch did not keep would be gone.
    job = shop_job(ls.ParquetBackend(tmp_path / "state", cache_bytes=0), out, roll="1B")
    run_orders(job, [[("ada", 1.0)], [("bob", 1.0)]])
    rows = visible(tmp_path / "out")
    assert [row for row in rows if row[0] != "cyd"] == [
        *[("ada", 9.5), ("ada", 10.0), ("ada", 11.0)],
        *[("bob", 1.0), ("bob", 3.0), ("bob", 4.0)],
        *[("dan", 7.25), ("eve", 4.0)],
    ]


def test_a_driver_that_runs_is_fenced_only_if_something_is_merged(tmp_path: Path) -> None:
    backend = backend_of(tmp_path / "state", "shop")
    job = shop_job(backend, f"file://{tmp_path}/out")
    run_orders(job, ORDERS)
    other = backend_of(tmp_path / "state", "other")
    assert compact_job(other, "shop").merges == 0
    run_orders(job, [MANY, [("fay", 1.0)]])
    assert compact_job(other, "shop", EAGER).epoch == 7
    with pytest.raises(FencedError):
        run_orders(job, [[("fay", 1.0)]])


def test_a_fenced_driver_that_publishes_one_last_epoch_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_of(tmp_path / "state", "shop")
    job = shop_job(backend, f"file://{tmp_path}/out")
    run_orders(job, [*ORDERS, MANY, [("fay", 1.0)]])
    other = backend_of(tmp_path / "state", "other")
    claim = other.claim

    def claim_late(job_id: str) -> object:
        # The driver has read the fence just before.
        run_orders(job, [[("fay", 1.0)]])
        return claim(job_id)

    monkeypatch.setattr(other, "claim", claim_late)
    assert compact_job(other, "shop", EAGER).epoch == 8
    assert [row for row in totals(backend) if row["user"] == "fay"] == [{"user": "fay", "n": 2, "spend": 2.0}]


def test_an_epoch_whose_commit_is_not_complete_is_refused_before_anybody_is_fenced(tmp_path: Path) -> None:
    backend = backend_of(tmp_path / "state", "shop")
    run_orders(shop_job(backend, f"file://{tmp_path}/out", roll="1B"), ORDERS)
    (tmp_path / "state/shop/checkpoints/4/committed.json").unlink()
    before = backend.objects("shop").read_fence()
    with pytest.raises(IncompatibleStateError, match="its commit is not complete"):
        compact_job(backend, "shop", EAGER)
    assert backend.objects("shop").read_fence() == before


def test_a_job_whose_offsets_spark_keeps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = make_job(tmp_path / "state", f"file://{tmp_path}/out")
    observe = compacting.observe_newest

    def observe_data_source(job: object) -> object:
        found = observe(job)  # type: ignore[arg-type]
        assert found.intact is not None
        files = (NamedBytes(SINK_SCHEMA, b"schema"),)
        return compacting.replace(found, intact=compacting.replace(found.intact, engine_files=files))

    monkeypatch.setattr(compacting, "observe_newest", observe_data_source)
    with pytest.raises(IncompatibleStateError, match="cannot be compacted by hand"):
        compact_job(backend, "shop", EAGER)


def test_a_plan_names_the_files_and_their_sizes(tmp_path: Path) -> None:
    backend = make_job(tmp_path / "state", f"file://{tmp_path}/out")
    _, planned = plan_job_compaction(backend, "shop", EAGER)
    manifest = backend.load_checkpoint_metadata("shop")
    stored = backend.objects("shop").read_subtasks(manifest.require_operator("per_user").subtasks)
    files = stored[planned.subtask or 0].tables[0].files
    size = sum(file.size_bytes for file in files)
    assert planned == PlannedMerge("per_user", "totals", planned.subtask, len(files), size, len(files), size)


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_goes_wrong_at_any_call_the_next_attempt_makes_good(fault: Fault) -> None:
    name = uuid.uuid4().hex
    made = make_job(f"memory://{name}", f"memory://{name}-out")
    calls = run_faulty(copy_of(made, 0), {})
    for number in range(1, calls + 1):
        backend = copy_of(made, number)
        run_faulty(backend, {number: fault})
        again = compact_job(backend, "shop", EAGER)
        assert isinstance(again, CompactedJob)
        assert (totals(backend), verify(backend, "shop").is_clean) == (TOTALS, True), number
        assert again.epoch in (5, 6), number


def copy_of(made: ls.ParquetBackend, number: int) -> ls.ParquetBackend:
    copied = backend_of(f"{made.url}-{number}", f"copy-{number}")
    store = made.objects("shop").store
    for info in store.list():
        copied.objects("shop").store.put(info.path, store.get(info.path).data)
    return copied


def run_faulty(backend: ls.ParquetBackend, faults: dict[int, Fault]) -> int:
    """Merge with faults at some calls. Returns how many calls there were."""
    store = backend.__dict__["_store"] = backend.objects("shop").store
    faulty = FaultyStore(store, faults_at(faults))
    backend.__dict__["_store"] = faulty
    with suppress(SimulatedCrash, LakestateError):
        compact_job(backend, "shop", EAGER)
    backend.__dict__["_store"] = store
    assert not any(call.operation is Operation.DELETE for call in faulty.calls)
    return len(faulty.calls)
