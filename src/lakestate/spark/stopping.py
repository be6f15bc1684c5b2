"""How a query is stopped: in time or not at all, and by signals.

A stop runs in a thread of its own. Whoever waits for it can lose patience, cancel what runs on Spark, and
say what happened, even if the driver itself hangs.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Generic, Protocol, TypeVar

from lakestate.config import duration_us
from lakestate.coordinator.epoch_plan import Ending
from lakestate.errors import InvalidInputError, StopTimeoutError
from lakestate.protocol.values import Epoch

Timeout = float | str | timedelta

CANCEL_GRACE_S = 20.0
"""How long a cancelled epoch may take to end. Spark kills a Python worker that hangs after two seconds."""
CANCEL_AGAIN_S = 0.5
"""An epoch may have several jobs: one that begins after the first try is cancelled by the next."""
SLICE_S = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM)

_log = logging.getLogger("lakestate.query")


@dataclass(frozen=True, slots=True)
class StopCalls:
    """What a stop needs of its query."""

    job_id: str
    stop: Callable[[], None]
    cancel: Callable[[BaseException], None]
    """Cancels what runs on Spark. What fails because of it fails with the given error."""
    running: Callable[[], Epoch | None]
    failure: Callable[[], BaseException | None]


class StopAttempt:
    """A stop at work."""

    def __init__(self, calls: StopCalls) -> None:
        self._calls = calls
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="lakestate-stop", daemon=True).start()

    def wait(self, limit_s: float | None) -> None:
        """Wait until the query has stopped. Raises what the stop raises.

        After the limit the running epoch is cancelled. Raises StopTimeoutError if that changed anything.
        """
        if not wait_interruptibly(self._done, limit_s):
            assert limit_s is not None
            self.cancel(self.timeout_error(limit_s))
        if self._error is not None:
            raise self._error

    def cancel(self, reason: StopTimeoutError) -> None:
        """Cancel the running epoch, and wait a little for the stop to end. Raises the reason.

        Returns only if the stop has done all it had to do meanwhile.
        """
        until = time.monotonic() + CANCEL_GRACE_S
        while not self._done.is_set() and time.monotonic() < until:
            self._calls.cancel(reason)
            self._done.wait(CANCEL_AGAIN_S)
        if not self._done.is_set():
            raise self._stuck_error()
        if self._calls.failure() is reason:
            raise reason

    def timeout_error(self, limit_s: float) -> StopTimeoutError:
        """The error of a stop that was cancelled after so many seconds."""
        return StopTimeoutError(
            "the pipeline did not stop in time, and what was running is cancelled",
            object_name=f"job {self._calls.job_id}",
            found=f"{self._running()}; nothing of it is published",
            expected=f"an end within {limit_s:g} seconds",
            action="start the job again: it continues after its newest epoch. If an operator hangs, Spark's "
            "UI shows its task; if it is only slow, give a longer timeout",
        )

    def _stuck_error(self) -> StopTimeoutError:
        return StopTimeoutError(
            "the pipeline did not stop, and what is running cannot be cancelled",
            object_name=f"job {self._calls.job_id}",
            found=f"{self._running()}, in the driver: a transform, a listener or a commit does not return",
            expected=f"an end within {CANCEL_GRACE_S:g} seconds after Spark's jobs were cancelled",
            action="end the process and start the job again: an epoch that is not published runs again, one "
            "that is published counts",
        )

    def _running(self) -> str:
        epoch = self._calls.running()
        return "no epoch was running" if epoch is None else f"epoch {epoch} was running"

    def _run(self) -> None:
        try:
            self._calls.stop()
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._error = error
        finally:
            self._done.set()


class Stoppable(Protocol):
    """A query, as far as signals are concerned."""

    def begin_stop(self, ending: Ending) -> StopAttempt:
        """Begin to stop, and return at once."""
        ...


Query = TypeVar("Query", bound=Stoppable)


class StopOnSignal(Generic[Query]):
    """A `with` block in which SIGINT and SIGTERM stop a query. Its end stops the query too.

    The first signal lets the running epoch finish and then finishes files. The second cancels the epoch
    and raises KeyboardInterrupt or SystemExit in the main thread.
    """

    def __init__(self, start: Callable[[], Query], ending: Ending, limit_s: float | None) -> None:
        self._start = start
        self._ending = ending
        self._limit_s = limit_s
        self._count = 0
        # A signal handler may interrupt anything, even code that holds a lock: this queue needs none.
        self._signals: SimpleQueue[int | None] = SimpleQueue()
        self._attempt_lock = threading.Lock()
        self._attempt: StopAttempt | None = None
        self._listener = threading.Thread(target=self._listen, name="lakestate-signals", daemon=True)

    def __enter__(self) -> Query:
        if threading.current_thread() is not threading.main_thread():
            raise InvalidInputError(
                "signals can only be handled in the main thread",
                found=f"thread {threading.current_thread().name}",
                action="call it from the main thread, or use awaitTermination and stop",
            )
        self._query = self._start()
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        self._listener.start()
        return self._query

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._count > 1:
                self._listener.join(CANCEL_GRACE_S)
            elif error is None or isinstance(error, SystemExit):
                self._stop_once().wait(self._limit_s)
            else:
                self._stop_after(error)
        except (KeyboardInterrupt, SystemExit):
            self._listener.join(CANCEL_GRACE_S)
            raise
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._signals.put(None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        self._signals.put(number)
        if self._count > 1:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _listen(self) -> None:
        """Act on signals, outside of the handler: it may not wait."""
        number = self._signals.get()
        if number is None:
            return
        _log.warning(
            "%s: the running epoch finishes, then the open files; send it again to stop at once",
            signal.Signals(number).name,
        )
        attempt = self._stop_once()
        try:
            number = self._signals.get(timeout=self._limit_s)
        except Empty:
            self._end_main_thread_unless_cancelled(attempt)
            return
        if number is not None:
            _cancel(attempt, StopTimeoutError("the pipeline was stopped at once by a second signal"))

    def _end_main_thread_unless_cancelled(self, attempt: StopAttempt) -> None:
        """At the end of the time limit. Something that cannot be cancelled must not keep the process."""
        assert self._limit_s is not None
        if not _cancel(attempt, attempt.timeout_error(self._limit_s)):
            self._count += 1
            os.kill(os.getpid(), signal.SIGTERM)

    def _stop_once(self) -> StopAttempt:
        with self._attempt_lock:
            if self._attempt is None:
                self._attempt = self._query.begin_stop(self._ending)
            return self._attempt

    def _stop_after(self, error: BaseException) -> None:
        """Stop after an error in the block, which is raised: one of the stop is only noted in it."""
        try:
            self._query.begin_stop(Ending.CONTINUE).wait(self._limit_s)
        except Exception as further:  # noqa: BLE001
            if further is not error:
                error.add_note(f"stopping the pipeline failed too: {further}")


def wait_interruptibly(event: threading.Event, limit_s: float | None) -> bool:
    """Wait for an event in slices, so that the handler of a signal always runs soon.

    A signal that arrives in the moment before a wait begins does not interrupt it.
    """
    until = None if limit_s is None else time.monotonic() + limit_s
    while True:
        left_s = SLICE_S if until is None else min(SLICE_S, until - time.monotonic())
        if event.wait(max(0, left_s)):
            return True
        if until is not None and time.monotonic() >= until:
            return False


def ending_of(*, finish_files: bool, drain: bool) -> Ending:
    """What a stop does at its end."""
    if drain:
        return Ending.END_OF_STREAM
    return Ending.FINISH_FILES if finish_files else Ending.CONTINUE


def timeout_seconds(timeout: Timeout | None) -> float | None:
    """A timeout in seconds.

    >>> timeout_seconds("1.5 minutes"), timeout_seconds(3), timeout_seconds(None)
    (90.0, 3, None)
    """
    if timeout is None:
        return None
    if isinstance(timeout, str | timedelta):
        return duration_us(timeout) / 1_000_000
    if not timeout >= 0:
        raise InvalidInputError("a timeout cannot be negative", found=timeout)
    return timeout


def _cancel(attempt: StopAttempt, reason: StopTimeoutError) -> bool:
    """Cancel, and return whether that succeeded."""
    try:
        attempt.cancel(reason)
    except StopTimeoutError as error:
        return error is reason
    return True
