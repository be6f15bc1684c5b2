"""The producer that takes columns, against the broker that librdkafka has for tests, in this process."""

from __future__ import annotations

import ctypes
import gc
import logging
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition, cimpl

from lakestate.sinks.kafka import native_producer
from lakestate.sinks.kafka.messages import HEADER
from lakestate.sinks.kafka.native_producer import NativeProducer

TOPIC, PARTITIONS, TIMEOUT_S = "t", 2, 20.0
PRODUCE_REQUEST = 0
LIBRARY = ctypes.CDLL(cimpl.__file__)


class MockBroker:
    """The broker of a producer with `test.mock.num.brokers`. It lives as long as the producer."""

    def __init__(self, **options: Any) -> None:
        given = {name.replace("_", "."): value for name, value in options.items()}
        settings = {
            "test.mock.num.brokers": 1,
            "transactional.id": "id",
            "linger.ms": 0,
            "partitioner": "murmur2",
            **given,
        }
        self.reported: list[KafkaError] = []
        self.producer = NativeProducer(settings, self.reported.append)
        find = LIBRARY.rd_kafka_handle_mock_cluster
        find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        self._cluster = ctypes.c_void_p(find(self.producer._handle))
        LIBRARY.rd_kafka_mock_topic_create(self._cluster, TOPIC.encode(), PARTITIONS, 1)
        self.producer.init_transactions(TIMEOUT_S)

    def refuse(self, request: int, *codes: int) -> None:
        """Answer the next requests of a kind with these errors."""
        codes_array = (ctypes.c_int * len(codes))(*codes)
        push = LIBRARY.rd_kafka_mock_push_request_errors_array
        push.argtypes = [ctypes.c_void_p, ctypes.c_int16, ctypes.c_size_t, ctypes.c_void_p]
        push(self._cluster, request, len(codes), codes_array)

    def write(self, rows: pa.Table) -> None:
        self.producer.begin_transaction()
        self.producer.produce(TOPIC, rows)
        self.producer.flush()
        assert self.producer.failure is None
        self.producer.commit_transaction()

    def read(self, count: int) -> list[tuple[int, bytes | None, bytes | None, Any]]:
        """Partition, key, value and headers of messages, partition by partition."""
        find = LIBRARY.rd_kafka_mock_cluster_bootstraps
        find.restype = ctypes.c_char_p
        consumer = Consumer({"bootstrap.servers": find(self._cluster).decode(), "group.id": "g"})
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        found = []
        while len(found) < count:
            (message,) = consumer.consume(1, TIMEOUT_S)
            assert message.error() is None
            found.append((message.partition(), message.key(), message.value(), message.headers()))
        consumer.close()
        return sorted(found, key=lambda each: each[0])


@pytest.fixture
def broker() -> Iterator[MockBroker]:
    broker = MockBroker()
    yield broker
    broker.producer.close()


def table(**columns: list[Any]) -> pa.Table:
    kinds = {"partition": pa.int32(), "headers": pa.list_(HEADER)}
    return pa.table({name: pa.array(rows, kinds.get(name, pa.binary())) for name, rows in columns.items()})


def test_bytes_arrive_as_they_are_and_null_is_not_empty(broker: MockBroker) -> None:
    rows = table(
        value=[b"cut off", b"a\0b", None, b"", b"x"],
        key=[b"", b"k", b"\xff", b"", None],
        partition=[0] * 5,
    )
    broker.write(rows.slice(1))
    assert broker.read(4) == [
        (0, b"k", b"a\0b", None),
        (0, b"\xff", None, None),
        (0, b"", b"", None),
        (0, None, b"x", None),
    ]


def test_values_that_are_all_empty_arrive_empty(broker: MockBroker) -> None:
    broker.write(table(value=[b"", b""], partition=[1, 1]))
    assert broker.read(2) == [(1, None, b"", None)] * 2


def test_wide_columns_and_several_pieces_arrive_in_order(broker: MockBroker) -> None:
    values = [str(number).encode() for number in range(30)]
    pieces = [table(value=values[at : at + 10], partition=[0] * 10) for at in (0, 10, 20)]
    whole = pa.concat_tables(pieces)
    broker.write(whole.set_column(0, "value", whole["value"].cast(pa.large_binary())))
    assert [value for _, _, value, _ in broker.read(30)] == values


