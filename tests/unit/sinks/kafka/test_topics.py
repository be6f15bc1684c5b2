"""A control topic that was created a moment ago, as seen by a broker that has not heard of it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from lakestate.errors import StorageUnavailableError
from lakestate.sinks.kafka import topics
from lakestate.sinks.kafka.client import KafkaClients
from lakestate.sinks.kafka.control_topic import SETTINGS


class LateAdmin:
    """A cluster that shows a topic only after it was asked for it some times."""

    def __init__(self, unseen: int, created: KafkaError | None = None, without_settings: int = 0) -> None:
        self.unseen, self.created, self.without_settings = unseen, created, without_settings
        self.creations = 0

    def describe_topics(self, asked: Any, **_: object) -> dict[str, Future[Any]]:
        self.unseen -= 1
        described = SimpleNamespace(partitions=[0], authorized_operations=None)
        return {"markers": _answer(described, _unknown() if self.unseen >= 0 else None)}

    def describe_configs(self, asked: list[Any], **_: object) -> dict[Any, Future[Any]]:
        self.without_settings -= 1
        found = {**SETTINGS, "max.message.bytes": "1000000"}
        settings = {name: SimpleNamespace(value=value) for name, value in found.items()}
        return {asked[0]: _answer(settings, _unknown() if self.without_settings >= 0 else None)}

    def create_topics(self, asked: list[Any], **_: object) -> dict[str, Future[Any]]:
        self.creations += 1
        return {"markers": _answer(None, self.created)}

    def poll(self, _: float) -> None:
        """Nothing was reported."""


def _unknown() -> KafkaError:
    return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


def _answer(value: object, error: KafkaError | None) -> Future[Any]:
    answer: Future[Any] = Future()
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(KafkaException(error))
    return answer


def _topics(admin: LateAdmin, monkeypatch: pytest.MonkeyPatch) -> topics.Topics:
    monkeypatch.setattr(topics, "SEEN_WITHIN_S", 0.2)
    monkeypatch.setattr(topics, "POLL_S", 0.001)
    clients = KafkaClients("b:1", {})
    clients.__dict__["admin"] = cast(AdminClient, admin)
    return topics.Topics(clients)


@pytest.mark.parametrize(
    "admin",
    [
        LateAdmin(unseen=4),
        LateAdmin(unseen=1, without_settings=3),
        LateAdmin(unseen=4, created=KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)),
        LateAdmin(unseen=4, created=KafkaError(KafkaError._TIMED_OUT)),
    ],
    ids=["shown later", "settings later", "created by another", "answer lost"],
)
def test_a_control_topic_that_was_just_created_is_waited_for(
    admin: LateAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    _topics(admin, monkeypatch).require_control("markers")
    assert (admin.creations, admin.unseen < 0, admin.without_settings < 0) == (1, True, True)


@pytest.mark.parametrize(
    ("created", "told"),
    [
        (None, "created the control topic and does not show it: topic markers at b:1"),
        (KafkaError(KafkaError._TIMED_OUT), "could not create the control topic"),
    ],
)
def test_a_control_topic_that_never_appears_is_told(
    created: KafkaError | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = LateAdmin(unseen=1_000_000, created=created)
    with pytest.raises(StorageUnavailableError, match=told):
        _topics(admin, monkeypatch).require_control("markers")
