"""`NativeProducer`: a transactional producer that takes messages as Arrow columns.

The bytes of keys and values are handed to librdkafka where they are in Arrow's memory, which copies them:
no message becomes a Python object. Failures of messages are kept until `failure` is asked for.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.sinks.kafka.librdkafka import (
    ARGUMENT_WORDS,
    CONF_OK,
    COPY,
    MESSAGE,
    PRODUCER,
    PURGE_ALL,
    WORD,
    ArgumentKind,
    Library,
    OnError,
    OnFailure,
    OnLog,
    load_library,
)
from lakestate.sinks.kafka.messages import BY_KEY, HEADER

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Words = np.ndarray[Any, np.dtype[np.uint64]]
Messages = np.ndarray[Any, Any]
"""Of the type `MESSAGE`."""

BATCH_MESSAGES = 10_000
"""Messages of one call. The library holds the topic for the time of a call."""
_FULL_WAIT_MS = 1
_FLUSH_WAIT_MS = 500
_FOREVER_MS = -1
_TEXT_BYTES = 512
_SYSLOG_LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)
"""Levels of Python's logging, by those of syslog."""

_log = logging.getLogger("lakestate.kafka")


@dataclass(slots=True)
class _Reports:
    """What callbacks note. They know nothing of the producer, so that it can be collected."""

    failed: KafkaError | None = None
    callbacks: tuple[Any, ...] = field(default=(), repr=False)
    """Kept as long as the library may call them."""