def test_the_key_decides_where_no_partition_is_named(broker: MockBroker) -> None:
    keys = [str(number).encode() for number in range(20)]
    broker.write(table(value=keys, key=keys))
    alone = {key: partition for partition, key, _, _ in broker.read(20)}
    assert set(alone.values()) == {0, 1}
    broker.write(table(value=keys, key=keys, partition=[-1] * 19 + [1 - alone[keys[19]]]))
    again = {key: partition for partition, key, _, _ in broker.read(40)[-40:] if key != keys[19]}
    assert again == {key: alone[key] for key in keys[:19]}


def test_headers_arrive_in_order_with_names_that_repeat(broker: MockBroker) -> None:
    rows = table(
        value=[b"dropped", b"x", b"y", b"z"],
        key=[None, b"k", None, None],
        partition=[0, 0, 0, 1],
        headers=[
            [{"key": "no", "value": b"no"}],
            [{"key": "a", "value": b"1"}, {"key": "ä", "value": None}, {"key": "a", "value": b""}],
            None,
            [{"key": "b", "value": b"\0"}],
        ],
    )
    broker.write(rows.slice(1))
    assert broker.read(3) == [
        (0, b"k", b"x", [("a", b"1"), ("ä", None), ("a", b"")]),
        (0, None, b"y", None),
        (1, None, b"z", [("b", b"\0")]),
    ]


@pytest.mark.parametrize("headers", [{}, {"headers": [[]] * 300}], ids=["plain", "headers"])
def test_a_full_queue_delays_messages_and_keeps_their_order(headers: dict[str, Any]) -> None:
    broker = MockBroker(queue_buffering_max_messages=7)
    values = [str(number).encode() for number in range(300)]
    broker.write(table(value=values, partition=[0] * 300, **headers))
    assert [value for _, _, value, _ in broker.read(300)] == values


@pytest.mark.parametrize("headers", [{}, {"headers": [[], []]}], ids=["plain", "headers"])
def test_a_message_that_is_too_large_is_an_error(headers: dict[str, Any]) -> None:
    broker = MockBroker(message_max_bytes=1000)
    broker.producer.begin_transaction()
    with pytest.raises(KafkaException) as found:
        broker.producer.produce(TOPIC, table(value=[b"x", b"x" * 1001], **headers))
    assert found.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_message_that_the_broker_refuses_keeps_its_transaction_from_being_committed(
    broker: MockBroker,
) -> None:
    broker.producer.begin_transaction()
    broker.refuse(PRODUCE_REQUEST, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    broker.producer.produce(TOPIC, table(value=[b"x"], partition=[0]))
    broker.producer.flush()
    assert broker.producer.failure is not None
    assert broker.producer.failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as found:
        broker.producer.commit_transaction()
    assert found.value.args[0].txn_requires_abort()
    broker.producer.abort_transaction(TIMEOUT_S)
    broker.producer.begin_transaction()
    assert broker.producer.failure is None


def test_what_was_purged_and_aborted_does_not_arrive(broker: MockBroker) -> None:
    broker.producer.begin_transaction()
    broker.refuse(PRODUCE_REQUEST, *[KafkaError.NOT_LEADER_FOR_PARTITION] * 1000)
    broker.producer.produce(TOPIC, table(value=[b"x"], partition=[0]))
    broker.producer.purge()
    broker.producer.abort_transaction(TIMEOUT_S)
    assert broker.producer.failure is not None


def test_a_setting_that_does_not_exist_or_fit_is_an_error() -> None:
    for settings in ({"no.such.setting": 1}, {"linger.ms": "soon"}, {"linger.ms": 2, "acks": 0}):
        with pytest.raises(KafkaException) as found:
            NativeProducer({"transactional.id": "id", "bootstrap.servers": "b:1", **settings}, print)
        assert found.value.args[0].code() == KafkaError._INVALID_ARG


def test_a_broker_that_does_not_answer_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[KafkaError] = []
    settings = {"transactional.id": "id", "bootstrap.servers": "127.0.0.1:1"}
    producer = NativeProducer(settings, reported.append)
    with caplog.at_level(logging.DEBUG, "lakestate.kafka"), pytest.raises(KafkaException):
        producer.init_transactions(1.0)
    producer._library.poll(producer._handle, 0)
    assert {each.code() for each in reported} >= {KafkaError._TRANSPORT}
    assert "Connection refused" in caplog.text


def test_a_producer_that_nobody_holds_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed: list[int] = []
    real = native_producer._destroy
    monkeypatch.setattr(
        native_producer,
        "_destroy",
        lambda library, handle, *others: (destroyed.append(handle), real(library, handle, *others)),
    )
    producer = NativeProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, print)
    handle, seen = producer._handle, weakref.ref(producer)
    del producer
    gc.collect()
    assert seen() is None
    assert destroyed == [handle]
