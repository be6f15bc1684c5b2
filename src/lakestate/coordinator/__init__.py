"""The driver's workflows around the pure decisions: claim, recover, publish, commit, retain, compact.

Each one reads facts, lets `protocol` decide, and carries out the decision. `JobDriver` runs the epochs of
a job with them, and `ParquetBackend` offers them to programs without a driver. May import `tables`, `job`
and everything below; none of it knows Spark.
"""

from lakestate.coordinator.claim import check_fence, claim_generation
from lakestate.coordinator.commit import Committer, commit_epoch
from lakestate.coordinator.compact import (
    CompactedOperator,
    compact_operator,
    compact_replicated,
    compact_subtask,
)
from lakestate.coordinator.epoch_plan import (
    Ending,
    EpochPlan,
    EpochResult,
    Merges,
    SubtaskMerges,
    SubtaskReport,
    decode_commit_parts,
    decode_merges,
    decode_pre_commits,
    encode_merges,
)
from lakestate.coordinator.epoch_planner import EpochPlanner, next_epoch
from lakestate.coordinator.epoch_progress import AlreadyPublished, EpochFinished, StartAgain
from lakestate.coordinator.job_driver import DriverSettings, JobDriver, SupersededAttemptError
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.publish import publish_epoch
from lakestate.coordinator.recover import RecoveredEpoch, recover_job
from lakestate.coordinator.retention.retain import read_references, retain_epochs
from lakestate.coordinator.retention.tags import create_tag, delete_tag

__all__ = [
    "AlreadyPublished",
    "Committer",
    "CompactedOperator",
    "DriverSettings",
    "Ending",
    "EpochFinished",
    "EpochPlan",
    "EpochPlanner",
    "EpochResult",
    "JobDriver",
    "Merges",
    "ParquetBackend",
    "RecoveredEpoch",
    "StartAgain",
    "SubtaskMerges",
    "SubtaskReport",
    "SupersededAttemptError",
    "check_fence",
    "claim_generation",
    "commit_epoch",
    "compact_operator",
    "compact_replicated",
    "compact_subtask",
    "create_tag",
    "decode_commit_parts",
    "decode_merges",
    "decode_pre_commits",
    "delete_tag",
    "encode_merges",
    "next_epoch",
    "publish_epoch",
    "read_references",
    "recover_job",
    "retain_epochs",
]
