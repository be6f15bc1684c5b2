"""How Spark writes the small logs of a query to its own directory: offsets, commits, files that it has read.

On a local disk it starts about 30 processes (`readlink`, `chmod`) for that in every batch. In a small epoch
this takes longer than the rows do. With another class of its own, which it uses for stores that lack an
interface of Hadoop's, it starts 7. The directory of a pipeline is made anew at every start, so it need not
outlive the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CLASSES = (
    # From Spark 4.1 on, and before.
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)
_INITIALISING = "Initializing"
"""How the status of a query begins until its sources are there."""
_INITIALISED_WITHIN_S = 10.0


@contextmanager
def use_quick_logs(session: SparkSession) -> Iterator[None]:
    """Queries that are launched inside write their logs so. A setting of yours stays as it is."""
    quick = _quick_manager(session) if session.conf.get(FILE_MANAGER, None) is None else None
    if quick is None:
        yield
        return
    session.conf.set(FILE_MANAGER, quick)
    try:
        yield
    finally:
        session.conf.unset(FILE_MANAGER)


def wait_for_sources(query: StreamingQuery) -> None:
    """Wait until a query has created its sources, and the logs that these write."""
    deadline = time.monotonic() + _INITIALISED_WITHIN_S
    while query.isActive and time.monotonic() < deadline:
        if not str(query.status["message"]).startswith(_INITIALISING):
            return
        time.sleep(0.005)


def _quick_manager(session: SparkSession) -> str | None:
    """The class of the quick one, or None if this Spark has none under a name that we know."""
    java = session._jvm
    if java is None:
        return None
    for name in _CLASSES:
        try:
            java.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
        except Py4JError:
            continue
        return name
    return None
