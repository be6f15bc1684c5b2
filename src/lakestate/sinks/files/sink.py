"""`FileSink`: exactly-once files of any format that stay open across epochs.

A format says how rows become bytes; where files go, when they end and how they become visible is the
same for every format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, cached_property
from typing import ClassVar

import pyarrow as pa

from lakestate.config import StoreConfig, size_bytes
from lakestate.errors import InvalidInputError
from lakestate.protocol.values import Epoch
from lakestate.sinks.description import describe_sink
from lakestate.sinks.files.committer import FileCommitter, clear_earlier_attempts
from lakestate.sinks.files.destination import Destinations
from lakestate.sinks.files.local.attempts import Attempt, MadeBy
from lakestate.sinks.files.local.destinations import LocalDestinations
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.names import FileNaming, sink_fingerprint
from lakestate.sinks.files.open_files import open_files_table
from lakestate.sinks.files.owner_marks import claim_output, owner_marks
from lakestate.sinks.files.settings import FileSinkSettings
from lakestate.sinks.files.snapshots import LOCAL_FOLDER, STORE_FOLDER, SnapshotNaming
from lakestate.sinks.files.uploads import UploadDestinations
from lakestate.sinks.files.writer import PRE_COMMITS, FileSinkWriter
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.registry import resolve_file_format
from lakestate.sinks.formats.row_schema import without_columns
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.partitioning.partitioner import Partitioning
from lakestate.sinks.sink import EarlierAttempts, Sink, SinkCommitter, SinkContext, SinkWriter
from lakestate.sinks.text_options import option, parse_flag
from lakestate.storage import open_store
from lakestate.storage.local.object_files import root_of
from lakestate.storage.store import ObjectStore
from lakestate.tables.contract import Table
from lakestate.tables.global_keyed.table import GlobalKeyedTable


@dataclass(frozen=True, repr=False)
class FileSink(FileSinkSettings, Sink):
    """Writes files of some format below a URL, each visible exactly once and never before it is whole.

    The location is a URL or a local path. `format` is a `FileFormat`, or the name of a registered one
    with its default settings.

    >>> FileSink("file:///data/out", format="json").naming.extension
    'json'
    """

    can_replace_files: ClassVar[bool] = False
    """Whether one commit can take files away and add others, so that no reader sees both or neither."""

    url: str
    _: KW_ONLY
    format: FileFormat | str
    partition_by: Sequence[str | EventTime] = ()
    drop_event_time: bool = field(default=False, metadata=option("dropEventTime", parse_flag))
    shuffle_by_partition: bool = False
    """Rows of one partition go to one subtask, so that each partition has one open file in all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Resolved here: a name that was registered in this process may be unknown where the sink is sent.
        object.__setattr__(self, "format", resolve_file_format(self.format))
        FileNaming(self.prefix, self.suffix, self.file_format.extension)
        if self.roll.visible is not None and not self.can_replace_files:
            raise InvalidInputError(
                "readers of files would see rows twice while a large file takes the place of small ones",
                object_name=self.url,
                found=f"Roll(visible={str(self.roll.visible)!r})",
                expected="a table of an IcebergSink or a DeltaSink, in which one commit replaces them",
                action="write to a table, or use a shorter interval, or snapshot_open_files",
            )
        object.__setattr__(self, "url", StoreConfig(self.url, self.options or {}).url)

    def __repr__(self) -> str:
        return describe_sink(self, "url")

    @cached_property
    def file_format(self) -> FileFormat:
        """The format, for files of the size at which they are rolled."""
        return resolve_file_format(self.format).for_file_size(self.roll.bytes_max)

    def format_key(self, schema: pa.Schema) -> str:
        """What tells files of this schema and format from others: only those with the same key continue."""
        digest = hashlib.blake2b(schema.serialize().to_pybytes(), digest_size=8).hexdigest()
        return f"{self.file_format.kind}-{digest}"

    def tables(self) -> Sequence[Table]:
        """The open files, and what each epoch has to commit."""
        return file_sink_tables()

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        """Refuse rows that cannot be written, before anything starts."""
        self.partitioning.check(schema, event_time)
        if self.roll.past_watermark is not None and self.partitioning.event_time is None:
            raise InvalidInputError(
                "roll by watermark needs files that are partitioned by event time",
                object_name=self.url,
                action="add an EventTime to partition_by, or roll by interval",
            )
        rows = self.file_schema(schema, event_time)
        if not len(rows):
            raise InvalidInputError("no column is left to write", object_name=self.url, found=schema.names)
        self.file_format.check(rows)
        if self.snapshot_open_files:
            self._check_snapshots(rows)

    def _check_snapshots(self, rows: pa.Schema) -> None:
        writer = self.file_format.open_writer(rows, None)
        if not hasattr(writer, "trailing_bytes_for_checkpoint"):
            raise InvalidInputError(
                "the format cannot make a complete copy of a file that is open",
                object_name=self.url,
                found=f"{type(writer).__name__} without trailing_bytes_for_checkpoint",
                action="add that method to the writer, or leave out snapshot_open_files",
            )

    def writer(self, context: SinkContext) -> SinkWriter:
        """The writer of one subtask for one epoch."""
        return FileSinkWriter(self, context)

    def committer(self) -> SinkCommitter:
        """The committer, for the driver."""
        return FileCommitter(self.output)

    def clear_earlier_attempts(self, earlier: EarlierAttempts) -> None:
        """Remove hidden files of failed drivers. Uploads are never copied, and wait for clean-up."""
        if self._local_output is not None:
            clear_earlier_attempts(self._local_output, earlier)

    def has_failed_attempts(self, job_id: str, sink_id: str, state_id: str, newest: Epoch | None) -> bool:
        """Whether attempts of an epoch after the newest have left hidden files. Uploads do not count."""
        if self._local_output is None:
            return False
        fingerprint = sink_fingerprint(job_id, sink_id, state_id)
        made = (MadeBy.of(name, fingerprint) for name in self._local_output.hidden_files())
        return any(each is not None and each.epoch > (newest or 0) for each in made)

    def claim_output(self, owner: OutputOwner, claim: OutputClaim) -> None:
        """Leave the owner's mark in the output. Refuses an output that another owner has marked."""
        claim_output(owner_marks(self.output), owner, claim)

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
    def shuffled_partitioning(self) -> Partitioning | None:
        """The partitions, with `shuffle_by_partition`."""
        return self.partitioning if self.shuffle_by_partition else None

    @property
    def naming(self) -> FileNaming:
        """How files are named."""
        return FileNaming(self.prefix, self.suffix, self.file_format.extension)

    def file_schema(self, schema: pa.Schema, event_time: str | None) -> pa.Schema:
        """The columns in the files: without those in the path and, if it is dropped, the event time."""
        dropped = {*self.partitioning.columns}
        if self.drop_event_time and event_time is not None:
            dropped.add(event_time)
        return without_columns(schema, dropped)

    def destinations(self, attempt: Attempt, snapshots: SnapshotNaming | None = None) -> Destinations:
        """Where one attempt's bytes go, and copies of its open files if they are wanted."""
        if self._local_output is not None:
            return LocalDestinations(self._local_output, attempt, snapshots)
        return UploadDestinations(self.store, size_bytes(self.part_bytes), self.upload_threads, snapshots)

    def snapshot_naming(self, fingerprint: str, epoch: Epoch, subtask_index: int) -> SnapshotNaming | None:
        """How copies of open files are named; None if none are wanted."""
        if not self.snapshot_open_files:
            return None
        folder = LOCAL_FOLDER if self.is_local else STORE_FOLDER
        return SnapshotNaming(folder, fingerprint, epoch, subtask_index)

    @cached_property
    def store(self) -> ObjectStore:
        """The object store that files are written to."""
        return open_store(StoreConfig(self.url, self.options or {}, self.retry))

    @property
    def is_local(self) -> bool:
        """Whether files are written to a local directory."""
        return self.url.startswith("file://")

    @cached_property
    def _local_output(self) -> LocalOutput | None:
        return LocalOutput(root_of(self.url)) if self.is_local else None

    def __getstate__(self) -> dict[str, object]:
        """Without connections: each process opens its own."""
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


_OPENED = ("store", "_local_output", "file_format")
