"""Reading jobs, epochs and state tables, without the code that declared them: nothing is written or cached.

`open` leads from a checkpoint URL to the rows of a table. It may import everything below `runtime/`; it
stands beside `verification/`, and neither knows the other. Other layers use the names below.
"""

from lakestate.inspection.changes import KeyVersion, StateChanges, TableHistory
from lakestate.inspection.checkpoint import Checkpoint, JobInfo, open  # noqa: A004
from lakestate.inspection.epoch_info import EpochInfo
from lakestate.inspection.epoch_state import EpochState, FileInfo, OperatorInfo
from lakestate.inspection.job_state import EpochLike, JobState
from lakestate.inspection.listing import Listing
from lakestate.inspection.row_filter import Where
from lakestate.inspection.state import StateSource, read_state
from lakestate.inspection.state_table import StateTable, TableInfo

__all__ = [
    "Checkpoint",
    "EpochInfo",
    "EpochLike",
    "EpochState",
    "FileInfo",
    "JobInfo",
    "JobState",
    "KeyVersion",
    "Listing",
    "OperatorInfo",
    "StateChanges",
    "StateSource",
    "StateTable",
    "TableHistory",
    "TableInfo",
    "Where",
    "open",
    "read_state",
]
