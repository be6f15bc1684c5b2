"""What is reported about a running job: progress of epochs, events of files, metrics, the terminal line.

May import `protocol` and `errors` only, so that every layer that does work can report it.
"""

from lakestate.observability.file_events import FileEvent, FileEventKind, OutputFiles
from lakestate.observability.listeners import FileListener, Listener, check_listeners, tell_epoch, tell_files
from lakestate.observability.progress import EpochListener, EpochProgress, StepMetrics
from lakestate.observability.progress_line import ProgressLine
from lakestate.observability.prometheus import PrometheusMetrics

__all__ = [
    "EpochListener",
    "EpochProgress",
    "FileEvent",
    "FileEventKind",
    "FileListener",
    "Listener",
    "OutputFiles",
    "ProgressLine",
    "PrometheusMetrics",
    "StepMetrics",
    "check_listeners",
    "tell_epoch",
    "tell_files",
]
