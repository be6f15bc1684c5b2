"""`KeyedTable`: one row per key, upserted and deleted, partitioned by key range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from lakestate.codec.table_codecs import KeyedCodec, TableCodec
from lakestate.config import duration_us
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.table_types import KEYED, TableType
from lakestate.protocol.values import Epoch
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.context import TableContext, expired_before_us
from lakestate.tables.contract import CompactedFiles
from lakestate.tables.keyed.view import KeyedView
from lakestate.tables.migration.migrations import Migration
from lakestate.tables.runs.checkpointer import RunCheckpointer
from lakestate.tables.runs.compaction import compact_runs
from lakestate.tables.runs.run_set import drop_expired_files, files_of_subtask
from lakestate.tables.runs.table import RunTable, check_timestamp


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long a row lives after it was written.

    By default it counts from the processing time of the epoch that wrote the row. With `column`, a
    timestamp among the value columns, it counts from that event time, against the watermark.

    >>> Ttl("1 hour").duration_us
    3600000000
    """

    duration: str
    column: str | None = None

    @property
    def duration_us(self) -> int:
        """The duration in microseconds."""
        return duration_us(self.duration)


class KeyedTable(RunTable):
    """A map from key columns to value columns.

    >>> totals = KeyedTable("totals", key="user string", value="n bigint, spend double")
    >>> [str(column) for column in totals.config.value_columns]
    ['n bigint', 'spend double']

    An operator reads and writes it through its view, `ctx.totals`: `get`, `contains`, `put`, `delete`,
    `scan` and more; see `lakestate.KeyedView`.

    With `ttl`, a row expires that long after it was written; see `Ttl`. `route_by` names the key columns
    that the pipeline routes by, where the table's key is finer.
    `version` and `migrations` say how state of older versions is read; see `lakestate.Migration`.
    `meanings` says what value columns hold, each in a word: those with a meaning may be added, removed and
    widened within a version. Rows of before then hold null.
    """

    table_type: ClassVar[TableType] = KEYED
    codec: ClassVar[TableCodec] = KeyedCodec()

    def __init__(
        self,
        name: str | None = None,
        *,
        key: str | pa.Schema,
        value: str | pa.Schema,
        route_by: Sequence[str] | None = None,
        ttl: Ttl | str | None = None,
        version: int = 1,
        migrations: Sequence[Migration] = (),
        description: str = "",
        meanings: Mapping[str, str] | None = None,
    ) -> None:
        values = columns_of(value, what="value")
        self._ttl = Ttl(ttl) if isinstance(ttl, str) else ttl
        if self._ttl is not None and self._ttl.column is not None:
            check_timestamp(
                values,
                self._ttl.column,
                "a time to live by event time needs a timestamp among the value columns",
            )
        super().__init__(
            name,
            key,
            values,
            route_by,
            version=version,
            migrations=migrations,
            description=description,
            meanings=meanings,
        )

    @cached_property
    def config(self) -> TableConfig:
        """The declaration as it is stored."""
        if self._ttl is None:
            return self._base_config()
        return replace(self._base_config(), time_column=self._ttl.column, ttl_us=self._ttl.duration_us)

    def open_view(self, files: TableFiles, context: TableContext) -> KeyedView:
        """The state that these files hold."""
        return KeyedView(self.layout, files, context, self.upgrade)

    def expired_before_us(self, files: TableFiles, context: TableContext) -> int | None:
        """The time before which rows have outlived their time to live."""
        return expired_before_us(self.config, context)

    def epoch_checkpointer(
        self, epoch: Epoch, previous: TableFiles, context: TableContext
    ) -> RunCheckpointer:
        """Writes new runs in front of those that are still needed."""
        kept = drop_expired_files(
            files_of_subtask(previous.files, context), expired_before_us(self.config, context), self._version
        )
        return RunCheckpointer(self.layout, epoch, replace(previous, files=kept), context)

    def compact_data(
        self, files: TableFiles, policy: CompactionPolicy, epoch: Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Merge neighbouring runs of similar size, dropping what is overwritten, removed or expired."""
        return compact_runs(
            self.layout,
            files,
            policy,
            epoch,
            context,
            upgrade=self.upgrade,
            expired_before_us=expired_before_us(self.config, context),
        )
