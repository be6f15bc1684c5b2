"""A stop with a time limit, and a stop by signals, with a stand-in for the query."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending
from lakestate.errors import StopTimeoutError
from lakestate.protocol.values import Epoch
from lakestate.spark import stopping
from lakestate.spark.stopping import StopAttempt, StopCalls, StopOnSignal, timeout_seconds

DEADLINE_S = 30


class Query:
    """Its stop waits until the running epoch ends: by itself, because it is cancelled, or never."""

    def __init__(self, *, cancellable: bool = True) -> None:
        self.epoch_ends = threading.Event()
        self.is_cancellable = cancellable
        self.failure: BaseException | None = None
        self.cancels: list[BaseException] = []
        self.stops: list[Ending] = []
        self.stopping = threading.Event()

    def begin_stop(self, ending: Ending) -> StopAttempt:
        calls = StopCalls(
            "job", lambda: self._stop(ending), self._cancel, lambda: Epoch(7), lambda: self.failure
        )
        return StopAttempt(calls)

    def _stop(self, ending: Ending) -> None:
        self.stops.append(ending)
        self.stopping.set()
        assert self.epoch_ends.wait(DEADLINE_S)
        if ending is not Ending.CONTINUE and self.failure is not None:
            raise self.failure

    def _cancel(self, reason: BaseException) -> None:
        self.cancels.append(reason)
        # What runs between two jobs is not there to be cancelled: the next try finds it.
        if self.is_cancellable and len(self.cancels) > 1:
            self.failure = reason
            self.epoch_ends.set()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "CANCEL_AGAIN_S", 0.01)


@pytest.fixture
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "CANCEL_GRACE_S", 0.2)


class TestTimeLimit:
    def test_a_stop_in_time_cancels_nothing(self) -> None:
        query = Query()
        query.epoch_ends.set()
        query.begin_stop(Ending.FINISH_FILES).wait(DEADLINE_S)
        assert (query.stops, query.cancels) == ([Ending.FINISH_FILES], [])

    @pytest.mark.parametrize("ending", Ending)
    def test_after_the_limit_the_epoch_is_cancelled_and_the_error_says_so(self, ending: Ending) -> None:
        query = Query()
        with pytest.raises(StopTimeoutError, match="did not stop in time, and what was running is") as late:
            query.begin_stop(ending).wait(0.01)
        assert late.value.object_name == "job job"
        assert late.value.found == "epoch 7 was running; nothing of it is published"
        assert late.value.expected == "an end within 0.01 seconds"
        assert isinstance(late.value, TimeoutError)
        assert len(query.cancels) >= 2
        assert {id(each) for each in query.cancels} == {id(late.value)}

    def test_an_epoch_that_ends_by_itself_meanwhile_is_no_error(self) -> None:
        query = Query(cancellable=False)
        threading.Timer(0.05, query.epoch_ends.set).start()
        query.begin_stop(Ending.CONTINUE).wait(0.01)
        assert query.failure is None

    @pytest.mark.usefixtures("little_grace")
    def test_what_cannot_be_cancelled_is_said_too(self) -> None:
        query = Query(cancellable=False)
        with pytest.raises(StopTimeoutError, match="what is running cannot be cancelled") as stuck:
            query.begin_stop(Ending.CONTINUE).wait(0)
        assert stuck.value.found is not None
        assert "a transform, a listener or a commit does not return" in stuck.value.found
        query.epoch_ends.set()

    def test_timeouts_are_seconds_or_text(self) -> None:
        assert [timeout_seconds(each) for each in (None, 0, 2.5, "2 minutes")] == [None, 0, 2.5, 120.0]
        for wrong in (-1, float("nan"), "soon"):
            with pytest.raises(ls.InvalidInputError):
                timeout_seconds(wrong)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
def handlers() -> Any:
    """The handlers of this process, which must be the same afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.usefixtures("handlers")
class TestSignals:
    def run(self, query: Query, body: Callable[[], None], limit_s: float | None = None) -> None:
        with StopOnSignal(lambda: query, Ending.FINISH_FILES, limit_s):
            body()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_the_first_signal_finishes_the_epoch_and_the_files(
        self, number: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        query = Query()

        def body() -> None:
            send(number)
            assert query.stopping.wait(DEADLINE_S)
            query.epoch_ends.set()

        with caplog.at_level(logging.WARNING, "lakestate.query"):
            self.run(query, body)
        assert (query.stops, query.cancels) == ([Ending.FINISH_FILES], [])
        name = signal.Signals(number).name
        assert caplog.messages == [
            f"{name}: the running epoch finishes, then the open files; send it again to stop at once"
        ]

    @pytest.mark.parametrize(
        ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
    )
    def test_the_second_signal_cancels_the_epoch_and_ends_the_block(
        self, number: int, kind: type[BaseException]
    ) -> None:
        query = Query()

        def body() -> None:
            send(number)
            assert query.stopping.wait(DEADLINE_S)
            send(number)
            raise AssertionError("the second signal raises")

        with pytest.raises(kind) as raised:
            self.run(query, body)
        assert str(raised.value) == ("143" if kind is SystemExit else "")
        assert isinstance(query.failure, StopTimeoutError)

    def test_the_second_signal_may_come_while_the_block_ends(self) -> None:
        query, waits = Query(), threading.Event()
        block = StopOnSignal(lambda: query, Ending.FINISH_FILES, None)

        def send_twice() -> None:
            assert query.stopping.wait(DEADLINE_S)
            send(signal.SIGINT)
            # Two equal signals at once would be one.
            while not block._count:
                waits.wait(0.001)
            send(signal.SIGINT)

        threading.Thread(target=send_twice, daemon=True).start()
        with pytest.raises(KeyboardInterrupt), block:
            pass

    def test_after_the_limit_a_signalled_stop_is_cancelled(self) -> None:
        query = Query()

        def body() -> None:
            send(signal.SIGTERM)
            assert query.epoch_ends.wait(DEADLINE_S)
            assert query.failure is not None
            raise query.failure

        with pytest.raises(StopTimeoutError, match="did not stop in time"):
            self.run(query, body, limit_s=0.01)

    @pytest.mark.usefixtures("little_grace")
    def test_after_the_limit_what_cannot_be_cancelled_does_not_keep_the_process(self) -> None:
        query = Query(cancellable=False)

        def body() -> None:
            send(signal.SIGTERM)
            threading.Event().wait(DEADLINE_S)

        with pytest.raises(SystemExit):
            self.run(query, body, limit_s=0.01)
        query.epoch_ends.set()

    def test_the_end_of_the_block_stops_the_query(self) -> None:
        query = Query()
        query.epoch_ends.set()
        self.run(query, lambda: None)
        assert query.stops == [Ending.FINISH_FILES]

    def test_an_error_in_the_block_is_raised_and_leaves_files_open(self) -> None:
        query = Query()
        query.epoch_ends.set()

        def body() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            self.run(query, body)
        assert query.stops == [Ending.CONTINUE]

    def test_it_needs_the_main_thread(self) -> None:
        found: list[BaseException] = []

        def other_thread() -> None:
            try:
                self.run(Query(), lambda: None)
            except ls.InvalidInputError as error:
                found.append(error)

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join(DEADLINE_S)
        assert "signals can only be handled in the main thread" in str(found[0])
