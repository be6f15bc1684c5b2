"""`WindowedStream`: the rows of a stream divided into windows, for what is computed in each of them."""

from __future__ import annotations

from typing import Any, get_args

from lakestate.config import duration_us, require_instance
from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.joins.how import How
from lakestate.operators.windows.panes import WINDOW_START
from lakestate.operators.windows.specs import Duration, Session, Window
from lakestate.row_kind import Emit, RowKind, StreamKind, require_kind
from lakestate.spark.graph.nodes import ClosedRowsNode, KeyByNode
from lakestate.spark.streams.join import JoinOptions, add_window_join
from lakestate.spark.streams.stream import KeyedStream, Stream
from lakestate.spark.streams.window_top import WindowTopRequest, add_window_top
from lakestate.spark.streams.windows import WindowRequest, add_window_aggregate, closes_sql


class WindowedStream:
    """Rows by window, and by key if the stream has one."""

    def __init__(self, stream: Stream, window: Window, allowed_lateness: Duration) -> None:
        if not isinstance(window, get_args(Window)):
            raise InvalidInputError(
                "not a window",
                found=repr(window),
                expected='ls.Tumbling("10 seconds"), ls.Hopping(…, every=…) or ls.Session(…)',
            )
        self._stream = stream
        self._window = window
        self._lateness_us = duration_us(allowed_lateness)

    def __repr__(self) -> str:
        return f"WindowedStream({self._stream!r}, {self._window})"

    def aggregate(
        self, operator_id: str, *, emit: Emit | str = "final", **aggregates: Aggregate
    ) -> WindowResults:
        """Aggregate the rows of every window.

        Rows that come out have the key, `window_start`, `window_end` and the results. `emit="final"` yields a
        window once, when it can no longer change; `"updates"` yields the current results of windows with new
        rows in every epoch, `"changes"` the results before and after, with the column `_change`.
        """
        where = f"aggregate {operator_id}"
        require_kind(self._stream.kind, (RowKind.APPEND,), where)
        emitted = Emit.of(emit, where)
        request = WindowRequest(operator_id, self._window, self._lateness_us, emitted, aggregates)
        building, node = self._stream._building, self._stream._node
        added = add_window_aggregate(building, node, request)
        key = (*building.schemas.key(node), WINDOW_START)
        kind = StreamKind() if emitted is Emit.FINAL else StreamKind(emitted.kind, key)
        return WindowResults(self, added, kind)

    def join(
        self,
        operator_id: str,
        right: WindowedStream,
        *,
        how: How | str = "inner",
        prefix: tuple[str, str] | None = None,
    ) -> Stream:
        """Join with the rows of another stream that have the same key, in the same window.

        Both streams have the same window. Rows come out when it is over, with `window_start` and
        `window_end` after the columns of the left side. `how` and `prefix` as in `KeyedStream.join`.
        """
        where = f"join {operator_id}"
        require_instance(f"the right side of {where}", right, WindowedStream)
        left: Any = require_instance("the stream of a window", self._stream, KeyedStream)
        other = left._right_side(right._stream, where)
        window = self._window
        if isinstance(window, Session) or window.time != "event":
            raise InvalidInputError(
                "streams are joined by tumbling or hopping windows of event time",
                object_name=where,
                found=str(window),
            )
        if (window, self._lateness_us) != (right._window, right._lateness_us):
            raise InvalidInputError(
                "both sides of a join need the same window",
                object_name=where,
                found=f"{window} and {right._window}",
                action="give both the same window and allowed_lateness",
            )
        options = JoinOptions(how, None, None, prefix)
        building, nodes = left._building, (left._node, other._node)
        return Stream(
            building, add_window_join(building, *nodes, operator_id, window, self._lateness_us, options)
        )

    def top(
        self, operator_id: str, *, n: int, by: str, ties: str = "break", emit: Emit | str = "final"
    ) -> WindowResults:
        """Keep the n first rows of every window, and of each key if there is one, in the order `by`.

        Rows that come out have `window_start`, `window_end` and their `rank`. See `KeyedStream.top`.
        """
        require_kind(self._stream.kind, (RowKind.APPEND,), f"top {operator_id}")
        request = WindowTopRequest(operator_id, self._window, self._lateness_us, n, by, ties, emit)
        building, node = self._stream._building, self._stream._node
        key = building.schemas.key(node) if isinstance(self._stream, KeyedStream) else ()
        return WindowResults(self, add_window_top(building, node, key, request), StreamKind())


class WindowResults(Stream):
    """The results of windows."""

    def __init__(self, windows: WindowedStream, node: Any, kind: StreamKind) -> None:
        super().__init__(windows._stream._building, node, kind)
        self._windows = windows

    def late_rows(self) -> Stream:
        """The rows that no window took, as they came: too late for all of theirs, or without event time."""
        stream, building = self._windows._stream, self._building
        closes = closes_sql(
            building, stream._node, self._windows._window, self._windows._lateness_us, "late_rows"
        )
        parent = stream._node.parent if isinstance(stream._node, KeyByNode) else stream._node
        return Stream(building, building.graph.add(ClosedRowsNode(parent, closes)))
