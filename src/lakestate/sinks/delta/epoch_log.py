"""The table as the record of a sink's epochs, and how one more gets into it exactly once.

Before every try the table is read again to see whether it holds the epoch. A commit succeeds only on the
table as it was read: deltalake's own retries, which do not look for the epoch, are off. Afterwards the
entry is looked for again: a store that ignores conditions of puts would let another writer replace it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from lakestate.errors import (
    ConflictError,
    CorruptionError,
    IncompatibleStateError,
    LakestateError,
    OutcomeUnknownError,
)
from lakestate.sinks.delta.library import delta_error, is_refusal, reason
from lakestate.sinks.delta.progress import EpochEntry
from lakestate.sinks.delta.table import TableReader
from lakestate.sinks.table_format.epoch_files import CommitStatus

if TYPE_CHECKING:
    from lakestate.sinks.delta.sink import DeltaSink

_WAIT_FIRST_S = 0.02
_WAIT_MAX_S = 2.0

Commit = Callable[[CommitProperties], None]
"""Tries a commit once, on the table as it was read."""

Prepare = Callable[[DeltaTable], Commit]
"""Makes everything ready for a commit to the table as it is now, or refuses the table."""


class EpochLog:
    """The table, kept between the commits of a driver."""

    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink
        self._reader = TableReader(sink.store_config, sink.file_sink().store, sink.load_table)

    def read(self) -> DeltaTable:
        """The table as it is now."""
        return self._reader.read()

    def commit(self, entry: EpochEntry, is_past: Callable[[], bool], prepare: Prepare) -> None:
        """Commit an epoch, unless the table holds it. `is_past` tells whether it held it once."""
        failure: Exception | None = None
        for attempt in range(self._sink.commit_attempts_max):
            table = self.read()
            if self._holds(table, entry, is_past):
                return
            commit = prepare(table)
            started_s = time.monotonic()
            try:
                commit(_properties(entry))
            except Exception as cause:  # noqa: BLE001 - deltalake raises Exception itself
                if is_refusal(cause):
                    raise delta_error(cause, self._sink.store_config) from None
                failure = cause
                _wait_after(attempt, started_s)
                continue
            if not self._holds(self._reader.read_on(), entry, is_past):
                raise _lost_commit_error(self._sink.url, entry)
            return
        if not self._holds(self.read(), entry, is_past):
            raise self._failure(entry, failure)

    def _holds(self, table: DeltaTable, entry: EpochEntry, is_past: Callable[[], bool]) -> bool:
        status = entry.commit_status(table.transaction_version).settle(is_past)
        if status is CommitStatus.OTHER_CONTENT:
            raise _other_job_error(self._sink.url, entry, table)
        return status is CommitStatus.DONE

    def _failure(self, entry: EpochEntry, cause: Exception | None) -> LakestateError:
        kind = ConflictError if isinstance(cause, CommitFailedError) else OutcomeUnknownError
        return kind(
            f"epoch {entry.epoch} could not be committed to a Delta table",
            object_name=self._sink.url,
            found=None if cause is None else reason(cause, self._sink.store_config),
            expected=f"success in one of {self._sink.commit_attempts_max} tries",
            action="nothing is lost: the next start commits the epoch again",
        )


def _properties(entry: EpochEntry) -> CommitProperties:
    return CommitProperties(
        # A commit is tried once, on the table as it was read.
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, number) for app_id, number in entry.entries().items()],
        custom_metadata={
            "lakestate.job-id": entry.job_id,
            "lakestate.sink": entry.fingerprint,
            "lakestate.epoch": str(int(entry.epoch)),
        },
    )


def _other_job_error(url: str, entry: EpochEntry, table: DeltaTable) -> IncompatibleStateError:
    return IncompatibleStateError(
        f"the table holds epochs of another run of the job {entry.job_id}",
        object_name=f"{url}, transaction {entry.app_id}",
        found=f"epoch {table.transaction_version(entry.app_id)}, and not the rows of epoch {entry.epoch}",
        action="find out who else uses a copy of the checkpoint; give this job a new checkpoint or table",
    )


def _lost_commit_error(url: str, entry: EpochEntry) -> CorruptionError:
    return CorruptionError(
        f"the commit of epoch {entry.epoch} was replaced by another writer",
        object_name=f"{url}, transaction {entry.app_id}",
        action="use a store that honours conditional puts, and no writer of the table that ignores them; "
        "the next start commits the epoch again",
    )


def _wait_after(attempt: int, started_s: float) -> None:
    """Wait longer after each failure, for a random time, so that writers that met once spread out."""
    longest = min(_WAIT_MAX_S, _WAIT_FIRST_S * 2**attempt)
    wanted = longest * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
    time.sleep(max(0.0, wanted - (time.monotonic() - started_s)))
