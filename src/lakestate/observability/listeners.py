"""Who is told what a job does: objects with `on_epoch`, `on_file_event`, or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from lakestate.config import require_instance
from lakestate.errors import InvalidInputError
from lakestate.observability.file_events import FileEvent
from lakestate.observability.progress import EpochListener, EpochProgress


@runtime_checkable
class FileListener(Protocol):
    """Called on the driver for everything that happens to output files of published epochs."""

    def on_file_event(self, event: FileEvent) -> None:
        """A file was opened, rolled, finished or committed. An exception raised here stops the job.

        Events of an epoch come when it is published, and those of its committed files when they are
        visible. The latter come again after a crash that left open whether the commit had ended.
        """
        ...


Listener: TypeAlias = EpochListener | FileListener


def check_listeners(listeners: Sequence[object]) -> None:
    """Refuse an object that would never be called."""
    for listener in listeners:
        if isinstance(listener, type):
            require_instance("a listener", listener, object)
        if not isinstance(listener, EpochListener | FileListener):
            raise InvalidInputError(
                "not a listener",
                found=type(listener).__name__,
                expected="an object with a method on_epoch or on_file_event",
            )


def tell_epoch(listeners: Sequence[Listener], progress: EpochProgress) -> None:
    """Call every listener of epochs."""
    for listener in listeners:
        if isinstance(listener, EpochListener):
            listener.on_epoch(progress)


def tell_files(listeners: Sequence[Listener], events: Sequence[FileEvent]) -> None:
    """Call every listener of files, for one event after the other."""
    interested = [each for each in listeners if isinstance(each, FileListener)]
    for event in events if interested else ():
        for listener in interested:
            listener.on_file_event(event)
