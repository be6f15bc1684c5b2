"""`stream.key_by(…).lookup(…)` as nodes: the newest row of another stream, or a row of a static DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError
from lakestate.operators.joins.how import How
from lakestate.operators.joins.lookup import Lookup
from lakestate.row_kind import RowKind, StreamKind
from lakestate.spark.graph.column_names import column_named, quote_name, unknown_column_error
from lakestate.spark.graph.nodes import ApplyNode, ConnectNode, KeyByNode, TransformNode
from lakestate.spark.streams.building import Building
from lakestate.spark.streams.join_names import TIME, check_free, check_keys, join_names, rename_in_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WAYS = (How.LEFT, How.INNER)
_KEY, _ROW = "__lookup_key_", "__lookup_row"


@dataclass(frozen=True)
class LookupOptions:
    """What users say about a lookup."""

    columns: Sequence[str] | None
    how: How | str
    keep: str | timedelta | None
    prefix: tuple[str, str] | None


def add_lookup(
    building: Building, left: Any, right: Any, kind: StreamKind, operator_id: str, options: LookupOptions
) -> ApplyNode:
    """Add the nodes of a lookup in another keyed stream."""
    where = f"lookup {operator_id}"
    how = How.of(options.how, where, _WAYS)
    check_keys(building, left, right, where)
    key, right_key = building.schemas.key(left), building.schemas.key(right)
    _check_kind(kind, right_key, options, where)
    there = [column.name for column in building.columns(right)]
    chosen = _chosen(there, right_key, options.columns, where)
    left_columns = [column.name for column in building.columns(left)]
    names = join_names(left_columns, [*right_key, *chosen], (key, right_key), options.prefix, where)
    selected = _selected(names.right)
    by_time = kind.kind is RowKind.APPEND
    time = building.time_sql(right) if by_time else None
    if options.keep is not None:
        time = building.require_time(right, f"{where} with keep=…")
    if time is not None:
        check_free(selected, where)
        selected[TIME] = time
    sides = [
        building.graph.add(KeyByNode(building.select(node, columns, where), tuple(map(quote_name, key))))
        for node, columns in ((left, _selected(names.left)), (right, selected))
    ]
    left_time = building.time_sql(left)
    operator = Lookup(
        key,
        building.columns(sides[0]),
        building.columns(sides[1]),
        how,
        time=None if time is None else TIME,
        keep=None if options.keep is None else timedelta(microseconds=duration_us(options.keep)),
        hidden=[TIME],
        output_time=None if left_time is None else rename_in_sql(left_time, names.left),
    )
    joined = ApplyNode(building.graph.add(ConnectNode(*sides)), operator_id, operator)
    building.graph.add(joined)
    return joined


def add_static_lookup(
    building: Building,
    left: Any,
    frame: DataFrame,
    on: Sequence[str] | str | None,
    operator_id: str,
    options: LookupOptions,
) -> TransformNode:
    """Add the node of a lookup in a static DataFrame, which Spark joins in every epoch."""
    where = f"lookup {operator_id}"
    how = How.of(options.how, where, _WAYS)
    if frame.isStreaming:
        raise InvalidInputError(
            "a lookup takes a static DataFrame, or a keyed stream of the pipeline",
            object_name=where,
            found="a streaming DataFrame",
            action='write pipeline.source(frame, name=…).key_by("id")',
        )
    if options.keep is not None:
        raise InvalidInputError(
            "keep is for streams: a static DataFrame is read in every epoch", object_name=where
        )
    key = building.schemas.key(left)
    right_key = _static_key(frame, key, on, where)
    chosen = _chosen(frame.columns, right_key, options.columns, where)
    left_columns = [column.name for column in building.columns(left)]
    names = join_names(left_columns, [*right_key, *chosen], (key, right_key), options.prefix, where)
    lookup = _StaticLookup(
        frame, key, right_key, names.left, {name: names.right[name] for name in chosen}, how, where
    )
    node: TransformNode = building.graph.add(TransformNode(left, lookup))
    building.columns(node)
    return node


@dataclass(frozen=True)
class _StaticLookup:
    """Joins the rows of an epoch with a DataFrame that has each key once."""

    frame: DataFrame
    key: Sequence[str]
    right_key: Sequence[str]
    left_names: Mapping[str, str]
    right_names: Mapping[str, str]
    how: How
    where: str

    def __call__(self, rows: DataFrame) -> DataFrame:
        """The rows of an epoch, with the columns of the DataFrame."""
        right = self._unique_rows()
        conditions = [F.col(quote_name(name)) == F.col(f"{_KEY}{n}") for n, name in enumerate(self.key)]
        joined = rows.join(F.broadcast(right), conditions, self.how.value)
        return joined.select(
            *[F.col(quote_name(name)).alias(new) for name, new in self.left_names.items()],
            *[F.col(f"{_ROW}.{quote_name(new)}").alias(new) for new in self.right_names.values()],
        )

    def _unique_rows(self) -> DataFrame:
        """The key and the chosen columns. A key that is there twice fails the epoch."""
        keys = [F.col(quote_name(name)).alias(f"{_KEY}{n}") for n, name in enumerate(self.right_key)]
        columns = [F.col(quote_name(name)).alias(new) for name, new in self.right_names.items()]
        names = [f"{_KEY}{n}" for n in range(len(keys))]
        text = f"{self.where}: the DataFrame has a key twice, and a row would come out twice"
        twice = F.raise_error(F.concat(F.lit(f"{text}: "), F.to_json(F.struct(*names))))
        row = F.struct(*columns) if columns else F.struct(F.lit(True))
        # One partition, so that it is grouped without a shuffle: it is sent to all tasks anyway.
        return (
            self.frame.select(*keys, row.alias(_ROW))
            .dropna(subset=names)
            .coalesce(1)
            .groupBy(*names)
            .agg(F.when(F.count(F.lit(1)) == 1, F.first(_ROW)).otherwise(twice).alias(_ROW))
        )


def _static_key(
    frame: DataFrame, key: Sequence[str], on: Sequence[str] | str | None, where: str
) -> list[str]:
    given = [on] if isinstance(on, str) else list(key if on is None else on)
    for name in given:
        if column_named(name, frame.columns) is None:
            raise unknown_column_error(f"on of {where}", name, frame.columns)
    if len(given) != len(key):
        raise InvalidInputError(
            "a lookup needs a column of the DataFrame for each column of the key",
            object_name=where,
            found=f"on={given!r}",
            expected=f"{len(key)} columns, for {', '.join(key)}",
        )
    return [str(column_named(name, frame.columns)) for name in given]


def _chosen(there: Sequence[str], key: Sequence[str], columns: Any, where: str) -> list[str]:
    if columns is None:
        return [name for name in there if name not in key]
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InvalidInputError(
            "columns takes a list of names", object_name=where, found=repr(columns), expected='["item"]'
        )
    for name in columns:
        if column_named(name, there) is None:
            raise unknown_column_error(f"columns of {where}", name, there)
    chosen = [str(column_named(name, there)) for name in columns]
    keys = [name for name in chosen if name in key]
    if keys or len({*chosen}) < len(chosen):
        raise InvalidInputError(
            "columns names a column that is there already",
            object_name=where,
            found=", ".join(keys or chosen),
            action="leave it out: the key comes out under the name that it has on the left",
        )
    return chosen


def _check_kind(kind: StreamKind, key: Sequence[str], options: LookupOptions, where: str) -> None:
    if kind.kind is not RowKind.UPSERT:
        return
    if {*kind.key} != {*key}:
        raise InvalidInputError(
            "updates can be looked up by their own key alone",
            object_name=where,
            found=f"{kind}, keyed by {', '.join(key)}",
            action=f"key_by({', '.join(map(repr, kind.key))})",
        )
    if options.keep is not None:
        raise InvalidInputError(
            "keep is for final rows: an update has no time by which it could be forgotten", object_name=where
        )


def _selected(names: Mapping[str, str]) -> dict[str, str]:
    return {new: quote_name(name) for name, new in names.items()}
