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


DESCRIBED = "=== Streaming Query ===\n+- StreamingExecutionRelation KafkaV2[Subscribe[oders]]"
NO_TOPIC = "UnknownTopicOrPartitionException: This server does not host this topic-partition."
NO_BROKER = "TimeoutException: Timed out waiting for a node assignment. Call: describeTopics"


@pytest.mark.parametrize(
    ("failure", "kind", "said"),
    [
        (NO_TOPIC, NotFoundError, "Kafka has no topic of this name"),
        (NO_BROKER, StorageUnavailableError, "no Kafka broker answers"),
    ],
)
def test_a_topic_or_a_broker_that_is_not_there_is_named(
    failure: str, kind: type[LakestateError], said: str
) -> None:
    found = error_from_spark(AnalysisException(f"{failure}\n{DESCRIBED}"), "run the query")
    assert type(found) is kind
    assert said in str(found)
    assert "Subscribe[oders]" in str(found)
