"""A driver in a process of its own, which delivers an epoch to Kafka and is killed on its way.

Usage: kafka_process.py servers topic checkpoint moment number
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow as pa

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.sinks.kafka.sink import KafkaSink
from lakestate.sinks.kafka.transactions import TransactionWriter
from lakestate.testing.sink_harness import SinkHarness

SCHEMA = pa.schema([("n", pa.int64())])


def harness(servers: str, topic: str, checkpoint: str, parallelism: int = 2) -> SinkHarness:
    """The job, as every process runs it."""
    sink = KafkaSink(servers, topic, key=["n"])
    return SinkHarness(
        sink, SCHEMA, parallelism=parallelism, backend=ParquetBackend(checkpoint, cache_bytes=0)
    )


def kill_at(moment: str) -> None:
    """Kill this process when it comes to a moment of a delivery."""
    real = TransactionWriter._commit

    def commit(writer: TransactionWriter, epoch: Any) -> None:
        if moment == "produced":
            os.kill(os.getpid(), signal.SIGKILL)
        real(writer, epoch)
        if moment == "committed":
            os.kill(os.getpid(), signal.SIGKILL)

    TransactionWriter._commit = commit  # type: ignore[method-assign]


if __name__ == "__main__":
    servers, topic, checkpoint, moment, number = sys.argv[1:]
    kill_at(moment)
    first = int(number)
    harness(servers, topic, checkpoint).epoch([{"n": first}], [{"n": first + 1}])
