"""A job whose checkpoint was copied: refused before it writes anything, and known to verification."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending, EpochPlan, EpochResult
from lakestate.coordinator.job_driver import JobDriver
from lakestate.errors import InvalidInputError
from lakestate.runtime.sink_step import SinkStep, output_claim, sink_clean_up, sink_committer
from lakestate.runtime.steps import ChainLink
from lakestate.runtime.subtask import StagePlan, SubtaskRun
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.output_owner import OutputClaim
from lakestate.sinks.sink import Sink
from lakestate.storage.parallel import InlineExecutor
from lakestate.verification.report import Problem

JOB, SINK = "shop", "out"
ROWS = pa.record_batch({"n": pa.array(range(100), pa.int64())})


class CrashError(Exception):
    """The process has died."""


class Shop:
    """A job of one sink at a checkpoint."""

    def __init__(self, checkpoint: Path, sink: Sink) -> None:
        self.backend = ls.ParquetBackend(checkpoint, cache_bytes=0)
        self.sink = sink

    def start(self, claim: OutputClaim = OutputClaim.OWN, *, commits: bool = True) -> JobDriver:
        driver = JobDriver(
            self.backend,
            JOB,
            {SINK: 1},
            {SINK: sink_committer(self.sink) if commits else _crash},
            clean_up=sink_clean_up({SINK: self.sink}, JOB),
            claim_output=output_claim({SINK: self.sink}, self.backend, JOB, claim),
            upkeep_executor=InlineExecutor(),
        )
        driver.start()
        return driver

    def run(self, driver: JobDriver, ending: Ending = Ending.CONTINUE) -> None:
        def write(plan: EpochPlan) -> EpochResult:
            step = SinkStep(SINK, self.sink, ROWS.schema)
            run = SubtaskRun(StagePlan("s", 1, (ChainLink(step),)), 0, plan, self.backend)
            rows = [("", ROWS)] if ending is Ending.CONTINUE else []
            assert list(run.run(rows)) == []
            return EpochResult((run.report,))

        driver.run_epoch(driver.next_epoch(), write, ending)


def _crash(*_: object) -> list[object]:
    raise CrashError


@pytest.fixture(params=["files", "iceberg", "delta"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    never = ls.Roll(interval=None)
    if request.param == "files":
        return ls.ParquetSink(f"file://{tmp_path}/out", roll=never, kept_row_bytes=0)
    if request.param == "delta":
        delta = ls.DeltaSink(f"file://{tmp_path}/out", roll=never, kept_row_bytes=0)
        delta.check(ROWS.schema)
        return delta
    table = ls.IcebergSink("shop.rows", catalog=f"file://{tmp_path}/out", roll=never, kept_row_bytes=0)
    table.check(ROWS.schema)
    return table


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def visible_rows(sink: Sink) -> int:
    if isinstance(sink, ls.IcebergSink):
        return int(sink.load_table().scan().to_arrow().num_rows)
    if isinstance(sink, ls.DeltaSink):
        return int(sink.load_table().to_pyarrow_table().num_rows)
    assert isinstance(sink, FileSink)
    assert isinstance(sink.output, LocalOutput)
    return int(ds.dataset(sink.output.root, format="parquet").count_rows())


def test_a_copied_job_is_refused_before_it_finishes_a_commit(tmp_path: Path, sink: Sink) -> None:
    first = Shop(tmp_path / "state", sink)
    first.run(first.start())
    with pytest.raises(CrashError):
        first.run(first.start(commits=False), Ending.FINISH_FILES)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    before = contents(tmp_path / "out")
    with pytest.raises(InvalidInputError, match="another job that has a copy of this state owns the output"):
        Shop(tmp_path / "copy", sink).start()
    assert contents(tmp_path / "out") == before
    first.start()
    assert visible_rows(sink) == 100


def test_a_moved_job_takes_over_its_output_and_continues(tmp_path: Path, sink: Sink) -> None:
    first = Shop(tmp_path / "state", sink)
    first.run(first.start())
    (tmp_path / "state").rename(tmp_path / "moved")
    moved = Shop(tmp_path / "moved", sink)
    with pytest.raises(InvalidInputError, match=r"take_over_output=True"):
        moved.start()
    moved.run(moved.start(OutputClaim.TAKE_OVER))
    moved.run(moved.start(), Ending.FINISH_FILES)
    assert visible_rows(sink) == 200


def test_a_crash_after_the_first_mark_changes_nothing(tmp_path: Path, sink: Sink) -> None:
    first = Shop(tmp_path / "state", sink)
    first.start()
    driver = first.start()
    first.run(driver)
    first.run(driver, Ending.FINISH_FILES)
    assert visible_rows(sink) == 100


def test_a_job_with_a_checkpoint_of_its_own_shares_the_output(tmp_path: Path, sink: Sink) -> None:
    first, second = Shop(tmp_path / "state", sink), Shop(tmp_path / "staging", sink)
    driver = first.start()
    first.run(driver)
    other = second.start()
    second.run(other)
    second.run(other, Ending.FINISH_FILES)
    first.run(driver)
    first.run(driver, Ending.FINISH_FILES)
    assert visible_rows(sink) == 300


def test_verification_knows_marks_and_names_those_of_another_owner(tmp_path: Path, sink: Sink) -> None:
    first = Shop(tmp_path / "state", sink)
    first.run(first.start())
    report = ls.verify(first.backend, JOB, sinks={SINK: sink})
    assert (report.findings, report.orphans, report.dangling) == ((), (), ())
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    [finding] = ls.verify(Shop(tmp_path / "copy", sink).backend, JOB, sinks={SINK: sink}).findings
    assert (finding.kind, finding.problem) == ("owner of the output", Problem.CONTRADICTION)
    assert finding.found.endswith(f"checkpoint {(tmp_path / 'state').as_uri()}")
    assert finding.expected.endswith(f"checkpoint {(tmp_path / 'copy').as_uri()}")
