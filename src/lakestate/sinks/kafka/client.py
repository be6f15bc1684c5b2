"""`KafkaClients`: connections to a Kafka cluster, and its errors as ours. No secret is shown."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakestate.errors import (
    InvalidInputError,
    LakestateError,
    MissingExtraError,
    NotFoundError,
    StorageUnavailableError,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

    from lakestate.sinks.kafka.native_producer import NativeProducer

REQUEST_TIMEOUT_S = 15.0
OURS = frozenset(
    (
        "acks",
        "bootstrap.servers",
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "isolation.level",
        "metadata.broker.list",
        "request.required.acks",
        "transactional.id",
    )
)
"""What exactly-once delivery depends on, and no option can change."""
SAID_AGAIN_S = 30.0
_NUMBERED = re.compile(r"rdkafka#\w+-\d+|after \d+ms")
_SECRET = re.compile(r"password|secret|token|jaas|credential|\.key|pem|oauthbearer")
_PRODUCER_ONLY = ("batch.", "compression.", "linger.", "partitioner", "queue.buffering.", "transaction.")
_DENIED = (
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "_AUTHENTICATION",
)
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC")
_INVALID = (
    "INVALID_CONFIG",
    "INVALID_RECORD",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_TRANSACTION_TIMEOUT",
    "MSG_SIZE_TOO_LARGE",
    "POLICY_VIOLATION",
    "TOPIC_EXCEPTION",
    "UNSUPPORTED_VERSION",
    "_INVALID_ARG",
    "_UNSUPPORTED_FEATURE",
)


class _FirstOfEach(logging.Filter):
    """Lets what librdkafka says many times a second, while a broker is away, through once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it was not said in the last seconds, by whatever client."""
        now, text = time.monotonic(), _NUMBERED.sub("", record.getMessage())
        if now < self._said.get(text, 0):
            return False
        self._said = {each: until for each, until in self._said.items() if until > now}
        self._said[text] = now + SAID_AGAIN_S
        return True


_log = logging.getLogger("lakestate.kafka")
_log.addFilter(_FirstOfEach())


def require_confluent_kafka() -> None:
    """Refuse to go on without the library."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as missing:
        raise MissingExtraError(
            "Kafka needs confluent-kafka", action='install it with: pip install "lakestate[kafka]"'
        ) from missing


@dataclass
class KafkaClients:
    """Opens clients with the settings of a sink. What the connection reports meanwhile explains a timeout."""

    bootstrap: str
    options: Mapping[str, str | int | float | bool]
    reported: KafkaError | None = field(default=None, init=False)
    """The last error of a connection: calls themselves only say that they timed out."""

    @cached_property
    def admin(self) -> AdminClient:
        """A client for topics and their settings. One for all: what a client was asked ends with it."""
        from confluent_kafka.admin import AdminClient

        with self.translate_errors("connect", self.bootstrap):
            return AdminClient(self._settings(), logger=_log)

    @contextmanager
    def ask_admin(self, action: str, object_name: str) -> Iterator[AdminClient]:
        """The client for topics, with its errors translated."""
        from confluent_kafka import KafkaException

        admin = self.admin
        try:
            yield admin
        except KafkaException as cause:
            # Tells what the connection has reported.
            admin.poll(0)
            raise self.error_of(cause.args[0], action, object_name) from None

    def producer(self, **settings: Any) -> Producer:
        """A producer. Ours go before the options."""
        from confluent_kafka import Producer

        with self.translate_errors("connect", self.bootstrap):
            return Producer({**self._settings(), **settings}, logger=_log)

    def transactional_producer(self, **settings: Any) -> NativeProducer:
        """A producer for transactions, which takes messages as columns. Ours go before the options."""
        from lakestate.sinks.kafka.native_producer import NativeProducer

        given = {**self.options, "bootstrap.servers": self.bootstrap, **settings}
        return NativeProducer(given, self._report)

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer of partitions that are assigned to it."""
        from confluent_kafka import Consumer

        given = {
            name: value
            for name, value in self._settings().items()
            if not name.startswith(_PRODUCER_ONLY) and name != "message.max.bytes"
        }
        with self.translate_errors("connect", self.bootstrap):
            return Consumer({**given, **settings}, logger=_log)

    def _settings(self) -> dict[str, Any]:
        return {**self.options, "bootstrap.servers": self.bootstrap, "error_cb": self._report}

    def _report(self, error: KafkaError) -> None:
        self.reported = error

    @contextmanager
    def translate_errors(self, action: str, object_name: str) -> Iterator[None]:
        """Raise what Kafka raises as an error of ours."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as cause:
            # Not chained: the text of a cause may hold the value of an option.
            raise self.error_of(cause.args[0], action, object_name) from None

    def error_of(self, error: KafkaError, action: str, object_name: str) -> LakestateError:
        """An error of Kafka, by what the caller can do about it."""
        codes = [error, *([self.reported] if self.reported is not None and _is_silence(error) else [])]
        found = "; ".join(self.hide_values(f"{each.name()}: {each.str()}") for each in codes)
        shown = f"{object_name} at {self.bootstrap}" if object_name != self.bootstrap else object_name
        names = {each.name() for each in codes}
        if names.intersection(_DENIED):
            return InvalidInputError(
                f"Kafka does not permit to {action}",
                object_name=shown,
                found=found,
                action="grant the permission, or correct the credentials in options",
            )
        if names.intersection(_MISSING):
            return NotFoundError(
                f"Kafka could not {action}: there is no such topic", object_name=shown, found=found
            )
        if names.intersection(_INVALID):
            return InvalidInputError(f"Kafka refuses to {action}", object_name=shown, found=found)
        return StorageUnavailableError(f"Kafka could not {action}", object_name=shown, found=found)

    def hide_values(self, text: str) -> str:
        """A text without the values of options that may be secret."""
        for name, value in self.options.items():
            if isinstance(value, str) and value and _SECRET.search(name):
                text = text.replace(value, "…")
        return text


def _is_silence(error: KafkaError) -> bool:
    return error.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
