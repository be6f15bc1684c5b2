"""What runs inside Spark tasks: the subtasks of a stage, compaction, and how their errors reach the driver.

Python workers import this folder when they start, so it imports no other folder of `spark`.
"""

from lakestate.spark.tasks.compaction_task import MERGES, CompactionTask, MergesBySubtask
from lakestate.spark.tasks.stage_task import REPORT, Export, StageCode, StageTask
from lakestate.spark.tasks.task_errors import error_from_spark

__all__ = [
    "MERGES",
    "REPORT",
    "CompactionTask",
    "Export",
    "MergesBySubtask",
    "StageCode",
    "StageTask",
    "error_from_spark",
]
