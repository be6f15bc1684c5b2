"""The engine's query in one driver: how far it has read, in numbers of its own, as Spark's query keeps it.

It is launched with the files of a manifest and with nothing else. If an epoch stores other files than it
should, or a batch becomes another epoch than the next, rows are lost or read twice after a restart.
"""

from __future__ import annotations

from lakestate.codec.engine_files import OffsetLog, SparkFiles
from lakestate.coordinator.engine.batches import BatchNumbers, EngineFiles
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch

_QUERY_ID = "8d1f2a8e-6f6e-4a55-9a39-5b1f64a3b2c1"
_METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


class SimulatedQuery:
    """Reads the rows of the job, batch by batch."""

    def __init__(self) -> None:
        self._read: OffsetLog | None = None
        self.batch_id = 0
        self.numbers = BatchNumbers()

    @property
    def position(self) -> int:
        """How many rows it has read."""
        return 0 if self._read is None else int(self._read.sources[0])

    @property
    def epoch(self) -> Epoch:
        """What the next batch becomes."""
        return self.numbers.epoch_of(self.batch_id)

    def launch(self, newest: Manifest | None) -> None:
        """Begin after the newest epoch, with what its manifest holds."""
        self.numbers = BatchNumbers.after(newest)
        self.batch_id, self._read = 0, None
        if newest is not None and newest.engine_files:
            self.batch_id = newest.epoch.batch_id + 1
            self._read = SparkFiles.parse(newest.engine_files, newest.epoch).offsets

    def files(self, epoch: Epoch, stop: int) -> EngineFiles:
        """What the epoch of the next batch stores, if the batch reads so many rows."""
        files = SparkFiles(Epoch.of_batch(self.batch_id), _QUERY_ID, _offsets(stop), self._read, ())
        return EngineFiles(files.renumber(epoch).encode())

    def finish_batch(self, stop: int) -> None:
        """The epoch of the batch is published."""
        self.batch_id += 1
        self._read = _offsets(stop)

    def skip_epoch(self) -> None:
        """An epoch without a batch is published."""
        self.numbers = self.numbers.skip_epoch()


def _offsets(stop: int) -> OffsetLog:
    return OffsetLog("v1", _METADATA, (str(stop),))
