"""What is said about Spark's Kafka connector when it is missing, does not fit, or has lost records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from lakestate.errors import (
    InvalidInputError,
    LakestateError,
    NotFoundError,
    OperatorError,
    StorageUnavailableError,
)
from lakestate.spark import session as sessions
from lakestate.spark.kafka_connector import ConnectorVersion, Fit, kafka_error, named_connectors
from lakestate.spark.session import check_connector, load_stream
from lakestate.spark.tasks.task_errors import error_from_spark

WANTED = ConnectorVersion("2.13", "4.3.0")
LINE = "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"


@pytest.mark.parametrize(
    ("found", "fit"),
    [
        (("2.13", "4.3.0"), Fit.FITS),
        (("2.13", "4.3.2"), Fit.FITS),
        (("2.13", "4.2.0"), Fit.MAY_FAIL),
        (("2.13", "3.5.1"), Fit.NEVER),
        (("2.12", "4.3.0"), Fit.NEVER),
    ],
)
def test_whether_a_connector_works_depends_on_scala_and_spark(found: tuple[str, str], fit: Fit) -> None:
    assert ConnectorVersion(*found).fit(WANTED) is fit


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("3.5.1-amzn-0", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.1"),
        ("4.3.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"),
    ],
)
def test_the_package_follows_the_version_of_spark(version: str, package: str) -> None:
    assert str(ConnectorVersion.of_spark(version)) == package


def test_connectors_are_found_in_jars_and_packages() -> None:
    settings = (
        "/jars/spark-sql-kafka-0-10_2.13-4.2.0.jar,/jars/spark-token-provider-kafka-0-10_2.13-4.2.0.jar,"
        "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.1,org.apache.spark:spark-avro_2.13:4.3.0"
    )
    assert named_connectors(settings) == [
        ConnectorVersion("2.13", "4.2.0"),
        ConnectorVersion("2.12", "3.5.1"),
    ]


def reader(failure: Exception) -> Any:
    def load() -> None:
        raise failure

    return SimpleNamespace(load=load)


def test_a_missing_connector_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_wanted_connector", lambda: WANTED)
    missing = AnalysisException("Failed to find data source: kafka. Please deploy the application as per …")
    with pytest.raises(InvalidInputError, match="Spark has no connector for Kafka") as refused:
        load_stream(reader(missing), "orders")
    assert LINE in str(refused.value)


def test_any_other_reason_why_a_source_cannot_be_loaded_is_told() -> None:
    with pytest.raises(InvalidInputError, match="source orders cannot be loaded; found no such option"):
        load_stream(reader(AnalysisException("no such option")), "orders")


def test_a_connector_that_does_not_link_is_named() -> None:
    text = "java.lang.NoClassDefFoundError: scala/Serializable\n\tat org.apache.spark.sql.kafka010.Provider"
    found = kafka_error(text, "NoClassDefFoundError: scala/Serializable", WANTED)
    assert isinstance(found, InvalidInputError)
    assert LINE in str(found)


def test_what_is_not_kafkas_is_left_alone() -> None:
    assert kafka_error("java.lang.NoClassDefFoundError: com/acme/Udf", "…", WANTED) is None
    assert isinstance(error_from_spark(AnalysisException("no such column")), OperatorError)


def test_lost_records_are_an_error_of_their_own() -> None:
    lost = AnalysisException("[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost")
    found = error_from_spark(lost, "run the query")
    assert isinstance(found, NotFoundError)
    assert 'option("failOnDataLoss", "false")' in str(found)


def session(jars: str) -> Any:
    return SimpleNamespace(version="4.3.0", conf=SimpleNamespace(get={"spark.jars": jars}.get))


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plan of the only source, which a test may change."""
    text = ["StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@1, kafka"]
    monkeypatch.setattr(sessions, "explain_plan", lambda frame: text[0])
    return text


SOURCES: Any = [SimpleNamespace(frame=None)]


@pytest.mark.usefixtures("plan")
def test_a_connector_for_another_scala_is_refused_before_the_job_is_claimed() -> None:
    with pytest.raises(
        InvalidInputError, match=r"found .*_2\.12:4\.3\.0; expected .*_2\.13:4\.3\.0"
    ) as refused:
        check_connector(session("/x/spark-sql-kafka-0-10_2.12-4.3.0.jar"), SOURCES)
    assert LINE in str(refused.value)


