"""The Spark session of a pipeline: checks before anything is claimed, and the settings its query uses."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError
from lakestate.spark.execution.arrow_batches import RECORDS, RECORDS_MAX
from lakestate.spark.execution.compile import CompiledPipeline
from lakestate.spark.execution.source_paths import explain_plan
from lakestate.spark.graph.nodes import SourceNode
from lakestate.spark.kafka_connector import (
    JAR_SETTINGS,
    ConnectorVersion,
    Fit,
    connector_action,
    kafka_error,
    named_connectors,
)
from lakestate.spark.spark_reason import spark_reason
from lakestate.spark.versions.supported import check_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

SESSION_SETTINGS = {
    # Our plans leave nothing to adapt, and adaptive planning costs time in every epoch.
    "spark.sql.adaptive.enabled": "false",
    RECORDS: str(RECORDS_MAX),
    # Otherwise Spark shuffles rows again before it groups those of a subtask by key, and undoes the routing.
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    # A simplified traceback leaves out the frames of the operator's own code.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
"""For the query's session, which is a clone: the user's session keeps its own."""

_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_REPARTITION_RULE = "org.apache.spark.sql.catalyst.optimizer.OptimizeRepartition"
"""Makes one partition of rows that are all routed to the same subtask, such as those of a constant key.
Partition 0 would then hold rows of another subtask, and the others would not run."""
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_SHUFFLE_PARTITIONS_DEFAULT = "200"


def check_session(session: SparkSession) -> None:
    """Refuse Spark Connect, which would run the driver protocol in another process, and other versions."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInputError(
            "a pipeline does not run on Spark Connect",
            object_name=f"session of {type(session).__module__}",
            expected="a session in the process that runs Spark's driver",
            action="create it with SparkSession.builder.master(…), or run the program with spark-submit: "
            "Connect would run epochs, and publish them, in a process of the server",
        )
    check_version(session.version)


def check_speculation(session: SparkSession, pipeline: CompiledPipeline) -> None:
    """Refuse speculative execution if a stage passes rows to another one.

    Two attempts of a subtask can then both leave their rows in Spark's storage, on two executors, and
    Spark reads either: the next stage could get the rows of one attempt, the driver the report of the other.
    """
    handed_on = [stage.stage.name for stage in pipeline.stages if stage.exports]
    if handed_on and session.conf.get("spark.speculation", "false") == "true":
        raise InvalidInputError(
            "a pipeline with several stages cannot run with speculative execution",
            object_name=f"output of stage {', '.join(handed_on)}",
            found="spark.speculation=true",
            action="start Spark with spark.speculation=false; a pipeline with one stage may use it",
        )


def load_stream(reader: DataStreamReader, name: str) -> DataFrame:
    """The DataFrame of a reader. A connector that is missing or does not fit is named."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return reader.load()
    except (PySparkException, Py4JError) as failure:
        reason = spark_reason(failure)
        raise kafka_error(str(failure), reason, _wanted_connector()) or InvalidInputError(
            f"source {name} cannot be loaded", found=reason
        ) from failure


def check_connector(session: SparkSession, sources: Sequence[SourceNode]) -> None:
    """Refuse a connector for Kafka that cannot work in this Spark, and warn of one that may not.

    Only jars that the session was started with say which version they are. Plans are looked at only if one
    of them does not fit.
    """
    wanted = _wanted_connector(session)
    settings = ",".join(str(session.conf.get(name, "")) for name in JAR_SETTINGS)
    for found in named_connectors(settings):
        fit = found.fit(wanted)
        if fit is Fit.FITS or not any("kafka010" in explain_plan(source.frame) for source in sources):
            continue
        error = InvalidInputError(
            "the connector for Kafka is built for another Spark",
            object_name='format("kafka")',
            found=str(found),
            expected=str(wanted),
            action=connector_action(wanted),
        )
        if fit is Fit.NEVER:
            raise error
        warnings.warn(str(error), stacklevel=3)


def _wanted_connector(session: SparkSession | None = None) -> ConnectorVersion:
    """The connector for this Spark, asked for its Scala where that is not certain."""
    import pyspark

    wanted = ConnectorVersion.of_spark(pyspark.__version__ if session is None else session.version)
    session = session or pyspark.sql.SparkSession.getActiveSession()
    if session is None or not wanted.spark.startswith("3."):
        return wanted
    row = session.sql("SELECT java_method('scala.util.Properties', 'versionNumberString') AS scala").head()
    return wanted if row is None else ConnectorVersion.of_spark(wanted.spark, row.scala.rpartition(".")[0])


def free_query_name(session: SparkSession, job_id: str) -> str:
    """The job id, or with a number: Spark refuses a second running query of the same name."""
    taken = {query.name for query in session.streams.active}
    number, name = 1, job_id
    while name in taken:
        number += 1
        name = f"{job_id} ({number})"
    return name


def apply_settings(session: SparkSession, parallelism: int) -> None:
    """Apply `SESSION_SETTINGS` to the session of Spark's query.

    Where Spark shuffles by itself, it then makes as many partitions as there are subtasks, unless you have
    told it a number: its default is made for large batches.
    """
    _set_all(session, _settings(session))
    if session.conf.get(_SHUFFLE_PARTITIONS) == _SHUFFLE_PARTITIONS_DEFAULT:
        session.conf.set(_SHUFFLE_PARTITIONS, str(parallelism))


@contextmanager
def use_settings(session: SparkSession) -> Iterator[None]:
    """Apply `SESSION_SETTINGS` for the last epoch. If no batch ran before it, its session is the user's."""
    settings = _settings(session)
    before = {name: session.conf.get(name, None) for name in settings}
    _set_all(session, settings)
    try:
        yield
    finally:
        _set_all(session, before)


def _settings(session: SparkSession) -> dict[str, str]:
    """`SESSION_SETTINGS`, and the rule of Spark's optimiser that must not see a routing.

    Rules that you have excluded stay excluded.
    """
    excluded = (session.conf.get(_EXCLUDED_RULES, None) or "").split(",")
    rules = dict.fromkeys(rule for rule in (*map(str.strip, excluded), _REPARTITION_RULE) if rule)
    return {**SESSION_SETTINGS, _EXCLUDED_RULES: ",".join(rules)}


def _set_all(session: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
