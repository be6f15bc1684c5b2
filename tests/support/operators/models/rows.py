"""Operators that keep or follow single rows, in plain Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.operators.models.history import Outcome, Row, at, steps, total, us

import lakestate as ls
from lakestate.testing.plugin import Seen

SECOND = 1_000_000
SILENCE_S = 4


def first_rows(within_s: int, seen: Seen) -> Outcome:
    """The first row of each key, and none near it in time."""
    within = within_s * SECOND
    kept: list[Row] = []
    known: list[tuple[Any, int]] = []
    for step in steps(seen):
        rows = [row for row in step.rows if us(row["ts"]) >= step.before_us]
        for row in sorted(rows, key=lambda row: (row["ts"], -1 if row["v"] is None else row["v"], row["id"])):
            if not any(key == row["k"] and abs(time - us(row["ts"])) <= within for key, time in known):
                kept.append(row)
                known.append((row["k"], us(row["ts"])))
        known = [(key, time) for key, time in known if time >= step.now_us - within]
    return Outcome(kept, {"seen": [{"k": key, "first_seen": at(time)} for key, time in known]})


def top_changes(n: int, seen: Seen) -> Outcome:
    """What changes among the rows with the greatest values of each key."""
    best: dict[Any, list[Row]] = {}
    output: list[Row] = []
    for step in steps(seen):
        for key in dict.fromkeys(row["k"] for row in step.rows):
            before = best.get(key, [])
            rows = before + [row for row in step.rows if row["k"] == key]
            best[key] = after = sorted(rows, key=_by_value)[:n]
            for place, row in enumerate(after):
                output += _change(before[place] if place < len(before) else None, row, place + 1)
    held = [row | {"rank": place} for rows in best.values() for place, row in enumerate(rows, 1)]
    return Outcome(output, {"best": held})


def _by_value(row: Row) -> tuple[Any, ...]:
    """By "v desc, id": nulls come last."""
    return row["v"] is None, -(row["v"] or 0), row["id"]


def _change(before: Row | None, after: Row, rank: int) -> list[Row]:
    if before == after:
        return []
    if before is None:
        return [after | {"rank": rank, "_change": "insert"}]
    return [
        before | {"rank": rank, "_change": "update_preimage"},
        after | {"rank": rank, "_change": "update_postimage"},
    ]


def running_changes(seen: Seen) -> Outcome:
    """How count and sum of each key change."""
    groups: dict[Any, list[Any]] = {}
    output: list[Row] = []
    for step in steps(seen):
        for key in dict.fromkeys(row["k"] for row in step.rows):
            before = groups.get(key, [])
            groups[key] = after = before + [row["v"] for row in step.rows if row["k"] == key]
            words = ("update_preimage", "update_postimage") if before else ("", "insert")
            shown = [(values, word) for values, word in zip((before, after), words, strict=True) if word]
            output += [_sums(key, values) | {"_change": word} for values, word in shown]
    return Outcome(output, {"groups": [_sums(key, values) for key, values in groups.items()]})


def _sums(key: Any, values: list[Any]) -> Row:
    return {"k": key, "n": len(values), "total": total(values)}


class Silence(ls.KeyedFunction):
    """Tells of keys without rows for some time."""

    output = "k string, since timestamp"
    timers = "event"
    last = ls.ValueState("timestamp")

    def process(self, key, rows, state):
        times = [row.ts for row in rows]
        state.last = max(times if state.last is None else [state.last, *times])
        state.timers.cancel()
        state.timers.at(state.last + timedelta(seconds=SILENCE_S))

    def on_timer(self, key, time, state):
        yield key, state.last
        state.clear()


def silent_keys(seen: Seen) -> Outcome:
    """Keys whose last row is so long ago."""
    last: dict[Any, int] = {}
    output: list[Row] = []
    for step in steps(seen):
        for row in step.rows:
            last[row["k"]] = max(us(row["ts"]), last.get(row["k"], 0))
        fired = [key for key, time in last.items() if time + SILENCE_S * SECOND <= step.closes_us]
        output += [{"k": key, "since": at(last.pop(key))} for key in fired]
    return Outcome(
        output,
        {
            "state": [{"k": key, "last": at(time)} for key, time in last.items()],
            "timers": [{"k": key, "at": at(time + SILENCE_S * SECOND)} for key, time in last.items()],
        },
    )


def newest_changes(seen: Seen) -> Outcome:
    """How the newest row of each key changes."""
    newest: dict[Any, Row] = {}
    output: list[Row] = []
    for step in steps(seen):
        for key in dict.fromkeys(row["k"] for row in step.rows):
            before = newest.get(key)
            rows = [row for row in step.rows if row["k"] == key]
            newest[key] = after = max(rows if before is None else [before, *rows], key=_by_time)
            changes = _change(before, after, 0)
            output += [{name: row[name] for name in row if name != "rank"} for row in changes]
    return Outcome(output, {"newest": list(newest.values())})


def _by_time(row: Row) -> tuple[Any, ...]:
    """By time, and then by all columns from left to right: nulls come first."""
    time, value = row["ts"], row["v"]
    return 0 if time is None else us(time), -1 if value is None else value, row["id"]


def totals_of_changes(seen: Seen) -> Outcome:
    """How aggregates of each key change as rows come and are taken back."""
    live: dict[Any, list[Any]] = {}
    output: list[Row] = []
    for step in steps(seen):
        for key in dict.fromkeys(row["k"] for row in step.rows):
            before, after = live.get(key, []), list(live.get(key, []))
            own = [row for row in step.rows if row["k"] == key]
            after += [row["v"] for row in own if row["_sign"] > 0]
            for row in own:
                if row["_sign"] < 0:
                    after.remove(row["v"])
            live[key] = after
            old, new = (_numbers(key, values) for values in (before, after))
            words = {(False, True): ("", "insert"), (True, False): ("delete", ""), (False, False): ("", "")}
            was, is_ = words.get((bool(before), bool(after)), ("update_preimage", "update_postimage"))
            if old != new:
                output += [row | {"_change": word} for row, word in ((old, was), (new, is_)) if word]
    return Outcome(output, {})


def _numbers(key: Any, values: list[Any]) -> Row:
    known = [value for value in values if value is not None]
    return _sums(key, values) | {"top": max(known, default=None), "different": len(set(known))}


def top_of_windows(n: int, size_s: int, seen: Seen) -> Outcome:
    """The rows with the greatest values of each key and window, when it is over."""
    size = size_s * SECOND
    held: dict[tuple[Any, int], list[Row]] = {}
    output: list[Row] = []
    for step in steps(seen):
        new: dict[tuple[Any, int], list[Row]] = {}
        for row in step.rows:
            start = row.pop("_pane")
            if start is not None and start + size > step.before_us:
                new.setdefault((row["k"], start), []).append(row)
        for group, rows in new.items():
            held.setdefault(group, []).extend(sorted(rows, key=_by_value)[:n])
        for group in [group for group in held if group[1] + size <= step.closes_us]:
            times = {"window_start": at(group[1]), "window_end": at(group[1] + size)}
            best = sorted(held.pop(group), key=_by_value)[:n]
            output += [row | times | {"rank": rank} for rank, row in enumerate(best, 1)]
    kept = [row | {"window_start": at(start)} for (_, start), rows in held.items() for row in rows]
    return Outcome(output, {"candidates": kept})
