"""Which directory each row goes to, decided for a whole batch at once.

Only distinct values are turned into text; rows are sorted into their partitions by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.names import did_you_mean
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.partitioning.paths import check_partition_type, partition_name

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Partitioning:
    """By columns, with directories named as in Hive, and by patterns of event time, in the order given.

    >>> rows = pa.record_batch({"country": ["DE", "FR", "DE"], "n": [1, 2, 3]})
    >>> by_country = Partitioning(("country",))
    >>> [(path, part["n"].to_pylist()) for path, part in by_country.split(rows, None)]
    [('country=DE', [1, 3]), ('country=FR', [2])]
    """

    by: tuple[str | EventTime, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are in the path and therefore not in the files."""
        return tuple(each for each in self.by if isinstance(each, str))

    @property
    def event_time(self) -> EventTime | None:
        """The finest pattern of event time, if there is one."""
        patterns = [each for each in self.by if isinstance(each, EventTime)]
        return min(patterns, key=lambda each: each.end_us(0), default=None)

    def check(self, schema: pa.Schema, event_time: str | None) -> None:
        """Refuse rows that cannot be partitioned this way, or that lack the event time."""
        for name in self.columns:
            if schema.get_field_index(name) < 0:
                raise InvalidInputError(
                    "files are partitioned by a column that rows do not have",
                    object_name=name,
                    found=", ".join(schema.names),
                    action=did_you_mean(name, schema.names),
                )
            check_partition_type(name, schema.field(name).type)
        if len(set(self.columns)) != len(self.columns):
            raise InvalidInputError("a partition column is given twice", found=", ".join(self.columns))
        if self.event_time is not None:
            require_event_time(event_time)
        if event_time is not None:
            _check_event_time(schema, event_time)

    def split(self, batch: pa.RecordBatch, event_time: str | None) -> list[tuple[str, pa.RecordBatch]]:
        """The rows of each partition, in the order they came. The path is empty without partitions."""
        if not self.by or not len(batch):
            return [("", batch)] if len(batch) else []
        codes, paths = self._encode_partitions(batch, event_time)
        if len(paths) == 1:
            return [(paths[0], batch)]
        order = np.argsort(codes, kind="stable")
        sorted_rows = batch.take(pa.array(order))
        ends = np.cumsum(np.bincount(codes, minlength=len(paths))).tolist()
        starts = [0, *ends[:-1]]
        return [
            (path, sorted_rows.slice(start, end - start))
            for path, start, end in zip(paths, starts, ends, strict=True)
        ]

    def _encode_partitions(self, batch: pa.RecordBatch, event_time: str | None) -> tuple[Codes, list[str]]:
        """For each row the number of its path, and the paths that occur."""
        codes, paths = np.zeros(len(batch), np.int64), [""]
        for each in self.by:
            if isinstance(each, str):
                more, names = _column_names(each, batch.column(each))
            else:
                more, names = _time_names(each, batch.column(require_event_time(event_time)))
            present, codes = np.unique(codes * len(names) + more, return_inverse=True)
            paths = [
                _join_path(paths[code // len(names)], names[code % len(names)]) for code in present.tolist()
            ]
        return codes, paths


def require_event_time(event_time: str | None) -> str:
    """The event-time column. Raises InvalidInputError if there is none."""
    if event_time is None:
        raise InvalidInputError(
            "files are partitioned by event time, but the stream has none",
            action="declare the event-time column at the source, and keep it up to the sink",
        )
    return event_time


def _column_names(name: str, column: pa.Array) -> tuple[Codes, list[str]]:
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"), safe=False)
    encoded = values.dictionary_encode(null_encoding="encode")
    return _distinct_codes(encoded, [partition_name(name, value) for value in _values(encoded.dictionary)])


def _values(distinct: pa.Array) -> list[Any]:
    """The values as Python objects; dates and times as NumPy values, because Python's calendar is shorter."""
    if pa.types.is_timestamp(distinct.type):
        numbers, unit = distinct.cast(pa.int64()), "datetime64[us]"
    elif pa.types.is_date(distinct.type):
        numbers, unit = distinct.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), "datetime64[D]"
    else:
        return list(distinct.to_pylist())
    moments = numbers.fill_null(0).to_numpy(zero_copy_only=False).view(unit)
    return [
        moment if known else None
        for moment, known in zip(moments, numbers.is_valid().to_pylist(), strict=True)
    ]


def _time_names(pattern: EventTime, column: pa.Array) -> tuple[Codes, list[str]]:
    encoded = pattern.floor(column).dictionary_encode(null_encoding="encode")
    times = encoded.dictionary.cast(pa.int64()).to_pylist()
    names = [pattern.path_of_none if time is None else pattern.path_of(time) for time in times]
    return _distinct_codes(encoded, names)


def _distinct_codes(encoded: pa.DictionaryArray, names: Sequence[str]) -> tuple[Codes, list[str]]:
    """Codes of distinct names. Different values can share a name, such as null and the empty text."""
    distinct, numbers = np.unique(np.array(names, dtype=object).astype(str), return_inverse=True)
    indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers.astype(np.int64)[indices], distinct.tolist()


def _join_path(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _check_event_time(schema: pa.Schema, event_time: str) -> None:
    if schema.get_field_index(event_time) < 0:
        raise InvalidInputError(
            "rows do not have the event-time column",
            object_name=event_time,
            found=", ".join(schema.names),
            action=did_you_mean(event_time, schema.names),
        )
    if not pa.types.is_timestamp(schema.field(event_time).type):
        raise InvalidInputError(
            "the event-time column is not a timestamp",
            object_name=event_time,
            found=schema.field(event_time).type,
        )
