"""Loads the code of a pipeline in a worker, and answers what kept it from loading.

The function is sent to workers by value and needs nothing but pyarrow and pyspark there: a worker may lack
this very package. It answers rather than fails: Spark would try a failed task again on another worker, and
one that has every module would hide one that has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from lakestate.spark.tasks.stage_task import StageCode

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER = "worker string, module string, problem string"
"""The columns of an answer; the last two are null if everything could be loaded."""


def load_task(codes: Iterable[StageCode]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that loads the code of stages, and yields one answer for a partition."""
    pickled = [code.data for code in codes]

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import platform
        import sys

        import pyarrow
        from pyspark import cloudpickle

        for _ in batches:
            module = problem = None
            try:
                for data in pickled:
                    cloudpickle.loads(data)
            except Exception as error:  # noqa: BLE001 - whatever it is, the driver tells it
                problem = f"{type(error).__name__}: {error}"
                module = error.name if isinstance(error, ImportError) else None
            worker = f"{platform.node()}, {sys.executable}"
            columns = {"worker": [worker], "module": [module], "problem": [problem]}
            yield pyarrow.record_batch(
                {name: pyarrow.array(value, pyarrow.string()) for name, value in columns.items()}
            )

    return load
