"""`ArrowBatches`: how many rows Spark hands to Python at once, decided by the epoch before.

Spark adds up the bytes of all columns after each row, to end a batch at 64 MB: a third of the processor time
in which it hands rows to Python. If the rows of the last epoch were narrow, a batch is ended by the number of
its rows instead. It is so small that rows may become a hundred times as wide before a batch is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakestate.coordinator.epoch_plan import SubtaskReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"

RECORDS_MAX = 131_072
BATCH_BYTES = 4 * 1024 * 1024
"""At most about the size of a batch whose end is decided by the number of its rows."""
NARROW_BYTES = 4096
"""Rows wider than this are counted byte by byte, as Spark does: copying them takes longer than that."""
_NOT_COUNTED = str(2**31 - 1)
"""The limit with which Spark does not count."""


def records_per_batch(row_bytes: float) -> int | None:
    """Rows of a batch whose bytes need not be counted, or None if they have to be.

    A power of two, so that it rarely changes.

    >>> records_per_batch(10.0), records_per_batch(1000.0), records_per_batch(100_000.0)
    (131072, 4096, None)
    """
    if not 0 < row_bytes <= NARROW_BYTES:
        return None
    return min(RECORDS_MAX, 1 << (int(BATCH_BYTES / row_bytes).bit_length() - 1))


class ArrowBatches:
    """What the last epoch with rows says about the batches of the next."""

    def __init__(self) -> None:
        self._records: int | None = None
        self._applied: int | None = None
        self._may_apply = False

    def begin(self, session: SparkSession) -> None:
        """A query begins, with a session of its own. A limit that you have set stays, as does having none."""
        self._applied = None
        # Spark before 4.1 knows no limit of bytes.
        self._may_apply = session.conf.isModifiable(BYTES) and session.conf.get(BYTES, None) is None

    def learn(self, reports: Sequence[SubtaskReport]) -> None:
        """Decide for the next epoch by the widest rows of this one. An epoch without rows changes nothing."""
        row_bytes = max((report.row_bytes for report in reports), default=0.0)
        if row_bytes:
            self._records = records_per_batch(row_bytes)

    def apply(self, session: SparkSession) -> None:
        """Tell the session of the query what it does not know yet."""
        if not self._may_apply or self._applied == self._records:
            return
        session.conf.set(RECORDS, str(self._records or RECORDS_MAX))
        if self._records is None:
            session.conf.unset(BYTES)
        else:
            session.conf.set(BYTES, _NOT_COUNTED)
        self._applied = self._records
