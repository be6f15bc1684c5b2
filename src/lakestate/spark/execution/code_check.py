"""Whether the workers can load the code of a pipeline, found out before the job is claimed.

Costs one Spark job at a start: about 0.1 seconds once Python workers run. It also imports what the first
epoch needs.
"""

from __future__ import annotations

import pickletools
import sys
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakestate.spark.execution.compile import CompiledPipeline
from lakestate.spark.tasks.load_task import ANSWER, load_task
from lakestate.spark.tasks.task_errors import error_from_spark, loading_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_MAX = 64
"""Enough to meet every kind of worker, and few enough that a large cluster has no part in it."""

_LOADED: set[tuple[str, str]] = set()
"""Modules that local workers have loaded, with the Spark application whose workers they are."""


def check_code(session: SparkSession, pipeline: CompiledPipeline) -> None:
    """Let workers load the code of all stages, and refuse a pipeline of which one of them lacks a module.

    With a local master, all workers are of one kind, so that one is asked, and once for each module. They too
    can lack what the driver has: the folder of the program that runs is on the path of the driver only.
    """
    if not _is_local(session):
        _load(session, pipeline, min(session.sparkContext.defaultParallelism, TASKS_MAX))
        return
    application = session.sparkContext.applicationId
    needed = {(application, name) for stage in pipeline.stages for name in named_modules(stage.code.data)}
    if not needed <= _LOADED:
        _load(session, pipeline, 1)
        _LOADED.update(needed)


def named_modules(pickled: bytes) -> frozenset[str]:
    """The modules that loading may import: every text in the pickle that is the name of one.

    >>> import collections, pickle
    >>> sorted(named_modules(pickle.dumps({"decimal.x": collections.Counter})))
    ['collections']
    """
    texts = (argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str))
    return frozenset(text for text in texts if text in sys.modules)


def _load(session: SparkSession, pipeline: CompiledPipeline, tasks: int) -> None:
    """Load the code in so many tasks. With one for each processor, all executors get some."""
    load = load_task(stage.code for stage in pipeline.stages)
    try:
        answers = session.range(0, tasks, 1, tasks).mapInArrow(load, ANSWER).collect()
    except (PySparkException, Py4JError) as failure:
        raise error_from_spark(failure, "load the code on a worker") from failure
    problems = sorted((answer for answer in answers if answer.problem is not None), key=str)
    if problems:
        worker, module, problem = problems[0]
        raise loading_error(problem, worker, module)


def _is_local(session: SparkSession) -> bool:
    master = session.conf.get("spark.master") or ""
    return master.startswith("local") and not master.startswith("local-cluster")
