"""Operators that keep or follow single rows, in plain Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.operators.models.history import Outcome, Row, Step, at, steps, total, us

import lakestate as ls
from lakestate.testing.plugin import Left, Right, Seen

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


def joined(how: str, lower_s: int, upper_s: int, seen: Seen) -> Outcome:
    """Pairs of rows in range, and rows that can no longer have one."""
    join = _Join(how, lower_s * SECOND, upper_s * SECOND)
    for step in steps(seen):
        join.run(step)
    return Outcome(join.output, join.tables)


class _Join:
    """Rows of two sides, each with the number of its epoch, whether it had a match then, and later."""

    def __init__(self, how: str, lower: int, upper: int) -> None:
        self.how, self.number = how, 0
        self.far = {Left: upper, Right: -lower}
        self.range = (lower, upper)
        self.sides: dict[Any, list[Row]] = {Left: [], Right: []}
        self.output: list[Row] = []

    def run(self, step: Step) -> None:
        self.number += 1
        for kind, held in self.sides.items():
            new = [row for row in step.epoch.rows if isinstance(row, kind)]
            held += [
                {"row": row, "time": us(_time(row)), "epoch": self.number, "first": None}
                for row in new
                if row["k"] is not None and _time(row) is not None
            ]
            if self._comes_alone(kind):
                unusable = [row for row in new if row["k"] is None or _time(row) is None]
                self.output += [_pair(row) for row in unusable]
        self._match()
        for kind in self.sides:
            self._close(kind, step)

    def _match(self) -> None:
        for left in self.sides[Left]:
            for right in self.sides[Right]:
                is_new = self.number in (left["epoch"], right["epoch"])
                is_near = self.range[0] <= right["time"] - left["time"] <= self.range[1]
                if is_new and is_near and left["row"]["k"] == right["row"]["k"]:
                    self.output.append(_pair(left["row"], right["row"]))
                    for one in (left, right):
                        one["first"] = one["first"] or self.number

    def _close(self, kind: Any, step: Step) -> None:
        takes_all = step.epoch.is_last and self._comes_alone(kind)
        limit = step.now_us - self.far[kind]
        done = [each for each in self.sides[kind] if takes_all or each["time"] < limit]
        self.sides[kind] = [each for each in self.sides[kind] if each not in done]
        if self._comes_alone(kind):
            self.output += [_pair(each["row"]) for each in done if each["first"] is None]

    def _comes_alone(self, kind: Any) -> bool:
        return self.how == "full" or self.how == {Left: "left", Right: "right"}[kind]

    @property
    def tables(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for kind, name, time in ((Left, "left", "ts"), (Right, "right", "at")):
            held = self.sides[kind]
            found[f"{name}_rows"] = [dict(each["row"]) for each in held]
            if self._comes_alone(kind):
                later = [each for each in held if each["first"] not in (None, each["epoch"])]
                once = {(each["row"]["k"], each["time"], each["epoch"]) for each in later}
                found[f"{name}_matched"] = [{"k": key, time: at(us_)} for key, us_, _ in once]
        return found


def _time(row: Any) -> Any:
    return row["ts"] if isinstance(row, Left) else row["at"]


def _pair(*rows: Any) -> Row:
    return dict.fromkeys(("k", "a", "ts", "b", "at")) | {
        name: value for row in rows for name, value in row.items()
    }
