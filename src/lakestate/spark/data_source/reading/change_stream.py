"""`spark.readStream.format("lakestate")`: the changes of a state table, epoch by epoch, exactly once.

An offset is plain JSON, `{"epoch": 12}`: the last epoch that was read. Reading a range of epochs again gives
the same rows, so Spark's own log of offsets makes it exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakestate.spark.data_source.reading.options import ReadOptions
from lakestate.spark.data_source.reading.plan import (
    RowsOfPart,
    checkpoint_of,
    history_of,
    plan_changes_between,
)
from lakestate.spark.data_source.reading.reader_tag import ReaderTags
from lakestate.spark.versions.data_sources import (
    DataSourceStreamReader,
    InputPartition,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
    require_read_limits,
)

_OFFSET = "epoch"


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans epochs on the driver, and compares them in tasks."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        require_read_limits(
            'readStream.format("lakestate")',
            'read the changes with spark.read.format("lakestate"), or with ls.open(…)',
        )
        self._options = options
        self._schema = schema
        self._job = checkpoint_of(options).job(options.table_names()[0])
        self._last: int | None = None
        """With `availableNow`, the last epoch to read."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first epoch to read: without `startEpoch`, all rows come first, as inserts."""
        return {_OFFSET: (self._options.start_epoch or 1) - 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The epochs of one micro-batch."""
        return ReadMaxFiles(self._options.epochs_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the epoch that is the newest now."""
        self._last = self._newest()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where the next micro-batch ends."""
        begin = start[_OFFSET]
        last = self._newest() if self._last is None else self._last
        following = [epoch for epoch in self._job.open_epochs() if begin < epoch <= last]
        if not following:
            return start
        if self._begins_with_all_rows(begin):
            # All rows at once. Earlier epochs would only be read to be overwritten.
            return {_OFFSET: int(following[-1])}
        count = limit.max_files if isinstance(limit, ReadMaxFiles) else len(following)
        return {_OFFSET: int(following[min(count, len(following)) - 1])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The key ranges that differ, for each epoch."""
        begin, last = start[_OFFSET], end[_OFFSET]
        if last <= begin:
            return []
        epochs, first = self._job.open_epochs(), None
        if self._begins_with_all_rows(begin):
            epochs = [epoch for epoch in epochs if epoch >= last]
        else:
            first = begin + 1
        if self._tags is not None:
            self._tags.keep(last)
        where = dict(self._options.where or {})
        return [*plan_changes_between(history_of(self._options), epochs, first, last, where)]

    def _begins_with_all_rows(self, begin: int) -> bool:
        return not begin and self._options.start_epoch is None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one partition."""
        assert isinstance(partition, RowsOfPart)
        return partition.batches(dict(self._options.where or {}), self._schema)

    def commit(self, end: dict[str, int]) -> None:
        """Release the epochs before the last one that was read."""
        if self._tags is not None:
            self._tags.release_before(end[_OFFSET])

    @property
    def _tags(self) -> ReaderTags | None:
        reader = self._options.reader
        return None if reader is None else ReaderTags(self._options, reader)

    def _newest(self) -> int:
        return int(max(self._job.open_epochs(), default=0))