class NativeProducer:
    """A producer with the settings of librdkafka. `on_error` is told what connections report.

    Errors are raised as `KafkaException`, as `confluent_kafka.Producer` raises them.
    """

    def __init__(self, settings: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> None:
        self._library = load_library()
        self._reports = _Reports()
        self._handle = _open(self._library, settings, self._reports, on_error)
        self._topics: dict[str, int] = {}
        self._close = weakref.finalize(
            self, _destroy, self._library, self._handle, self._topics, self._reports
        )
        # The process ends sooner than connections that are closed in order.
        self._close.atexit = False
        self._library.set_log_queue(self._handle, None)

    @property
    def failure(self) -> KafkaError | None:
        """Why the first message failed that did since `begin_transaction`."""
        return self._reports.failed

    def init_transactions(self, timeout_s: float) -> None:
        """Fence all producers with the same transactional id, and end what they had open."""
        self._raise_error(self._library.init_transactions(self._handle, _ms(timeout_s)))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._reports.failed = None
        self._raise_error(self._library.begin_transaction(self._handle))

    def produce(self, topic: str, messages: pa.Table) -> None:
        """Hand over messages; those of a partition stay in order. Waits while the library's queue is full.

        Columns: `value` and optionally `key`, both binary, `headers` and `partition`.
        """
        handle = self._topic(topic)
        for batch in messages.to_batches(max_chunksize=BATCH_MESSAGES):
            if "headers" in batch.schema.names or _mixes_partitions(batch):
                self._produce_one_by_one(handle, batch)
            else:
                for partition, part in _by_partition(batch):
                    self._produce_batch(handle, partition, part)
            self._library.poll(self._handle, 0)

    def flush(self) -> None:
        """Wait until every message was taken by the broker or has failed."""
        while self._library.flush(self._handle, _FLUSH_WAIT_MS):
            continue

    def commit_transaction(self) -> None:
        """Commit the transaction."""
        self._raise_error(self._library.commit_transaction(self._handle, _FOREVER_MS))

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort the transaction."""
        self._raise_error(self._library.abort_transaction(self._handle, _ms(timeout_s)))

    def purge(self) -> None:
        """Forget the messages that the broker has not taken."""
        self._library.purge(self._handle, PURGE_ALL)

    def close(self) -> None:
        """Close the connections. What is open in a transaction ends with its timeout, or is fenced."""
        self._close()

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            found = self._library.topic_new(self._handle, name.encode(), None)
            if not found:
                raise _exception(_invalid(), f"not a topic: {name}")
            self._topics[name] = found
        return self._topics[name]

    def _produce_batch(self, topic: int, partition: int, messages: Messages) -> None:
        while len(messages):
            taken = self._library.produce_batch(topic, partition, COPY, messages.ctypes.data, len(messages))
            if taken == len(messages):
                return
            # The first message that finds the queue full keeps those after it from overtaking it.
            errors = messages["err"]
            if errors[:taken].any() or (errors[taken:] != _queue_full()).any():
                raise _exception(int(errors[errors.nonzero()[0][0]]))
            messages = messages[taken:]
            self._library.poll(self._handle, _FULL_WAIT_MS)

    def _produce_one_by_one(self, topic: int, batch: pa.RecordBatch) -> None:
        """For what the library takes with single messages only."""
        produce, handle = self._library.produceva, self._handle
        arguments = MessageArguments(topic, batch)
        for address, count in arguments:
            while error := produce(handle, address, count):
                if self._library.error_code(error) != _queue_full():
                    self._raise_error(error)
                self._library.error_destroy(error)
                self._library.poll(handle, _FULL_WAIT_MS)

    def _raise_error(self, error: int | None) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if error is None:
            return
        library = self._library
        found = KafkaError(
            library.error_code(error),
            library.error_string(error).decode(errors="replace"),
            fatal=bool(library.error_is_fatal(error)),
            retriable=bool(library.error_is_retriable(error)),
            txn_requires_abort=bool(library.error_txn_requires_abort(error)),
        )
        library.error_destroy(error)
        raise KafkaException(found)


def _mixes_partitions(batch: pa.RecordBatch) -> bool:
    """Whether some rows name a partition and for others the key decides, which may be the same one."""
    if "partition" not in batch.schema.names:
        return False
    return len(pc.unique(pc.equal(batch.column("partition"), BY_KEY))) > 1


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, Messages]]:
    """The messages for each partition, or all of them if the key decides.

    The library can also take a partition with each message. As long as it does not know the topic, it then
    adds partition -1 to the transaction, which fails.
    """
    messages = message_array(batch)
    if "partition" not in batch.schema.names:
        yield BY_KEY, messages
        return
    numbers = batch.column("partition").to_numpy(zero_copy_only=False)
    for number in np.unique(numbers).tolist():
        yield number, messages[numbers == number]


def message_array(batch: pa.RecordBatch) -> Messages:
    """Messages as the library takes them. They refer to the memory of the batch."""
    found = np.zeros(batch.num_rows, MESSAGE)
    found["payload"], found["len"] = byte_spans(batch.column("value"))
    if "key" in batch.schema.names:
        found["key"], found["key_len"] = byte_spans(batch.column("key"))
    return found


def byte_spans(column: pa.Array) -> tuple[Words, Words]:
    """Address and length of each value. The address of a null is 0, and that of an empty value is not."""
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    _, ends, data = column.buffers()
    count = len(column)
    offsets = np.frombuffer(ends, np.int64 if wide else np.int32)[column.offset : column.offset + count + 1]
    lengths = np.diff(offsets).astype(np.uint64)
    # Empty values alone have no memory. Any address will do for them.
    base = data.address if data is not None and data.size else ends.address
    addresses = offsets[:-1].astype(np.uint64) + np.uint64(base)
    if column.null_count:
        nulls = pc.is_null(column).to_numpy(zero_copy_only=False)
        addresses[nulls] = 0
        lengths[nulls] = 0
    return addresses, lengths


class MessageArguments:
    """The arguments of each message with headers: where they begin, and how many there are."""

    def __init__(self, topic: int, batch: pa.RecordBatch) -> None:
        self._batch = batch
        names = batch.schema.names
        headers = batch.column("headers") if "headers" in names else pa.nulls(len(batch), pa.list_(HEADER))
        items = pc.list_flatten(headers)
        header_counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        fixed = self._fixed(topic)
        self._counts = (header_counts + len(fixed)).astype(np.int64)
        self._begins = np.cumsum(self._counts) - self._counts
        self._words = np.zeros((int(self._counts.sum()), ARGUMENT_WORDS), np.uint64)
        for place, (kind, *values) in enumerate(fixed):
            self._fill(self._begins + place, kind, values)
        before = np.cumsum(header_counts) - header_counts
        rows = np.repeat(self._begins + len(fixed) - before, header_counts) + np.arange(len(items))
        self._names, addresses = _c_strings(pc.struct_field(items, "key"))
        self._values = pc.struct_field(items, "value")
        self._fill(rows, ArgumentKind.HEADER, [addresses, *byte_spans(self._values)])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        begins = self._words.ctypes.data + self._begins * (ARGUMENT_WORDS * WORD)
        return zip(begins.tolist(), self._counts.tolist(), strict=True)

    def _fixed(self, topic: int) -> list[tuple[Any, ...]]:
        batch = self._batch
        found: list[tuple[Any, ...]] = [
            (ArgumentKind.TOPIC, topic),
            (ArgumentKind.FLAGS, COPY),
            (ArgumentKind.PAYLOAD, *byte_spans(batch.column("value"))),
        ]
        if "key" in batch.schema.names:
            found.append((ArgumentKind.KEY, *byte_spans(batch.column("key"))))
        if "partition" in batch.schema.names:
            # A negative number fills its half of the word; the other half is not read.
            numbers = batch.column("partition").to_numpy(zero_copy_only=False).astype(np.uint32)
            found.append((ArgumentKind.PARTITION, numbers))
        return found

    def _fill(self, rows: np.ndarray[Any, Any], kind: int, values: list[Any]) -> None:
        self._words[rows, 0] = kind
        for place, value in enumerate(values, 1):
            self._words[rows, place] = value


def _c_strings(texts: pa.Array) -> tuple[Any, Words]:
    """Texts with a zero after each, and their addresses. Few of them are different."""
    found = texts.dictionary_encode()
    kept = [ctypes.create_string_buffer(text.encode()) for text in found.dictionary.to_pylist()]
    places = np.array([ctypes.addressof(each) for each in kept], np.uint64)
    return kept, places[found.indices.to_numpy(zero_copy_only=False)]


def _open(
    library: Library, settings: Mapping[str, Any], reports: _Reports, on_error: Callable[[KafkaError], None]
) -> int:
    from confluent_kafka import KafkaError

    def note_failure(_: int, message: Any, __: int) -> None:
        # What is purged or aborted fails as well; the first failure is the cause.
        if reports.failed is None and message.contents.err:
            reports.failed = KafkaError(message.contents.err)

    def note_error(_: int, code: int, reason: bytes, __: int) -> None:
        on_error(KafkaError(code, reason.decode(errors="replace")))

    def note_log(_: int, level: int, facility: bytes, text: bytes) -> None:
        shown = f"{facility.decode(errors='replace')}: {text.decode(errors='replace')}"
        _log.log(_SYSLOG_LEVELS[min(level, 7)], "%s", shown)

    reports.callbacks = (OnFailure(note_failure), OnError(note_error), OnLog(note_log))
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    conf = library.conf_new()
    for name, value in {**settings, "log.queue": True, "delivery.report.only.error": True}.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        if library.conf_set(conf, name.encode(), shown.encode(), text, _TEXT_BYTES) != CONF_OK:
            library.conf_destroy(conf)
            raise _exception(_invalid(), text.value.decode(errors="replace"))
    library.conf_set_dr_msg_cb(conf, reports.callbacks[0])
    library.conf_set_error_cb(conf, reports.callbacks[1])
    library.conf_set_log_cb(conf, reports.callbacks[2])
    handle: int | None = library.new(PRODUCER, conf, text, _TEXT_BYTES)
    if not handle:
        library.conf_destroy(conf)
        raise _exception(_invalid(), text.value.decode(errors="replace"))
    return handle


def _destroy(library: Library, handle: int, topics: dict[str, int], reports: _Reports) -> None:
    for topic in topics.values():
        library.topic_destroy(topic)
    library.destroy(handle)
    reports.callbacks = ()


def _exception(code: int, reason: str | None = None) -> Exception:
    from confluent_kafka import KafkaError, KafkaException

    return KafkaException(KafkaError(code, reason) if reason else KafkaError(code))


def _invalid() -> int:
    from confluent_kafka import KafkaError

    return int(KafkaError._INVALID_ARG)


def _queue_full() -> int:
    from confluent_kafka import KafkaError

    return int(KafkaError._QUEUE_FULL)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
