"""What a person decides on: repair a damaged job, continue from an earlier epoch, fork a job, merge files.

`lakestate.repair` is public. May import `runtime`, `sinks`, `coordinator` and everything below; none of it
knows Spark. Nothing here happens by itself, nothing is deleted, and every repair can be repeated.
"""

from lakestate.repair.compacting import CompactedJob, PlannedMerge, compact_job, plan_job_compaction
from lakestate.repair.fence import RebuiltFence, rebuild_fence
from lakestate.repair.forking import Fork, fork, preview_fork
from lakestate.repair.going_back import GoneBack, go_back, preview_going_back
from lakestate.repair.later_output import LaterOutput, OtherCommit
from lakestate.repair.setting_aside import AsideObject, list_set_aside, object_versions, put_back, set_aside

__all__ = [
    "AsideObject",
    "CompactedJob",
    "Fork",
    "GoneBack",
    "LaterOutput",
    "OtherCommit",
    "PlannedMerge",
    "RebuiltFence",
    "compact_job",
    "fork",
    "go_back",
    "list_set_aside",
    "object_versions",
    "plan_job_compaction",
    "preview_fork",
    "preview_going_back",
    "put_back",
    "rebuild_fence",
    "set_aside",
]
