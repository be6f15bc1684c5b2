"""`MessageLayout`: which columns become the key, the value, the headers and the partition of a message.

Rows become messages in the subtask, before their epoch is published: what is wrong with a row is found
while its epoch can still fail. What is staged is exactly what will be produced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.row_kind import BEFORE, CHANGE, DELETE, RowKind, StreamKind
from lakestate.sinks.kafka.json_values import json_objects
from lakestate.sinks.keyed_rows import require_changes

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
BY_KEY = -1
"""The partition of a message that names none: the partitioner decides."""

FINAL_ROWS = StreamKind()

Columns = str | Sequence[str] | None
"""One column, taken as it is; several, as a JSON object; or none."""

_PLAIN = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """How rows become messages.

    >>> layout = MessageLayout(key="who", value=["n"])
    >>> layout.messages(pa.record_batch({"who": ["a"], "n": [1]}), bytes_max=100).to_pylist()
    [{'key': b'a', 'value': b'{"n":1}'}]
    """

    key: Columns = None
    value: Columns = None
    """Without one, all columns as a JSON object."""
    headers: Mapping[str, str] | str | None = None
    partition: str | None = None
    stream: StreamKind = FINAL_ROWS

    def check(self, schema: pa.Schema, where: str) -> None:
        """Refuse columns that are missing or have the wrong type."""
        used = [*_names(self.key), *self.value_columns(schema), *_header_columns(self.headers)]
        missing = [
            name for name in [*used, *_names(self.partition)] if len(schema.get_all_field_indices(name)) != 1
        ]
        if missing:
            raise InvalidInputError(
                "columns of a message are not in the stream",
                object_name=where,
                found=", ".join(schema.names) or "no column",
                expected=", ".join(missing),
                action="name columns that the stream has",
            )
        for part, columns in (("key", self.key), ("value", self.value)):
            if isinstance(columns, str):
                _require_plain(schema, columns, part, where)
        self._check_headers(schema, where)
        if self.partition is not None and not pa.types.is_integer(schema.field(self.partition).type):
            raise _type_error(schema, self.partition, "partition", where, "an integer", "cast it")
        self._check_changes(where)

    def _check_headers(self, schema: pa.Schema, where: str) -> None:
        if isinstance(self.headers, str):
            found = schema.field(self.headers).type
            if not _is_header_list(found):
                expected = "array<struct<key: string, value: binary>>, as Spark's Kafka source has it"
                raise _type_error(schema, self.headers, "headers", where, expected, "cast it")
            return
        for column in (self.headers or {}).values():
            _require_plain(schema, column, "header", where)

    def _check_changes(self, where: str) -> None:
        """Readers of a compacted topic keep the newest message of a key: it has to be the stream's key."""
        if self.stream.kind is RowKind.APPEND:
            return
        if set(_names(self.key)) != set(self.stream.key):
            raise InvalidInputError(
                "rows that replace each other need their own key as the key of messages",
                object_name=where,
                found=f"key={self.key!r} for {self.stream}",
                expected=f"the columns {', '.join(self.stream.key)}",
                action="call as_log() first, if each of these rows shall count as a message of its own",
            )

    def value_columns(self, schema: pa.Schema) -> list[str]:
        """The columns of the value."""
        if self.value is not None:
            return _names(self.value)
        is_change = self.stream.kind is RowKind.CHANGES
        return [name for name in schema.names if not (is_change and name == CHANGE)]

    def messages(
        self, batch: pa.RecordBatch, bytes_max: int, partitions: int | None = None
    ) -> pa.RecordBatch:
        """The messages of rows. Refuses one that is too large, or for a partition that there is not."""
        rows = self._current_rows(batch)
        found: dict[str, pa.Array] = {}
        if self.key is not None:
            found["key"] = _part(rows, self.key, _names(self.key))
        found["value"] = self._values(rows)
        if self.headers is not None:
            found["headers"] = _headers(rows, self.headers)
        if self.partition is not None:
            found["partition"] = _partitions(rows, self.partition, partitions)
        _check_sizes(found, bytes_max)
        return pa.record_batch(found)

    def _values(self, rows: pa.RecordBatch) -> pa.Array:
        values = _part(rows, self.value, self.value_columns(rows.schema))
        if self.stream.kind is not RowKind.CHANGES:
            return values
        is_deleted = pc.equal(rows.column(CHANGE), DELETE)
        return pc.if_else(is_deleted, pa.scalar(None, values.type), values)

    def _current_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows as they were before an update: the row after it has the same key."""
        if self.stream.kind is not RowKind.CHANGES:
            return batch
        return batch.filter(pc.not_equal(require_changes(batch.column(CHANGE)), BEFORE))


def _names(columns: Columns) -> list[str]:
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) else list(columns)


def _header_columns(headers: Mapping[str, str] | str | None) -> list[str]:
    return [headers] if isinstance(headers, str) else list((headers or {}).values())


def _require_plain(schema: pa.Schema, column: str, part: str, where: str) -> None:
    if not any(matches(schema.field(column).type) for matches in _PLAIN):
        action = "cast it" if part == "header" else f"cast it, or write {part}=[{column!r}] for a JSON object"
        raise _type_error(schema, column, part, where, "a string or binary column", action)


def _type_error(
    schema: pa.Schema, column: str, part: str, where: str, expected: str, action: str
) -> InvalidInputError:
    return InvalidInputError(
        f"a column cannot be the {part} of a message",
        object_name=f"{where}, column {column}",
        found=schema.field(column).type,
        expected=expected,
        action=action,
    )


def _is_header_list(found: pa.DataType) -> bool:
    if not (pa.types.is_list(found) or pa.types.is_large_list(found)):
        return False
    item = found.value_type
    if not pa.types.is_struct(item) or {field.name for field in item} != {"key", "value"}:
        return False
    texts = (pa.types.is_string, pa.types.is_large_string)
    binaries = (pa.types.is_binary, pa.types.is_large_binary)
    return any(is_(item.field("key").type) for is_ in texts) and any(
        is_(item.field("value").type) for is_ in binaries
    )


def _part(rows: pa.RecordBatch, columns: Columns, names: Sequence[str]) -> pa.Array:
    found = rows.column(columns) if isinstance(columns, str) else json_objects(rows, names)
    return found.cast(pa.binary())


def _headers(rows: pa.RecordBatch, headers: Mapping[str, str] | str) -> pa.Array:
    if isinstance(headers, str):
        found = rows.column(headers).cast(pa.list_(HEADER))
        if pc.any(pc.is_null(pc.struct_field(pc.list_flatten(found), "key"))).as_py():
            raise InvalidInputError("a header has no name", object_name=f"column {headers}")
        return found
    count, width = rows.num_rows, len(headers)
    columns = [rows.column(name).cast(pa.binary()) for name in headers.values()]
    # Column after column becomes row after row.
    order = pa.array(np.arange(width * count).reshape(width, count).T.ravel())
    values = pa.concat_arrays([pa.array([], pa.binary()), *columns]).take(order)
    names = pa.array(list(headers) * count, pa.string())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([names, values], fields=list(HEADER)))


def _partitions(rows: pa.RecordBatch, name: str, partitions: int | None) -> pa.Array:
    column = rows.column(name)
    least, most = pc.min_max(column).values()
    wrong = next(
        (
            each.as_py()
            for each in (least, most)
            if each.is_valid and (each.as_py() < 0 or (partitions is not None and each.as_py() >= partitions))
        ),
        None,
    )
    if wrong is not None:
        raise InvalidInputError(
            "a row names a partition that the topic does not have",
            object_name=f"column {name}",
            found=wrong,
            expected=f"0 to {partitions - 1}" if partitions else "0 or more",
            action="correct it before the sink; null leaves the choice to Kafka"
            if wrong < 0
            else "correct it before the sink; if partitions were added, start the job again",
        )
    return pc.fill_null(column, BY_KEY).cast(pa.int32())


def _check_sizes(found: Mapping[str, pa.Array], bytes_max: int) -> None:
    sizes = np.zeros(len(found["value"]), np.int64)
    for part in ("key", "value"):
        if part in found:
            sizes += pc.fill_null(pc.binary_length(found[part]), 0).to_numpy(zero_copy_only=False)
    if "headers" in found:
        sizes += _header_bytes(found["headers"])
    if not len(sizes) or sizes.max() <= bytes_max:
        return
    row = int(sizes.argmax())
    key = found["key"][row].as_py() if "key" in found else None
    raise InvalidInputError(
        "a message is too large",
        object_name=f"row {row} of a batch, key {key[:100] if key else key!r}",
        found=f"{sizes[row]:,} bytes",
        expected=f"at most {bytes_max:,}",
        action="raise max.message.bytes of the topic and the option message.max.bytes of the sink, or make "
        "the row smaller",
    )


def _header_bytes(headers: pa.Array) -> np.ndarray[Any, Any]:
    items = pc.list_flatten(headers)
    each = pc.add(
        pc.binary_length(pc.struct_field(items, "key")),
        pc.fill_null(pc.binary_length(pc.struct_field(items, "value")), 0),
    ).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(each)])
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    stops = np.cumsum(lengths)
    found: np.ndarray[Any, Any] = ends[stops] - ends[stops - lengths]
    return found
