"""`Stream` and its relatives: what users chain. Each method adds nodes to the graph, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakestate.config import require_instance
from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.joins.how import How, Within
from lakestate.operators.keyed_function.function import KeyedFunction
from lakestate.operators.operator import Operator
from lakestate.row_kind import Emit, RowKind, StreamKind, require_kind
from lakestate.sinks.sink import Sink
from lakestate.spark.graph.column_names import quote_name
from lakestate.spark.graph.description import describe_node
from lakestate.spark.graph.nodes import (
    ApplyNode,
    ConnectNode,
    KeyByNode,
    KeyColumn,
    LateRowsNode,
    SinkNode,
    Transform,
    TransformNode,
)
from lakestate.spark.graph.partition_shuffle import add_partition_shuffle
from lakestate.spark.streams.aggregate import add_running_aggregate
from lakestate.spark.streams.building import Building, check_expression
from lakestate.spark.streams.deduplicate import add_deduplicate
from lakestate.spark.streams.initial_state import check_initial_state
from lakestate.spark.streams.join import JoinOptions, add_join
from lakestate.spark.streams.lookup import LookupOptions, add_lookup, add_static_lookup
from lakestate.spark.streams.process import add_keyed_function
from lakestate.spark.streams.top import add_top

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakestate.operators.windows.specs import Duration, Window
    from lakestate.spark.streams.windowed import WindowedStream


class Stream:
    """The rows at one point of a pipeline."""

    def __init__(self, building: Building, node: Any, kind: StreamKind = StreamKind()) -> None:  # noqa: B008
        self._building = building
        self._node = node
        self._kind = kind

    def __repr__(self) -> str:
        return f"{type(self).__name__}({describe_node(self._node)})"

    @property
    def kind(self) -> StreamKind:
        """What its rows mean: final rows, updates by key, or changes."""
        return self._kind

    def transform(self, function: Transform) -> Stream:
        """Apply Spark SQL: any function from DataFrame to DataFrame. It is called in every epoch."""
        if not callable(function):
            raise InvalidInputError(
                "a transform is not a function", found=type(function).__name__, action="write lambda df: …"
            )
        # A transform could leave out the update of a row that it has passed on before.
        require_kind(self._kind, (RowKind.APPEND, RowKind.CHANGES), "a transform")
        return self._then(TransformNode(self._node, function))

    def select(self, *columns: str) -> Stream:
        """Compute columns from those of each row, as SQL expressions: "price * 0.908 AS euros"."""
        if not columns or not all(isinstance(column, str) for column in columns):
            raise InvalidInputError(
                "select takes SQL expressions",
                found=columns or "none",
                action='write select("a", "b + 1 AS c")',
            )
        frame = self._building.schemas.empty_frame(self._node)
        for text in columns:
            if text != "*":
                check_expression("select", text, frame)
        selected = self._then(TransformNode(self._node, lambda rows: rows.selectExpr(*columns)))
        self._require_key_kept(selected)
        return selected

    def where(self, condition: str) -> Stream:
        """Keep the rows for which an SQL condition is true."""
        require_kind(self._kind, (RowKind.APPEND, RowKind.CHANGES), "where")
        check_expression("where", condition, self._building.schemas.empty_frame(self._node))
        return self._then(TransformNode(self._node, lambda rows: rows.where(condition)))

    def as_log(self) -> Stream:
        """The same rows, each counted as a row of its own: updates and changes as a log of them."""
        return Stream(self._building, self._node)

    def key_by(self, *columns: KeyColumn) -> KeyedStream:
        """Route rows by columns or expressions. An expression becomes a column, named by its alias."""
        if not columns or any(isinstance(column, list | tuple) for column in columns):
            raise InvalidInputError(
                "key_by takes one or more columns", found=columns or "none", action='write key_by("a", "b")'
            )
        node = self._building.graph.add(KeyByNode(self._node, tuple(columns)))
        return KeyedStream(self._building, node, self._kind)

    def window(self, window: Window, *, allowed_lateness: Duration = "0 seconds") -> WindowedStream:
        """Divide rows into windows: `ls.Tumbling`, `ls.Hopping` or `ls.Session`.

        A window stays open for rows until the watermark has passed its end by `allowed_lateness`.
        """
        from lakestate.spark.streams.windowed import WindowedStream

        return WindowedStream(self, window, allowed_lateness)

    def apply(
        self, operator_id: str, operator: Operator, *, initial: Mapping[str, DataFrame] | None = None
    ) -> Stream:
        """Run an operator over these rows.

        Steps that follow without a new `key_by` or `transform` run in the same task.

        `initial` fills tables, each from a batch DataFrame with the table's columns, in the first epoch of
        the job, before any row is read. A job that has an epoch is not filled again. Let the source begin
        where the rows of the DataFrame end: Lakestate cannot know.
        """
        require_instance(f"operator {operator_id}", operator, Operator)
        filled = check_initial_state(operator_id, operator, initial or {})
        return Stream(
            self._building,
            self._building.graph.add(ApplyNode(self._node, operator_id, operator, filled)),
        )

    def sink(self, sink_id: str, sink: Sink) -> None:
        """Write these rows to a sink, exactly once."""
        require_instance(f"sink {sink_id}", sink, Sink)
        sink = sink.for_stream(self._kind, f"sink {sink_id}")
        graph = self._building.graph
        graph.add(SinkNode(add_partition_shuffle(sink, graph, self._node), sink_id, sink))

    def _then(self, node: Any) -> Stream:
        return Stream(self._building, self._building.graph.add(node), self._kind)

    def _require_key_kept(self, selected: Stream) -> None:
        names = [column.name for column in self._building.columns(selected._node)]
        needed = [*self._kind.key, *(["_change"] if self._kind.kind is RowKind.CHANGES else [])]
        lost = [name for name in needed if name not in names]
        if lost:
            raise InvalidInputError(
                "select leaves out columns that say which row an update replaces",
                found=", ".join(names),
                expected=", ".join(needed),
                action=f"select {', '.join(map(quote_name, lost))} too",
            )


class SourceStream(Stream):
    """The rows of a source."""

    def late_rows(self) -> Stream:
        """The rows that arrived after the watermark had passed them, as a separate stream."""
        return Stream(self._building, self._building.graph.add(LateRowsNode(self._node)))


class KeyedStream(Stream):
    """Rows routed by key."""

    def connect(self, right: KeyedStream) -> ConnectedStreams:
        """Connect this stream with another one keyed the same way, for an operator with two inputs."""
        require_instance("the stream to connect with", right, KeyedStream)
        return ConnectedStreams(
            self._building, self._building.graph.add(ConnectNode(self._node, right._node))
        )

    def aggregate(
        self, operator_id: str, *, emit: Emit | str | None = None, **aggregates: Aggregate
    ) -> Stream:
        """Aggregate all rows of a key so far, and yield what changed in every epoch.

        `emit="updates"`, the default, yields the current results of keys with new rows, `"changes"` the
        results before and after, with the column `_change`. Over a stream of changes, rows that they take
        back no longer count, and results are changes too.
        """
        require_kind(self._kind, (RowKind.APPEND, RowKind.CHANGES), f"aggregate {operator_id}")
        node, emitted = add_running_aggregate(
            self._building, self._node, operator_id, aggregates, emit, self._kind
        )
        key = self._building.schemas.key(self._node)
        return Stream(self._building, node, StreamKind(emitted.kind, key))

    def process(self, operator_id: str, function: KeyedFunction) -> Stream:
        """Call a function for one key at a time, with state and timers; see `lakestate.KeyedFunction`."""
        require_instance(f"function {operator_id}", function, KeyedFunction)
        require_kind(self._kind, (RowKind.APPEND,), f"process {operator_id}")
        return Stream(self._building, add_keyed_function(self._building, self._node, operator_id, function))

    def deduplicate(
        self,
        operator_id: str,
        *,
        within: str | timedelta | None = None,
        keep: str = "first",
        time: str = "event",
        emit: Emit | str | None = None,
    ) -> Stream:
        """Keep one row of each key: the first, or with `keep="last"` the newest, as updates.

        Keys are remembered for `within`, in event time or with `time="processing"` in processing time, or
        `"for ever"`.
        """
        require_kind(self._kind, (RowKind.APPEND,), f"deduplicate {operator_id}")
        options: dict[str, Any] = {"within": within, "keep": keep, "time": time, "emit": emit}
        return Stream(self._building, *add_deduplicate(self._building, self._node, operator_id, **options))

    def top(
        self, operator_id: str, *, n: int, by: str, ties: str = "break", emit: Emit | str | None = None
    ) -> Stream:
        """Keep the n first rows of each key in the order `by`, such as "price desc, ts", with their `rank`.

        Ties are broken by all columns. With `ties="all"`, rows that are tied with the n-th one stay too.
        """
        require_kind(self._kind, (RowKind.APPEND,), f"top {operator_id}")
        return Stream(
            self._building,
            *add_top(self._building, self._node, operator_id, n=n, by=by, ties=ties, emit=emit),
        )

    def join(
        self,
        operator_id: str,
        right: KeyedStream,
        *,
        how: How | str = "inner",
        within: Within = None,
        keep: str | timedelta | None = None,
        prefix: tuple[str, str] | None = None,
    ) -> Stream:
        """Join with rows of another stream that have the same key and are close in time.

        `within=("0 seconds", "1 hour")`: the right row is up to an hour later than the left one.
        `keep="7 days"`: at most so far apart; `keep="for ever"`: all rows stay in state. `how` is inner,
        left, right, full, semi or anti. `prefix` is put before names that both sides have.
        """
        other = self._right_side(right, f"join {operator_id}")
        options = JoinOptions(how, within, keep, prefix)
        return Stream(self._building, add_join(self._building, self._node, other._node, operator_id, options))

    def lookup(
        self,
        operator_id: str,
        right: KeyedStream | DataFrame,
        *,
        columns: Sequence[str] | None = None,
        how: How | str = "left",
        keep: str | timedelta | None = None,
        on: Sequence[str] | str | None = None,
        prefix: tuple[str, str] | None = None,
    ) -> Stream:
        """Add columns of the newest row that another stream has for the key, or of a static DataFrame.

        `how="inner"` leaves out rows whose key is not there. `keep="7 days"` forgets rows of the stream by
        their event time. `on` names the columns of a DataFrame that are compared with the key.
        """
        who, options = f"lookup {operator_id}", LookupOptions(columns, how, keep, prefix)
        building, node = self._building, self._node
        if not isinstance(right, Stream) and hasattr(right, "isStreaming"):
            require_kind(self._kind, (RowKind.APPEND,), f"the left side of {who}")
            return Stream(building, add_static_lookup(building, node, right, on, operator_id, options))
        other = self._right_side(right, who, (RowKind.APPEND, RowKind.UPSERT))
        if on is not None:
            raise InvalidInputError("on is for a DataFrame: a stream has key_by", object_name=who)
        added = add_lookup(building, node, other._node, other._kind, operator_id, options)
        return Stream(building, added)

    def _right_side(
        self, right: Any, who: str, taken: tuple[RowKind, ...] = (RowKind.APPEND,)
    ) -> KeyedStream:
        """The other side of a join, after checking that both sides can be joined."""
        other: KeyedStream = require_instance(f"the right side of {who}", right, KeyedStream)
        if other._building is not self._building:
            raise InvalidInputError("the streams are of two pipelines", object_name=who)
        require_kind(self._kind, (RowKind.APPEND,), f"the left side of {who}")
        require_kind(other._kind, taken, f"the right side of {who}")
        return other


class ConnectedStreams:
    """Two keyed streams side by side."""

    def __init__(self, building: Building, node: ConnectNode) -> None:
        self._building = building
        self._node = node

    def __repr__(self) -> str:
        return f"ConnectedStreams({describe_node(self._node)})"

    def apply(self, operator_id: str, operator: Operator) -> Stream:
        """Run a `TwoInputOperator` over both streams."""
        require_instance(f"operator {operator_id}", operator, Operator)
        return Stream(self._building, self._building.graph.add(ApplyNode(self._node, operator_id, operator)))
