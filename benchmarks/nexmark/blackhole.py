"""A sink that forgets what it takes. Python workers import it, so it imports little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakestate.row_kind import RowKind
from lakestate.sinks.sink import Sink, SinkContext
from lakestate.tables.contract import Table


class Blackhole(Sink):
    """Takes rows and forgets them, like `noop` of Spark and `blackhole` of Flink."""

    takes = (RowKind.APPEND, RowKind.UPSERT, RowKind.CHANGES)

    def tables(self) -> Sequence[Table]:
        return ()

    def check(self, schema: pa.Schema, event_time: str | None = None) -> None:
        return

    def writer(self, context: SinkContext) -> _Forgets:
        return _Forgets()

    def committer(self) -> _Forgets:
        return _Forgets()


class _Forgets:
    """Both the writer and the committer of a blackhole."""

    def write(self, batch: pa.RecordBatch) -> None:
        return

    def finish(self, *, finish_files: bool) -> None:
        return

    def abandon(self) -> None:
        return

    def commit(self, permit: Any, pre_commits: Sequence[bytes]) -> None:
        return

    def clean_up(self, job_id: str, epoch: Any, pre_commits: Sequence[bytes]) -> None:
        return
