"""What a transaction that fails is taken for: nothing committed, or not known. The producer is a double."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from lakestate.errors import InvalidInputError, LakestateError, OutcomeUnknownError, StorageUnavailableError
from lakestate.protocol.values import Epoch
from lakestate.sinks.kafka.client import KafkaClients
from lakestate.sinks.kafka.control_topic import ControlTopic
from lakestate.sinks.kafka.delivery import SinkIdentity, WriterFencedError
from lakestate.sinks.kafka.transactions import KafkaLog
from lakestate.sinks.staged import StagedEpoch

EPOCH = StagedEpoch("job", "f00d", "out", Epoch(3), "checkpoints/3/manifest.pb", ())


def failure(code: int, *, aborts: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "it failed", txn_requires_abort=aborts))


class Producer:
    """Does what it is told, and notes it."""

    def __init__(self, failures: dict[str, Exception], report: KafkaError | None) -> None:
        self.calls: list[Any] = []
        self.settings: dict[str, Any] = {}
        self.failure: KafkaError | None = None
        self._failures = failures
        self._report = report

    def produce(self, topic: str, messages: pa.Table) -> None:
        self._call("produce", topic, messages.drop(["value"]).to_pylist())

    def flush(self) -> None:
        self._call("flush")
        self.failure = self._report

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._call(name)

    def _call(self, name: str, *details: Any) -> None:
        self.calls.append((name, *details) if details else name)
        if name in self._failures:
            raise self._failures[name]


class Clients(KafkaClients):
    def __init__(self, report: KafkaError | None = None, **failures: Exception) -> None:
        super().__init__("b:1", {"linger.ms": 7})
        self.double = Producer(failures, report)

    def transactional_producer(self, **settings: Any) -> Any:
        self.double.settings = settings
        return self.double


def log(clients: KafkaClients) -> KafkaLog:
    return KafkaLog(clients, "t", ControlTopic(clients, "markers"), SinkIdentity("job", "out", "f00d"))


def test_a_writer_fences_before_it_writes_and_the_marker_comes_last() -> None:
    clients = Clients()
    writer = log(clients).open_writer()
    assert clients.double.calls == ["init_transactions"]
    writer.write(EPOCH)
    assert clients.double.calls[1:] == [
        "begin_transaction",
        ("produce", "markers", [{"key": b"marker/job/out/f00d", "partition": 0}]),
        "flush",
        "commit_transaction",
    ]
    settings = clients.double.settings
    assert (settings["transactional.id"], settings["partitioner"]) == (
        "lakestate/job/out/f00d",
        "murmur2_random",
    )
    assert "linger.ms" not in settings, "an option goes before a default"


@pytest.mark.parametrize(
    ("failures", "kind"),
    [
        ({"begin_transaction": failure(KafkaError._FENCED)}, WriterFencedError),
        ({"flush": failure(KafkaError.INVALID_PRODUCER_EPOCH)}, WriterFencedError),
        ({"commit_transaction": failure(KafkaError._FENCED, aborts=True)}, WriterFencedError),
        ({"commit_transaction": failure(KafkaError._TIMED_OUT, aborts=True)}, StorageUnavailableError),
        ({"commit_transaction": failure(KafkaError._TIMED_OUT)}, OutcomeUnknownError),
        ({"commit_transaction": failure(KafkaError._FENCED)}, OutcomeUnknownError),
        ({"produce": failure(KafkaError.TOPIC_AUTHORIZATION_FAILED)}, InvalidInputError),
    ],
)
def test_only_a_commit_leaves_doubt(failures: dict[str, KafkaException], kind: type[LakestateError]) -> None:
    writer = log(Clients(**failures)).open_writer()
    with pytest.raises(LakestateError) as found:
        writer.write(EPOCH)
    assert type(found.value) is kind


def test_a_message_that_failed_keeps_its_transaction_from_being_committed() -> None:
    clients = Clients(report=KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    writer = log(clients).open_writer()
    with pytest.raises(InvalidInputError, match="Kafka refuses to produce epoch 3: topic t at b:1"):
        writer.write(EPOCH)
    assert clients.double.calls[-1] == "flush"


def test_a_writer_that_is_given_up_aborts_whatever_the_broker_says() -> None:
    clients = Clients(abort_transaction=failure(KafkaError._TIMED_OUT))
    log(clients).open_writer().abandon()
    assert clients.double.calls == ["init_transactions", "purge", "abort_transaction", "close"]
