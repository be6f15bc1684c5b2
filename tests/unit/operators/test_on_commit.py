"""`on_commit`: output that operators write themselves, once for each published epoch."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

import lakestate as ls
from lakestate.coordinator import administration
from lakestate.coordinator.epoch_plan import (
    EpochPlan,
    EpochResult,
    SubtaskReport,
    decode_commit_parts,
    encode_commit_parts,
)
from lakestate.coordinator.job_driver import JobDriver
from lakestate.errors import InvalidInputError, OperatorError
from lakestate.protocol.metadata import CommitPart, SinkPreCommit
from lakestate.testing import OperatorHarness
from lakestate.verification.report import Problem

OUTBOX = ls.GlobalKeyedTable("outbox", key=str, value=int, two_phase_commit=True)


class Ledger:
    """A target that keeps the newest epoch beside what it holds. Copies of an operator share it."""

    def __init__(self) -> None:
        self.amounts: list[int] = []
        self.epoch = 0
        self.fails_once: Exception | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def add(self, epoch: int, amounts: list[int]) -> None:
        failure, self.fails_once = self.fails_once, None
        if failure is not None:
            raise failure
        if epoch > self.epoch:
            self.amounts += amounts
            self.epoch = epoch


class Amounts(ls.Operator):
    totals = ls.KeyedTable(key="user string", value="amount bigint")
    outbox = ls.GlobalKeyedTable(key=str, value=int, two_phase_commit=True)

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.amounts: list[int] = []

    def process_batch(self, batch, ctx):
        self.amounts += [amount for amount in batch.column("amount").to_pylist() if amount]
        if self.amounts:
            self.outbox.set_commit_data(json.dumps(self.amounts).encode())

    def on_commit(self, commit):
        self.ledger.add(commit.epoch, sorted(each for data in commit.data for each in json.loads(data)))


def rows(*amounts: int) -> list[dict[str, Any]]:
    return [{"user": f"user-{amount}", "amount": amount} for amount in amounts]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


class TestCommits:
    def test_the_commit_data_of_all_subtasks_arrives_after_each_epoch(self, ledger: Ledger) -> None:
        harness = OperatorHarness(Amounts(ledger), parallelism=3)
        harness.epoch(rows(1, 2, 3, 4, 5, 6))
        harness.epoch(rows(7))
        first, second = harness.commits
        assert [part.subtask_index for part in first.parts] == [0, 1, 2]
        assert {part.table for part in first.parts} == {"outbox"}
        assert ledger.amounts == [1, 2, 3, 4, 5, 6, 7]
        assert (second.job_id, second.operator_id) == ("harness", "operator")
        assert (second.epoch, second.generation, second.data) == (2, 1, (b"[7]",))
        assert first.state_id == second.state_id != ""

    def test_an_epoch_without_commit_data_is_not_committed(self, ledger: Ledger) -> None:
        harness = OperatorHarness(Amounts(ledger))
        harness.epoch(rows(1))
        harness.epoch()
        harness.epoch(rows(0))
        assert [commit.epoch for commit in harness.commits] == [1]

    def test_the_same_commit_data_in_two_epochs_is_committed_twice(self, ledger: Ledger) -> None:
        harness = OperatorHarness(Amounts(ledger))
        harness.epoch(rows(4))
        harness.epoch(rows(4))
        assert ledger.amounts == [4, 4]

    def test_an_epoch_that_is_not_published_is_not_committed(self, ledger: Ledger) -> None:
        harness = OperatorHarness(Amounts(ledger), parallelism=2)
        harness.crash(rows(1, 2))
        assert harness.commits == []
        harness.epoch(rows(3))
        assert ledger.amounts == [3]

    def test_after_a_crash_an_interrupted_commit_is_called_again_with_the_same_commit(
        self, ledger: Ledger
    ) -> None:
        harness = OperatorHarness(Amounts(ledger), parallelism=2)
        harness.crash_in_commit(rows(1, 2))
        first, again = harness.commits
        assert first == again
        assert ledger.amounts == [1, 2]
        harness.rescale(1)
        assert len(harness.commits) == 2

    def test_the_last_epoch_is_committed_too(self, ledger: Ledger) -> None:
        harness = OperatorHarness(Amounts(ledger))
        harness.drain(rows(9))
        assert ledger.amounts == [9]

    def test_a_crash_in_the_commit_needs_something_to_commit(self, ledger: Ledger) -> None:
        with pytest.raises(
            InvalidInputError, match="nothing to commit, and on_commit was not called: Amounts"
        ):
            OperatorHarness(Amounts(ledger)).crash_in_commit()


class TestFailures:
    def test_what_on_commit_raises_names_operator_and_epoch_and_the_next_start_calls_it_again(
        self, ledger: Ledger
    ) -> None:
        harness = OperatorHarness(Amounts(ledger))
        harness.epoch(rows(1))
        ledger.fails_once = OSError("the target is away")
        with pytest.raises(
            OperatorError,
            match="on_commit raised OSError: operator operator of job harness, epoch 2; found the",
        ) as failure:
            harness.epoch(rows(2))
        assert isinstance(failure.value.__cause__, OSError)
        assert ledger.amounts == [1]
        harness.restart()
        assert ledger.amounts == [1, 2]
        assert [commit.epoch for commit in harness.commits] == [1, 2, 2]

    def test_no_further_epoch_starts_before_a_commit_has_succeeded(self, ledger: Ledger) -> None:
        harness = OperatorHarness(Amounts(ledger))
        for _ in range(2):
            ledger.fails_once = OSError("the target is away")
            with pytest.raises(OperatorError):
                harness.restart() if harness.commits else harness.epoch(rows(1))
        harness.restart()
        harness.epoch(rows(2))
        assert (ledger.amounts, ledger.epoch) == ([1, 2], 2)

    def test_state_cannot_be_reached_from_on_commit(self, ledger: Ledger) -> None:
        class Reads(Amounts):
            def on_commit(self, commit):
                self.totals.get({"user": ["ann"]})

        with pytest.raises(
            OperatorError, match="on the driver, where an operator has no state: table totals"
        ):
            OperatorHarness(Reads(ledger)).epoch(rows(1))

    def test_what_on_commit_keeps_on_self_stays_with_the_driver(self, ledger: Ledger) -> None:
        class Keeps(Amounts):
            def on_commit(self, commit):
                self.amounts.append(100 + commit.epoch)
                self.ledger.amounts = list(self.amounts)

        harness = OperatorHarness(Keeps(ledger))
        harness.epoch(rows(1))
        harness.epoch(rows(2))
        assert [commit.data for commit in harness.commits] == [(b"[1]",), (b"[2]",)]
        assert ledger.amounts == [101, 102]


class TestDeclarations:
    def test_commit_data_without_on_commit_is_refused_at_the_start(self) -> None:
        class NoHook(ls.Operator):
            outbox = ls.GlobalKeyedTable(key=str, value=int, two_phase_commit=True)

        with pytest.raises(
            InvalidInputError,
            match="does not define on_commit: operator NoHook; found two_phase_commit=True in outbox",
        ):
            OperatorHarness(NoHook())

    def test_on_commit_without_a_table_for_it_is_refused_at_the_start(self) -> None:
        class NoTable(ls.Operator):
            counts = ls.GlobalKeyedTable(key=str, value=int)

            def on_commit(self, commit):
                """Never called."""

        with pytest.raises(
            InvalidInputError, match="none of its tables can hold commit data: operator NoTable"
        ):
            OperatorHarness(NoTable())

    def test_an_on_commit_whose_body_would_not_run_is_refused_at_the_start(self, ledger: Ledger) -> None:
        class Yields(Amounts):
            def on_commit(self, commit):
                yield commit

        class Awaited(Amounts):
            async def on_commit(self, commit):
                """Never awaited."""

        for operator in (Yields(ledger), Awaited(ledger)):
            with pytest.raises(InvalidInputError, match="its body would never run"):
                OperatorHarness(operator)

    def test_an_operator_without_both_has_nothing_to_commit(self) -> None:
        from lakestate.operators import has_on_commit

        class Plain(ls.Operator):
            counts = ls.GlobalKeyedTable(key=str, value=int)

        assert not has_on_commit(Plain(), "operator plain")


class Program:
    """A program without a driver: one subtask, one backend for each start."""

    def __init__(self, url: str) -> None:
        self.backend = ls.ParquetBackend(url, cache_bytes=0)
        self.commits: list[ls.OperatorCommit] = []
        self.fails = False

    def checkpoint(self, epoch: int, data: bytes | None) -> Any:
        task = ls.TaskInfo(job_id="job", operator_id="op")
        tables = ls.TableManager.load(task, [OUTBOX], self.backend, epoch - 1 if epoch > 1 else None)
        if data is not None:
            tables.global_keyed("outbox").set_commit_data(data)
        return tables.checkpoint(epoch, 1, None, False)

    def publish(self, epoch: int, data: bytes | None) -> None:
        done = self.checkpoint(epoch, data)
        self.backend.write_checkpoint_metadata("job", epoch, [done], on_commit={"op": self.on_commit})

    def on_commit(self, commit: ls.OperatorCommit) -> None:
        self.commits.append(commit)
        if self.fails:
            raise OSError("the target is away")


class TestWithoutADriver:
    def test_publishing_commits(self) -> None:
        program = Program("memory://on-commit-publishes")
        program.publish(1, b"a")
        program.publish(2, None)
        program.publish(3, b"c")
        assert [(commit.epoch, commit.parts) for commit in program.commits] == [
            (1, (CommitPart(0, "outbox", b"a"),)),
            (3, (CommitPart(0, "outbox", b"c"),)),
        ]
        assert program.backend.finish_commit("job", {"op": program.on_commit}) is None

    def test_commit_data_that_nothing_commits_is_refused_before_it_is_published(self) -> None:
        program = Program("memory://on-commit-refused")
        done = program.checkpoint(1, b"a")
        with pytest.raises(
            InvalidInputError, match=r"nothing commits it: op\.outbox; .* nothing was published"
        ):
            program.backend.write_checkpoint_metadata("job", 1, [done])
        assert program.backend.objects("job").list_epochs() == []

    def test_an_interrupted_commit_is_finished_by_the_next_program(self) -> None:
        program = Program("memory://on-commit-finishes")
        program.fails = True
        with pytest.raises(OperatorError, match="on_commit raised OSError: operator op of job job, epoch 1"):
            program.publish(1, b"a")
        second = Program("memory://on-commit-finishes")
        assert second.backend.finish_commit("job", {"op": second.on_commit}) == 1
        assert second.backend.finish_commit("job", {"op": second.on_commit}) is None
        assert second.commits == program.commits

    @pytest.mark.parametrize("is_same_program", [True, False])
    def test_the_next_epoch_is_published_only_after_the_one_before_is_committed(
        self, is_same_program: bool
    ) -> None:
        url = f"memory://on-commit-order-{is_same_program}"
        program = Program(url)
        program.fails = True
        with pytest.raises(OperatorError):
            program.publish(1, b"a")
        following = program if is_same_program else Program(url)
        following.fails = True
        with pytest.raises(OperatorError, match="epoch 1"):
            following.publish(2, b"b")
        assert following.backend.objects("job").list_epochs() == [1]
        following.fails = False
        following.commits.clear()
        following.publish(2, b"b")
        assert [(commit.epoch, commit.data) for commit in following.commits] == [(1, (b"a",)), (2, (b"b",))]

    def test_an_epoch_of_an_operator_that_is_gone_says_what_to_do(self) -> None:
        program = Program("memory://on-commit-gone")
        program.fails = True
        with pytest.raises(OperatorError):
            program.publish(1, b"a")
        with pytest.raises(
            InvalidInputError, match="found op; expected none; start once with them as they were"
        ):
            Program("memory://on-commit-gone").backend.finish_commit("job", {})

    def test_commit_data_of_operators_is_no_damage(self) -> None:
        program = Program("memory://on-commit-verify")
        program.publish(1, b"a")
        report = ls.verify(program.backend, "job")
        assert (report.is_clean, report.orphans, report.restorable) == (True, (), (1,))


class TestTheManifest:
    def test_a_driver_publishes_no_commit_data_that_nothing_commits(self) -> None:
        backend = ls.ParquetBackend("memory://on-commit-driver", cache_bytes=0)
        driver = JobDriver(backend, "job", {"op": 1}, {})
        driver.start()

        def run(plan: EpochPlan) -> EpochResult:
            task = ls.TaskInfo("job", "op", generation=plan.generation)
            tables = ls.TableManager.load(task, [OUTBOX], backend, None)
            tables.global_keyed("outbox").set_commit_data(b"a")
            return EpochResult((SubtaskReport("stage", 0, (tables.checkpoint(1, 1, None, False),)),))

        with pytest.raises(InvalidInputError, match=r"in epoch 1, and nothing commits it: op\.outbox"):
            driver.run_epoch(driver.next_epoch(), run)
        driver.stop()
        assert backend.objects("job").list_epochs() == []

    def test_parts_without_subtask_and_table_are_those_of_a_sink(self) -> None:
        assert decode_commit_parts(msgspec.msgpack.encode([b"a", b"b"]), "manifest") == [
            CommitPart(0, "", b"a"),
            CommitPart(1, "", b"b"),
        ]

    @pytest.mark.parametrize(
        "parts",
        [
            pytest.param([], id="lost"),
            pytest.param([CommitPart(0, "outbox", b"b")], id="changed"),
            pytest.param([CommitPart(0, "other", b"a")], id="of another table"),
        ],
    )
    def test_verification_compares_what_will_be_committed_with_what_the_subtasks_left(
        self, parts: list[CommitPart], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = Program(f"memory://on-commit-{uuid.uuid4().hex}")
        forged = (SinkPreCommit("op", encode_commit_parts(parts)),) if parts else ()
        monkeypatch.setattr(administration, "pre_commits_of", lambda *_: forged)
        program.publish(1, b"a")
        (finding,) = ls.verify(program.backend, "job").findings
        assert (finding.problem, finding.kind) == (Problem.CONTRADICTION, "manifest")
        assert finding.found.startswith("other commit data of op, subtask 0, tables o")
