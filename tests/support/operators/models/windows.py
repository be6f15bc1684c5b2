"""Windows in plain Python, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.operators.models.history import Outcome, Row, Step, at, steps, total, us

from lakestate.testing.plugin import Seen

SECOND = 1_000_000
Group = tuple[Any, int]


def final_windows(size_s: int, hop_s: int, pane_s: int, lateness_s: int, seen: Seen) -> Outcome:
    """Windows that come out once, and the panes of those that are open."""
    size, hop, late = size_s * SECOND, hop_s * SECOND, lateness_s * SECOND
    windows: dict[Group, list[Any]] = {}
    panes: list[tuple[Group, list[Any]]] = []
    output: list[Row] = []
    for step in steps(seen):
        new: dict[Group, list[Any]] = {}
        for row in _timed(step):
            time = us(row["ts"])
            starts = [start for start in _starts(time, size, hop) if start + size + late > step.before_us]
            for start in starts:
                windows.setdefault((row["k"], start), []).append(row["v"])
            if starts:
                new.setdefault((row["k"], time // (pane_s * SECOND) * pane_s * SECOND), []).append(row["v"])
        panes += new.items()
        closing = [group for group in windows if group[1] + size + late <= step.closes_us]
        output += [_window(group, group[1] + size, windows.pop(group)) for group in closing]
        panes = [each for each in panes if each[0][1] + size + late > step.now_us]
        if step.epoch.is_last:
            # What has come out is deleted by key. A pane that is in no open window is left to expire.
            first = min(_starts_open_at(step.before_us - late, size, hop))
            gone = {key for (key, start), _ in panes if start >= first}
            panes = [each for each in panes if each[0][0] not in gone]
    rows = [{"k": k, "pane_start": at(start), **_sums(values)} for (k, start), values in panes]
    return Outcome(output, {"panes": rows})


def updating_windows(size_s: int, seen: Seen) -> Outcome:
    """Windows of which every epoch yields the current values."""
    size = size_s * SECOND
    windows: dict[Group, list[Any]] = {}
    output: list[Row] = []
    for step in steps(seen):
        changed: dict[Group, None] = {}
        for row in _timed(step):
            (start,) = _starts(us(row["ts"]), size, size)
            if start + size > step.before_us:
                windows.setdefault((row["k"], start), []).append(row["v"])
                changed[row["k"], start] = None
        output += [_window(group, group[1] + size, windows[group]) for group in changed]
        # A window that ends with the watermark is not taken any more, and its row expires one epoch later.
        windows = {group: values for group, values in windows.items() if group[1] + size >= step.now_us}
    return Outcome(
        output, {"windows": [_window(group, group[1] + size, found) for group, found in windows.items()]}
    )


def sessions(gap_s: int, lateness_s: int, seen: Seen) -> Outcome:
    """Sessions that come out once, those that are open, and until when they were."""
    gap, lasts = gap_s * SECOND, (gap_s + lateness_s) * SECOND
    found: dict[Group, tuple[int, list[Any]]] = {}
    deadlines: list[tuple[Any, int, int]] = []
    output: list[Row] = []
    for step in steps(seen):
        rows = [row for row in _timed(step) if us(row["ts"]) > step.before_us - lasts]
        for key in dict.fromkeys(row["k"] for row in rows):
            before = {start: each for (k, start), each in found.items() if k == key}
            pieces = [(start, last, values) for start, (last, values) in before.items()]
            pieces += [(us(row["ts"]), us(row["ts"]), [row["v"]]) for row in rows if row["k"] == key]
            found = {group: each for group, each in found.items() if group[0] != key}
            for start, last, values in _unite(pieces, gap):
                found[key, start] = (last, values)
                if start not in before or before[start][0] != last:
                    deadlines.append((key, start, last + lasts - 1))
        closing = [group for group, (last, _) in found.items() if last + lasts <= step.closes_us]
        for group in closing:
            last, values = found.pop(group)
            output.append(_window(group, last + gap, values))
        deadlines = [each for each in deadlines if each[2] >= step.now_us and not step.epoch.is_last]
    return Outcome(
        output,
        {
            "sessions": [
                {"k": k, "session_start": at(start), "last_row": at(last), **_sums(values)}
                for (k, start), (last, values) in found.items()
            ],
            "deadlines": [
                {"k": k, "session_start": at(start), "open_until": at(until)} for k, start, until in deadlines
            ],
        },
    )


def _unite(pieces: list[tuple[int, int, list[Any]]], gap: int) -> Iterator[tuple[int, int, list[Any]]]:
    pieces = sorted(pieces, key=lambda piece: piece[:2])
    start, last, values = pieces[0][0], pieces[0][1], [*pieces[0][2]]
    for first, until, more in pieces[1:]:
        if first - last >= gap:
            yield start, last, values
            start, last, values = first, until, [*more]
        else:
            last, values = max(last, until), [*values, *more]
    yield start, last, values


def _timed(step: Step) -> list[Row]:
    return [row for row in step.rows if row["ts"] is not None]


def _starts(time: int, size: int, hop: int) -> list[int]:
    last = time // hop * hop
    return [start for start in range(last, time - size - hop, -hop) if start <= time < start + size]


def _starts_open_at(time: int, size: int, hop: int) -> list[int]:
    """The first window that ends after a time, and one more."""
    first = (time - size) // hop * hop + hop
    return [first, first + hop]


def _sums(values: list[Any]) -> Row:
    return {"n": len(values), "total": total(values)}


def _window(group: Group, end: int, values: list[Any]) -> Row:
    return {"k": group[0], "window_start": at(group[1]), "window_end": at(end), **_sums(values)}
