"""What is reported about a running job: progress of epochs, Prometheus metrics, the terminal line.

May import `protocol` and `errors` only, so that every layer that does work can report it.
"""

from lakestate.observability.progress import EpochListener, EpochProgress, StepMetrics
from lakestate.observability.progress_line import ProgressLine
from lakestate.observability.prometheus import PrometheusMetrics

__all__ = ["EpochListener", "EpochProgress", "ProgressLine", "PrometheusMetrics", "StepMetrics"]
