"""Spark's Python daemon with everything a subtask needs already imported, so that workers start at once.

Spark forks its Python workers from a daemon, and each worker imports what its task needs: about a second
of processor time for Arrow, pandas and this package, at every start of a worker and after every failed
task. With `spark.python.daemon.module=lakestate.spark.python_daemon` the daemon imports it once and the
workers share it. Nothing else differs.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

IMPORTED = (
    "pyspark.worker",
    "pandas",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "lakestate.coordinator.parquet_backend",
    "lakestate.public_names",
    "lakestate.runtime.sink_step",
    "lakestate.sinks.files.local.writer",
    "lakestate.sinks.formats.json_lines.sink",
    "lakestate.sinks.formats.parquet.local_writer",
    "lakestate.sinks.formats.parquet.sink",
    "lakestate.spark.tasks.stage_task",
    "lakestate.storage.local.store",
    "lakestate.storage.multipart.local",
    "lakestate.tables.global_keyed.table",
    "lakestate.tables.keyed.table",
    "lakestate.tables.time_key.table",
)

if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    # Workers collect garbage after every task. Frozen objects are not visited again, so their memory
    # stays shared.
    gc.collect()
    gc.freeze()
    manager()
