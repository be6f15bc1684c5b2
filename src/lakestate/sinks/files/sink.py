"""What all file sinks share: settings, state tables, writers and the committer.

A subclass says how rows become bytes; where files go, when they end and how they become visible is
the same for every format.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, cached_property

import pyarrow as pa

from lakestate.config import RetryPolicy, StoreConfig, size_bytes
from lakestate.errors import InvalidInputError
from lakestate.sinks.files.committer import FileCommitter
from lakestate.sinks.files.destination import BatchBufferingWriter, Destinations
from lakestate.sinks.files.local_output import LocalOutput
from lakestate.sinks.files.names import FileNaming
from lakestate.sinks.files.open_files import open_files_table
from lakestate.sinks.files.uploads import UploadDestinations
from lakestate.sinks.files.writer import PRE_COMMITS, FileSinkWriter
from lakestate.sinks.files.writer_state import WriterState
from lakestate.sinks.formats.parquet.local_writer import LocalDestinations
from lakestate.sinks.formats.row_schema import without_columns
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.partitioning.partitioner import Partitioning
from lakestate.sinks.rolling import Roll
from lakestate.sinks.sink import Sink, SinkCommitter, SinkContext, SinkWriter
from lakestate.storage import open_store
from lakestate.storage.local.object_files import root_of
from lakestate.storage.store import ObjectStore
from lakestate.tables.contract import Table
from lakestate.tables.global_keyed.table import GlobalKeyedTable

PART_BYTES_DEFAULT = "8 MiB"


@dataclass(frozen=True)
class FileSink(Sink):
    """A sink that writes files below a URL."""

    url: str
    _: KW_ONLY
    partition_by: Sequence[str | EventTime] = ()
    roll: Roll = field(default_factory=Roll)
    options: Mapping[str, str] | None = field(default=None, repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """How long the object store is tried when it does not answer."""
    prefix: str = "part"
    suffix: str = ""
    drop_event_time: bool = False
    open_files_max: int = 128
    part_bytes: int | str = PART_BYTES_DEFAULT
    upload_threads: int = 4
    """Parts that a subtask puts at the same time; with 0 none is put in the background."""
    shuffle_by_partition: bool = False
    """Rows of one partition go to one subtask, so that each partition has one open file in all."""

    def __post_init__(self) -> None:
        FileNaming(self.prefix, self.suffix, self.extension)
        StoreConfig(self.url, self.options or {})
        if self.open_files_max < 1 or self.upload_threads < 0 or size_bytes(self.part_bytes) < 1:
            raise InvalidInputError(
                "not settings of a file sink",
                found=f"open_files_max={self.open_files_max}, upload_threads={self.upload_threads}, "
                f"part_bytes={self.part_bytes}",
                expected="at least one open file and one byte per part, and no fewer than 0 threads",
            )

    @property
    @abstractmethod
    def extension(self) -> str:
        """What file names end with."""

    @abstractmethod
    def format_of(self, schema: pa.Schema) -> str:
        """What tells files of this schema and these settings from others."""

    @abstractmethod
    def check_rows(self, schema: pa.Schema) -> None:
        """Refuse columns that the format cannot hold."""

    @abstractmethod
    def new_file(self, schema: pa.Schema) -> BatchBufferingWriter:
        """A writer of a new file."""

    @abstractmethod
    def resume_file(self, schema: pa.Schema, state: WriterState) -> BatchBufferingWriter:
        """A writer of a file that goes on."""

    def tables(self) -> Sequence[Table]:
        """The open files, and what each epoch has to commit."""
        return file_sink_tables()

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows that cannot be written so, before anything starts."""
        self.partitioning.check(schema, event_time)
        if self.roll.past_watermark is not None and self.partitioning.event_time is None:
            raise InvalidInputError(
                "files are to be finished by the watermark, but are not partitioned by event time",
                object_name=self.url,
                action="add an EventTime to partition_by, or roll by interval",
            )
        rows = self.file_schema(schema, event_time)
        if not len(rows):
            raise InvalidInputError("no column is left to write", object_name=self.url, found=schema.names)
        self.check_rows(rows)

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch."""
        return FileSinkWriter(self, context)

    def committer(self) -> SinkCommitter:
        """The committer, for the driver."""
        return FileCommitter(None if self._is_local else self.store, self._local_output)

    def file_sink(self) -> FileSink:
        """This one."""
        return self

    @property
    def output(self) -> ObjectStore | LocalOutput:
        """Where the files are, finished or not."""
        return self.store if self._local_output is None else self._local_output

    @property
    def partitioning(self) -> Partitioning:
        """Which directory each row goes to."""
        return Partitioning(tuple(self.partition_by))

    @property
    def naming(self) -> FileNaming:
        """How files are called."""
        return FileNaming(self.prefix, self.suffix, self.extension)

    def file_schema(self, schema: pa.Schema, event_time: str | None) -> pa.Schema:
        """The columns in the files: without those in the path, and without the event time if asked."""
        dropped = {*self.partitioning.columns}
        if self.drop_event_time and event_time is not None:
            dropped.add(event_time)
        return without_columns(schema, dropped)

    def destinations(self, attempt: str) -> Destinations:
        """Where one attempt's bytes go."""
        if self._local_output is not None:
            return LocalDestinations(self._local_output, attempt)
        return UploadDestinations(self.store, size_bytes(self.part_bytes), self.upload_threads, attempt)

    @cached_property
    def store(self) -> ObjectStore:
        """The object store that files are written to."""
        return open_store(StoreConfig(self.url, self.options or {}, self.retry))

    @property
    def _is_local(self) -> bool:
        return self.url.startswith("file://")

    @cached_property
    def _local_output(self) -> LocalOutput | None:
        return LocalOutput(root_of(self.url)) if self._is_local else None

    def __getstate__(self) -> dict[str, object]:
        """Without what is open: each process opens its own."""
        return {name: value for name, value in self.__dict__.items() if name not in _OPENED}


@cache
def file_sink_tables() -> Sequence[Table]:
    """The state of every sink that writes files."""
    return (
        open_files_table(),
        GlobalKeyedTable(
            PRE_COMMITS,
            key=str,
            value=str,
            two_phase_commit=True,
            description="always empty: it carries what an epoch has to commit",
        ),
    )


_OPENED = ("store", "_local_output")
