"""What a Spark session must be like for a pipeline, found before anything is claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError
from lakestate.spark.graph.compiled import CompiledPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_session(session: SparkSession) -> None:
    """The session is one that the driver protocol can run beside."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInputError(
            "a pipeline does not run on Spark Connect",
            object_name=f"session of {type(session).__module__}",
            expected="a session of the process that runs Spark's driver",
            action="make it with SparkSession.builder.master(…) or run the program with spark-submit: "
            "Connect would run the epochs, and so what publishes them, in a process of the server",
        )


def check_speculation(session: SparkSession, pipeline: CompiledPipeline) -> None:
    """Rows of a stage are not handed to another one while two attempts of a subtask may run at once.

    Both attempts may then leave their rows in Spark's storage, on two executors, and Spark reads
    either: the next stage could get the rows of one attempt and the driver the report of the other.
    """
    handed_on = [stage.stage.name for stage in pipeline.stages if stage.exports]
    if handed_on and session.conf.get("spark.speculation", "false") == "true":
        raise InvalidInputError(
            "a pipeline of several stages does not run with speculative execution",
            object_name=f"output of stage {', '.join(handed_on)}",
            found="spark.speculation=true",
            action="start Spark with spark.speculation=false; a pipeline of one stage may keep it",
        )
