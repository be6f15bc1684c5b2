"""`WindowedStream`: the rows of a stream divided into windows, for what is computed in each of them."""

from __future__ import annotations

from typing import get_args

from lakestate.config import duration_us, require_instance
from lakestate.errors import InvalidInputError
from lakestate.operators.aggregates.aggregate import Aggregate
from lakestate.operators.windows.panes import WINDOW_START
from lakestate.operators.windows.specs import Duration, Window
from lakestate.row_kind import Emit, RowKind, StreamKind, require_kind
from lakestate.spark.streams.stream import KeyedStream, Stream
from lakestate.spark.streams.windows import WindowRequest, add_window_aggregate


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

    def aggregate(self, operator_id: str, *, emit: Emit | str = "final", **aggregates: Aggregate) -> Stream:
        """Aggregate the rows of every window.

        Rows that come out have the key, `window_start`, `window_end` and the results. `emit="final"` yields a
        window once, when it can no longer change.
        """
        where = f"aggregate {operator_id}"
        require_kind(self._stream.kind, (RowKind.APPEND,), where)
        request = WindowRequest(
            operator_id, self._window, self._lateness_us, Emit.of(emit, where), aggregates
        )
        require_instance("the stream of a window", self._stream, KeyedStream)
        building, node = self._stream._building, self._stream._node
        key = building.schemas.key(node)
        kind = StreamKind(request.emit.kind, (*key, WINDOW_START) if request.emit is not Emit.FINAL else ())
        return Stream(building, add_window_aggregate(building, node, request), kind)