@pytest.mark.usefixtures("plan")
def test_a_connector_of_another_minor_version_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=LINE):
        check_connector(session("/x/spark-sql-kafka-0-10_2.13-4.2.0.jar"), SOURCES)


def test_a_connector_that_no_source_uses_may_be_of_any_version(plan: list[str]) -> None:
    plan[0] = "StreamingRelation FileSource[/in]"
    check_connector(session("/x/spark-sql-kafka-0-10_2.12-3.5.1.jar"), SOURCES)


# As Spark describes a query that has read something, and one that has not.
OFFSETS = '{KafkaV2[Subscribe[oders]]: {"oders":{"0":2}}}'
DESCRIBED = """ SQLSTATE: XXKST
=== Streaming Query ===
Identifier: copy [id = 21f73c7b-e124-425b-b434-91f18a017a6e, runId = ef1dace2-a722-4209-8d78-8e3ed03c1608]
Current Committed Offsets: OFFSETS
Current Available Offsets: OFFSETS

Current State: ACTIVE
Thread State: RUNNABLE

Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink, 21f73c7b, [queryName=copy], Append
+- ~StreamingDataSourceV2ScanRelation[key#72, value#73, topic#74, partition#75, offset#76L] KafkaTable
"""
NO_TOPIC = "UnknownTopicOrPartitionException: This server does not host this topic-partition."
ERRORS = "org.apache.kafka.common.errors."
DENIED = "TopicAuthorizationException: Topic authorization failed."
NO_LOGIN = "SaslAuthenticationException: Authentication failed: Invalid username or password"
NO_BROKER = "TimeoutException: Timed out waiting for a node assignment. Call: describeTopics"


def failed_query(reason: str, offsets: str) -> AnalysisException:
    described = DESCRIBED.replace("OFFSETS", offsets)
    return AnalysisException(
        f"[STREAM_FAILED] Query [id = 21f7] terminated with exception: {ERRORS}{reason}{described}"
    )


@pytest.mark.parametrize(
    ("reason", "kind", "said"),
    [
        (DENIED, InvalidInputError, "Kafka does not permit to read a topic"),
        (NO_LOGIN, InvalidInputError, "Kafka does not permit to read a topic"),
        (NO_TOPIC, NotFoundError, "Kafka has no topic of this name"),
        (NO_BROKER, StorageUnavailableError, "no Kafka broker answers"),
    ],
)
@pytest.mark.parametrize(
    ("offsets", "kafka", "name"),
    [
        (OFFSETS, None, "source of Kafka, Subscribe[oders]"),
        ("{}", None, "source of Kafka"),
        ("{}", "source a, Kafka at b:9092", "source a, Kafka at b:9092"),
        (OFFSETS, "source a, Kafka at b:9092", "source a, Kafka at b:9092"),
    ],
    ids=["from the offsets", "unknown", "from the plan", "from both"],
)
def test_what_a_query_cannot_reach_is_named(
    reason: str, kind: type[LakestateError], said: str, offsets: str, kafka: str | None, name: str
) -> None:
    found = error_from_spark(failed_query(reason, offsets), "run the query", kafka=kafka)
    assert type(found) is kind
    assert (found.summary, found.object_name, found.found) == (said, name, reason)


LOST_TASK = """An error occurred while calling o247.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (192.0.2.2 executor driver): FAILURE
\tat org.apache.kafka.clients.consumer.internals.ClassicKafkaConsumer.position(ClassicKafkaConsumer.java:889)
"""


@pytest.mark.parametrize(
    "failure",
    [
        "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the position …",
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset 8 in 120000 milliseconds",
    ],
    ids=["position", "poll"],
)
def test_brokers_that_a_task_waits_for_in_vain_are_unavailable(failure: str) -> None:
    found = error_from_spark(AnalysisException(LOST_TASK.replace("FAILURE", failure)), kafka="source a")
    assert type(found) is StorageUnavailableError
    assert (found.object_name, found.found) == ("source a", failure.rpartition(".")[2])
