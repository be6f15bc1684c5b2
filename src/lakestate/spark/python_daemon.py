"""Spark's Python daemon with everything imported that a subtask needs, so that workers start at once.

Spark forks its Python workers from a daemon, and each of them imports what its task needs: about a
second of processor time for Arrow, pandas and this package, at every start of a worker and after every
task that failed. Started with `spark.python.daemon.module=lakestate.spark.python_daemon`, the daemon
imports it once, and the workers share it. Nothing else is different.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

IMPORTED = ("pyspark.worker", "pandas", "pyarrow.parquet", "lakestate.spark.tasks.stage_task")

if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    # Workers collect garbage after every task: what is here now need not be looked through again,
    # and its memory stays shared.
    gc.collect()
    gc.freeze()
    manager()
