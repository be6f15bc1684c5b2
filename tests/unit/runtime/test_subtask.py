"""One subtask of a stage: the order of its steps, and the report that only a finished run has."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.coordinator import Ending, EpochPlanner
from lakestate.coordinator.epoch_plan import SubtaskReport
from lakestate.errors import InvalidInputError
from lakestate.job import StateBackend
from lakestate.protocol.values import FIRST_GENERATION
from lakestate.runtime import ChainLink, OperatorStep, StagePlan, SubtaskRun


class Traces(ls.Operator):
    """Yields the name of each hook, after what its input carries."""

    output = "trace string"

    def __init__(self, name: str) -> None:
        self.name = name

    def on_start(self, ctx):
        yield pa.table({"trace": [f"{self.name} starts"]})

    def process_batch(self, batch, ctx):
        yield pa.table({"trace": [f"{trace} > {self.name}" for trace in batch["trace"].to_pylist()]})

    def on_watermark(self, watermark, ctx):
        yield pa.table({"trace": [f"{self.name} sees {watermark.second}"]})

    def on_close(self, ctx):
        yield pa.table({"trace": [f"{self.name} closes"]})

    def on_epoch_end(self, ctx):
        ctx.wake_at(len(self.name))
        yield pa.table({"trace": [f"{self.name} ends"]})


def subtask(
    *links: ChainLink, ending: Ending = Ending.END_OF_STREAM, watermark_us: int | None = None
) -> SubtaskRun:
    plan = EpochPlanner("job").plan(None, FIRST_GENERATION, 0, state_id="s", ending=ending)
    plan = replace(plan, watermark_us=watermark_us)
    return SubtaskRun(StagePlan("stage", 1, links), 0, plan, StateBackend(f"memory://{uuid.uuid4().hex}"))


def link(name: str, parent: int | None = None, *, exported: bool = False) -> ChainLink:
    return ChainLink(OperatorStep(name, Traces(name)), parent, exported)


def test_a_child_starts_before_its_parent_and_ends_after_it() -> None:
    run = subtask(link("parent"), link("child", 0, exported=True), watermark_us=7_000_000)
    rows = [("", pa.record_batch({"trace": ["row"]}))]
    traces = [trace for _, batch in run.run(rows) for trace in batch["trace"].to_pylist()]
    assert traces == [
        "child starts",
        "parent starts > child",
        "row > parent > child",
        "parent sees 7 > child",
        "parent closes > child",
        "parent ends > child",
        "child sees 7",
        "child closes",
        "child ends",
    ]
    assert [checkpoint.operator_id for checkpoint in run.report.checkpoints] == ["parent", "child"]
    assert {name: (step.rows_in, step.rows_out) for name, step in run.report.metrics.items()} == {
        "parent": (1, 5),
        "child": (5, 9),
    }


def test_every_epoch_ends_with_a_call() -> None:
    run = subtask(link("only", exported=True), ending=Ending.CONTINUE)
    traces = [trace for _, batch in run.run([]) for trace in batch["trace"].to_pylist()]
    assert traces == ["only starts", "only ends"]


def test_a_subtask_reports_the_earliest_time_at_which_a_step_wants_to_be_called() -> None:
    run = subtask(link("parent"), link("child", 0, exported=True))
    list(run.run([]))
    assert run.report.due_us == len("child")
    assert SubtaskReport.decode(run.report.encode()).due_us == len("child")


def test_an_epoch_that_only_finishes_files_calls_nothing_of_an_operator() -> None:
    run = subtask(link("parent"), link("child", 0, exported=True), ending=Ending.FINISH_FILES)
    assert list(run.run([])) == []
    assert [checkpoint.operator_id for checkpoint in run.report.checkpoints] == ["parent", "child"]
    assert [checkpoint.then_stop for checkpoint in run.report.checkpoints] == [False, False]


def test_an_epoch_that_only_finishes_files_refuses_rows() -> None:
    run = subtask(link("only", exported=True), ending=Ending.FINISH_FILES)
    with pytest.raises(InvalidInputError, match="only finishes files was given rows: stage; found 1 rows"):
        list(run.run([("", pa.record_batch({"trace": ["row"]}))]))


def test_only_a_finished_subtask_has_a_report() -> None:
    run = subtask(link("only", exported=True))
    rows = run.run([])
    next(rows)
    with pytest.raises(InvalidInputError, match="the subtask has not finished: stage"):
        _ = run.report
    assert len(list(rows)) == 2
    assert run.report.subtask_index == 0


def test_a_stage_whose_parents_come_after_their_children_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="parents come before children: first"):
        subtask(link("first", 1), link("second"))
