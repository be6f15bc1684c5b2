"""Hypothesis strategies for the values of the protocol."""

from __future__ import annotations

from hypothesis import strategies as st

from lakestate.protocol.key_ranges import ALL_KEYS, KEY_MAX, KeyRange
from lakestate.protocol.metadata import (
    Column,
    CompletionStatus,
    FormatVersion,
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
from lakestate.protocol.values import (
    EPOCH_MAX,
    GENERATION_MAX,
    Block,
    Epoch,
    FileRef,
    Generation,
    ObjectRef,
    TimeRange,
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=20)
BYTES = st.binary(max_size=20)
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,12}", fullmatch=True)
EPOCHS = st.integers(1, EPOCH_MAX).map(Epoch)
GENERATIONS = st.integers(1, GENERATION_MAX).map(Generation)
PATHS = st.builds("checkpoints/{}/operator-{}/{}-0-{}.parquet".format, EPOCHS, NAMES, NAMES, U64)
KEY_RANGES = st.tuples(U64, U64).map(lambda ends: KeyRange(min(ends), max(ends)))
FORMATS = st.builds(FormatVersion, st.just(1), U32)
OBJECT_REFS = st.builds(ObjectRef, PATHS, U64, U64)
BLOCKS = st.builds(Block, U64, U64, U64, KEY_RANGES, U64)
FILE_REFS = st.builds(
    FileRef,
    path=PATHS,
    size_bytes=U64,
    checksum=U64,
    row_count=U64,
    epoch=EPOCHS,
    generation=GENERATIONS,
    subtask_index=U32,
    state_version=U32,
    schema_fingerprint=U64,
    keys=st.none() | KEY_RANGES,
    times=st.none() | st.builds(TimeRange, I64, I64),
    removed_count=U64,
    valid_keys=st.sampled_from([ALL_KEYS, KeyRange(0, 0), KeyRange(KEY_MAX, KEY_MAX)]) | KEY_RANGES,
    valid_from_us=st.none() | I64,
    blocks=st.lists(BLOCKS, max_size=2).map(tuple),
    footer_checksum=U64,
)
COLUMNS = st.builds(Column, TEXT, st.sampled_from(["string", "bigint", "decimal(10,2)"]), st.booleans())


def _tuples(items: st.SearchStrategy[object], max_size: int = 2) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(items, max_size=max_size).map(tuple)


TABLE_CONFIGS = st.one_of(
    st.builds(
        TableConfig,
        name=NAMES,
        table_type=st.just(GLOBAL_KEYED),
        state_version=U32,
        description=TEXT,
        key_columns=_tuples(COLUMNS, 1),
        value_columns=_tuples(COLUMNS, 1),
        uses_two_phase_commit=st.booleans(),
    ),
    st.builds(
        TableConfig,
        name=NAMES,
        table_type=st.just(KEYED),
        state_version=U32,
        description=TEXT,
        key_columns=_tuples(COLUMNS),
        value_columns=_tuples(COLUMNS),
        routing_columns=_tuples(TEXT),
        ttl_us=st.none() | U64,
        time_column=st.none() | TEXT,
    ),
    st.builds(
        TableConfig,
        name=NAMES,
        table_type=st.just(TIME_KEY),
        state_version=U32,
        description=TEXT,
        key_columns=_tuples(COLUMNS),
        value_columns=_tuples(COLUMNS),
        routing_columns=_tuples(TEXT),
        time_column=st.none() | NAMES,
        retention_us=st.none() | U64,
    ),
)
FILES = _tuples(FILE_REFS)
TABLE_FILES = st.one_of(
    st.builds(TableFiles, NAMES, st.just(GLOBAL_KEYED), files=FILES, commit_data=st.none() | BYTES),
    st.builds(TableFiles, NAMES, st.just(KEYED), files=FILES),
    st.builds(TableFiles, NAMES, st.just(TIME_KEY), files=FILES, expired_before_us=st.none() | I64),
)
SUBTASKS = st.builds(
    SubtaskMetadata,
    job_id=st.just("job"),
    operator_id=NAMES,
    subtask_index=U32,
    parallelism=U32,
    epoch=EPOCHS,
    generation=GENERATIONS,
    attempt=TEXT,
    key_range=KEY_RANGES,
    started_ms=I64,
    finished_ms=I64,
    watermark_us=st.none() | I64,
    then_stop=st.booleans(),
    bytes_written=U64,
    configs=_tuples(TABLE_CONFIGS),
    tables=_tuples(TABLE_FILES),
    format=FORMATS,
)
SUBTASK_ENTRIES = st.builds(
    SubtaskEntry, U32, KEY_RANGES, OBJECT_REFS, st.builds(StateSummary, U64, U64, U64, U64), st.none() | I64
)
OPERATORS = st.builds(OperatorEntry, NAMES, U32, _tuples(SUBTASK_ENTRIES), st.none() | I64)
MANIFESTS = st.builds(
    Manifest,
    job_id=st.just("job"),
    epoch=EPOCHS,
    generation=GENERATIONS,
    parent=st.none() | EPOCHS,
    started_ms=I64,
    finished_ms=I64,
    min_epoch=EPOCHS,
    watermark_us=st.none() | I64,
    status=st.sampled_from(CompletionStatus),
    operators=_tuples(OPERATORS),
    sources=_tuples(st.builds(SourceOffsets, TEXT, TEXT, st.none() | I64)),
    sinks=_tuples(st.builds(SinkPreCommit, TEXT, BYTES)),
    engine_files=_tuples(st.builds(NamedBytes, st.sampled_from(["metadata", "offsets/7"]), BYTES)),
    state_id=TEXT,
    format=FORMATS,
)
