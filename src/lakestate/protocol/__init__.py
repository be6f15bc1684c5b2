"""Pure values and decisions of the epoch protocol: observed facts go in, a frozen decision comes out.

For every layer that does I/O: it reads the facts, asks here what to do, and carries out the answer.
Imports the standard library and `errors` only; no I/O, no clock, no randomness.

Decisions: `decide_recovery`, `decide_to_publish`, `decide_publication`, `next_boundary`,
`plan_retention`, `plan_compaction`, `plan_rescale` and `compatibility.compatibility`.
"""

from lakestate.protocol.compaction import CompactionPlan, CompactionPolicy, plan_compaction
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange, key_range_of, require_parallelism, subtask_of
from lakestate.protocol.metadata import Column, Manifest, SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.names import require_name
from lakestate.protocol.paths import ObjectKind, ObjectName, Paths, parse_object_name
from lakestate.protocol.publication import (
    Collected,
    CommitPermit,
    Fenced,
    MayPublish,
    Published,
    Superseded,
    decide_publication,
    decide_to_publish,
)
from lakestate.protocol.records import (
    BoundaryRecord,
    CommittedRecord,
    EpochRecord,
    GenerationRecord,
    Record,
    TagRecord,
)
from lakestate.protocol.resolve import (
    Damaged,
    ObservedEpoch,
    Refuse,
    ReplayCommit,
    Resolution,
    Resume,
    StartFresh,
    decide_recovery,
)
from lakestate.protocol.retention import (
    RetentionFacts,
    RetentionPlan,
    RetentionPolicy,
    RetentionRefused,
    next_boundary,
    plan_retention,
)
from lakestate.protocol.sealed_json import seal, unseal
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import Block, Epoch, FileRef, Generation, ObjectRef, TaskInfo, TimeRange
from lakestate.protocol.watermarks import job_watermark, source_watermark

__all__ = [
    "ALL_KEYS",
    "Block",
    "BoundaryRecord",
    "Collected",
    "Column",
    "CommitPermit",
    "CommittedRecord",
    "CompactionPlan",
    "CompactionPolicy",
    "Damaged",
    "Epoch",
    "EpochRecord",
    "Fenced",
    "FileRef",
    "Generation",
    "GenerationRecord",
    "KeyRange",
    "Manifest",
    "MayPublish",
    "ObjectKind",
    "ObjectName",
    "ObjectRef",
    "ObservedEpoch",
    "Paths",
    "Published",
    "Record",
    "Refuse",
    "ReplayCommit",
    "Resolution",
    "Resume",
    "RetentionFacts",
    "RetentionPlan",
    "RetentionPolicy",
    "RetentionRefused",
    "StartFresh",
    "SubtaskMetadata",
    "Superseded",
    "TableConfig",
    "TableFiles",
    "TableType",
    "TagRecord",
    "TaskInfo",
    "TimeRange",
    "decide_publication",
    "decide_recovery",
    "decide_to_publish",
    "job_watermark",
    "key_range_of",
    "next_boundary",
    "parse_object_name",
    "plan_compaction",
    "plan_retention",
    "require_name",
    "require_parallelism",
    "seal",
    "source_watermark",
    "subtask_of",
    "unseal",
]
