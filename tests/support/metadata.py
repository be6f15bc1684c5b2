"""A manifest and the metadata of a subtask with something in every field."""

from __future__ import annotations

from dataclasses import replace

from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange
from lakestate.protocol.metadata import (
    Column,
    Manifest,
    NamedBytes,
    OperatorEntry,
    SinkPreCommit,
    SourceOffsets,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableConfig,
    TableFiles,
)
from lakestate.protocol.table_types import GLOBAL_KEYED, KEYED, TIME_KEY
from lakestate.protocol.values import Block, Epoch, FileRef, Generation, ObjectRef, TimeRange

NAME = "store/job/object"
REF = ObjectRef("checkpoints/7/operator-op-0.metadata", 12, 34)
FILE = FileRef(
    path="checkpoints/7/operator-op/users-0-a1.parquet",
    size_bytes=100,
    checksum=5,
    row_count=9,
    epoch=Epoch(7),
    generation=Generation(2),
    subtask_index=0,
    state_version=1,
    schema_fingerprint=6,
    keys=KeyRange(1, 99),
    times=TimeRange(-5, 5),
    valid_keys=KeyRange(0, 50),
    blocks=(Block(0, 50, 4, KeyRange(1, 40), 8), Block(50, 50, 5, KeyRange(41, 99), 9)),
)
KEY, VALUE = Column("user", "string", nullable=False), Column("n", "bigint")
MANIFEST = Manifest(
    job_id="job",
    epoch=Epoch(7),
    generation=Generation(2),
    parent=Epoch(6),
    started_ms=1,
    finished_ms=2,
    min_epoch=Epoch(3),
    operators=(
        OperatorEntry(
            "op", 2, tuple(SubtaskEntry(n, ALL_KEYS, REF, StateSummary(1, 2, 3, 4)) for n in (0, 1))
        ),
    ),
    sources=(SourceOffsets("events", "{}", 5),),
    sinks=(SinkPreCommit("out", b"pending"),),
    engine_files=(NamedBytes("offsets/7", b"v1"),),
    state_id="4f1c",
)
SUBTASK = SubtaskMetadata(
    job_id="job",
    operator_id="op",
    subtask_index=0,
    parallelism=2,
    epoch=Epoch(7),
    generation=Generation(2),
    attempt="a1",
    key_range=KeyRange(0, 2**63 - 1),
    started_ms=1,
    finished_ms=2,
    configs=(
        TableConfig("names", GLOBAL_KEYED, key_columns=(KEY,), value_columns=(VALUE,)),
        TableConfig("users", KEYED, key_columns=(KEY,), value_columns=(VALUE,)),
        TableConfig("events", TIME_KEY, key_columns=(KEY,), value_columns=(VALUE,), time_column="ts"),
    ),
    tables=(
        TableFiles("names", GLOBAL_KEYED, (FILE,), commit_data=b"c"),
        TableFiles("users", KEYED, (FILE, replace(FILE, valid_keys=ALL_KEYS))),
        TableFiles("events", TIME_KEY, (FILE,), expired_before_us=4),
    ),
)
