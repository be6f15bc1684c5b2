"""The setting with which Spark writes its logs quickly, and when it is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError
from tests.support.spark.stand_in import Session

from lakestate.spark.versions.quick_logs import FILE_MANAGER, use_quick_logs, wait_for_sources


class Java:
    """A JVM with these classes, as far as loading one goes."""

    def __init__(self, *classes: str) -> None:
        self.java = self.lang = self.Thread = self
        self._classes = classes

    def currentThread(self) -> Any:
        return self

    def getContextClassLoader(self) -> Any:
        return self

    def loadClass(self, name: str) -> None:
        if name not in self._classes:
            raise Py4JError("ClassNotFoundException")


BEFORE_4_1 = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"


@pytest.fixture
def session() -> Any:
    session = Session()
    session._jvm = Java(BEFORE_4_1)  # type: ignore[assignment]
    return session


def test_it_is_set_while_a_query_is_launched(session: Any) -> None:
    with use_quick_logs(session):
        assert session.conf[FILE_MANAGER] == BEFORE_4_1
    assert FILE_MANAGER not in session.conf


def test_it_is_taken_back_if_the_launch_fails(session: Any) -> None:
    with pytest.raises(ValueError, match="no"), use_quick_logs(session):
        raise ValueError("no")
    assert FILE_MANAGER not in session.conf


def test_a_setting_of_the_user_stays(session: Any) -> None:
    session.conf.set(FILE_MANAGER, "mine")
    with use_quick_logs(session):
        assert session.conf[FILE_MANAGER] == "mine"
    assert session.conf[FILE_MANAGER] == "mine"


def test_without_such_a_class_spark_does_as_it_does(session: Any) -> None:
    session._jvm = Java()
    with use_quick_logs(session):
        assert FILE_MANAGER not in session.conf


class Query:
    """A query whose status is one after the other."""

    def __init__(self, *messages: str) -> None:
        self.messages = [*messages]
        self.isActive = True

    @property
    def status(self) -> dict[str, str]:
        return {"message": self.messages.pop(0)}


def test_waiting_ends_when_the_sources_are_there() -> None:
    query: Any = Query("Initializing StreamExecution", "Initializing sources", "Getting offsets", "later")
    wait_for_sources(query)
    assert query.messages == ["later"]


def test_waiting_ends_with_the_query() -> None:
    query: Any = Query("Initializing sources")
    query.isActive = False
    wait_for_sources(query)
    assert query.messages
