"""Whether an epoch is delivered: markers, fencing and lost answers, with a log in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lakestate.errors import InvalidInputError, LakestateError, OutcomeUnknownError, StorageUnavailableError
from lakestate.protocol.values import Epoch
from lakestate.sinks.kafka.delivery import Delivery, SinkIdentity, WriterFencedError
from lakestate.sinks.staged import StagedEpoch


def epoch(number: int) -> StagedEpoch:
    return StagedEpoch("job", "f00d", "out", Epoch(number), f"checkpoints/{number}/manifest.pb", ())


@dataclass
class Log:
    """Notes what is done. Each write may fail first or afterwards."""

    newest: int | None = None
    done: list[str] = field(default_factory=list)
    failures: list[tuple[str, LakestateError] | None] = field(default_factory=list)

    def open_writer(self) -> Log:
        self.done.append("open")
        return self

    def newest_epoch(self) -> Epoch | None:
        self.done.append("read")
        return None if self.newest is None else Epoch(self.newest)

    def write(self, staged: StagedEpoch) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is None or failure[0] == "after":
            self.newest = int(staged.epoch)
            self.done.append(f"write {staged.epoch}")
        if failure is not None:
            raise failure[1]

    def abandon(self) -> None:
        self.done.append("abandon")


def delivery(log: Log, attempts_max: int = 3) -> Delivery:
    return Delivery(log, attempts_max, wait=lambda attempt: None)


def test_a_writer_is_opened_once_and_before_the_marker_is_read() -> None:
    log = Log()
    sink = delivery(log)
    for number in (1, 2, 2, 1, 3):
        sink.deliver(epoch(number))
    assert log.done == ["open", "read", "write 1", "write 2", "write 3"]


def test_an_epoch_that_is_delivered_and_older_ones_are_not_written_again() -> None:
    log = Log(newest=7)
    sink = delivery(log)
    for number in (6, 7, 8):
        sink.deliver(epoch(number))
    assert log.done == ["open", "read", "write 8"]


@pytest.mark.parametrize(
    ("moment", "written"), [("after", ["write 1"]), ("before", [])], ids=["committed", "not committed"]
)
def test_a_lost_answer_is_resolved_by_the_marker(moment: str, written: list[str]) -> None:
    log = Log(failures=[(moment, OutcomeUnknownError("the answer was lost"))])
    delivery(log).deliver(epoch(1))
    again = [] if written else ["write 1"]
    assert log.done == ["open", "read", *written, "abandon", "open", "read", *again]


def test_a_fenced_writer_looks_at_the_marker_again_and_continues() -> None:
    log = Log(failures=[None, ("before", WriterFencedError("fenced"))])
    sink = delivery(log)
    for number in (1, 2):
        sink.deliver(epoch(number))
    assert log.done == ["open", "read", "write 1", "abandon", "open", "read", "write 2"]


def test_after_so_many_attempts_the_error_says_that_nothing_is_lost() -> None:
    failure = StorageUnavailableError("Kafka could not produce", object_name="topic t", found="_TIMED_OUT")
    log = Log(failures=[("before", failure)] * 3)
    with pytest.raises(
        StorageUnavailableError, match=r"epoch 5 could not be delivered: topic t; .*nothing is lost"
    ):
        delivery(log).deliver(epoch(5))
    assert log.done == ["open", "read", "abandon"] * 3


def test_what_no_repetition_changes_is_tried_once() -> None:
    log = Log(failures=[("before", InvalidInputError("too large"))])
    with pytest.raises(InvalidInputError, match="too large"):
        delivery(log).deliver(epoch(1))
    assert log.done == ["open", "read", "abandon"]


def test_the_identity_is_that_of_job_sink_and_state_and_of_no_driver() -> None:
    found = SinkIdentity("a/b", "out", "f00d")
    assert (found.transactional_id, found.marker_key) == ("lakestate/a%2Fb/out/f00d", "marker/a%2Fb/out/f00d")
