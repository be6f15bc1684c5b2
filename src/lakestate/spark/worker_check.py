"""Whether Spark starts here, and whether its Python workers have what an operator needs."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

import lakestate


def try_workers() -> str:
    """Run one task in a Python worker, and say which versions it has.

    A session that is active is used and left as it is; otherwise a local one is started and stopped.
    """
    active = SparkSession.getActiveSession()
    session = active or SparkSession.builder.master("local[1]").appName("lakestate doctor").getOrCreate()
    try:
        (found,) = (
            session.range(1)
            .mapInArrow(_versions, "python string, pyarrow string, lakestate string")
            .collect()
        )
    finally:
        if active is None:
            session.stop()
    driver = f"pyspark {pyspark.__version__}"
    return f"{driver}; a worker has python {found[0]}, pyarrow {found[1]}, lakestate {found[2]}"


def _versions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import platform

    for _ in batches:
        names = {
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "lakestate": lakestate.__version__,
        }
        yield pa.RecordBatch.from_pylist([names])
