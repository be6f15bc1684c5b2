"""Whether the workers can load the code of a pipeline, found out before the job is claimed.

Costs one Spark job at each start. It also imports what the first epoch needs.
"""

from __future__ import annotations

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


def check_code(session: SparkSession, pipeline: CompiledPipeline) -> None:
    """Let workers load the code of all stages, and refuse a pipeline of which one of them lacks a module."""
    tasks = _task_count(session)
    load = load_task(stage.code for stage in pipeline.stages)
    try:
        answers = session.range(0, tasks, 1, tasks).mapInArrow(load, ANSWER).collect()
    except (PySparkException, Py4JError) as failure:
        raise error_from_spark(failure, "load the code on a worker") from failure
    problems = sorted((answer for answer in answers if answer.problem is not None), key=str)
    if problems:
        worker, module, problem = problems[0]
        raise loading_error(problem, worker, module)


def _task_count(session: SparkSession) -> int:
    """One task for each processor, so that all executors get some: Spark spreads them.

    With a local master, all workers are of one kind. They too can lack a module that the driver has: those
    beside the program that it runs, which is on the path of the driver only.
    """
    master = session.conf.get("spark.master") or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        return 1
    return min(session.sparkContext.defaultParallelism, TASKS_MAX)
