"""Joins in plain Python, pair by pair."""

from __future__ import annotations

from typing import Any

from tests.support.operators.models.history import Outcome, Row, Step, at, steps, us

from lakestate.testing.plugin import Left, Right, Seen

SECOND = 1_000_000


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
                self.output += [self._alone(row) for row in unusable]
        self._match()
        for kind in self.sides:
            self._close(kind, step)

    def _match(self) -> None:
        for left in self.sides[Left]:
            for right in self.sides[Right]:
                is_new = self.number in (left["epoch"], right["epoch"])
                is_near = self.range[0] <= right["time"] - left["time"] <= self.range[1]
                if is_new and is_near and left["row"]["k"] == right["row"]["k"]:
                    if self.how not in ("semi", "anti"):
                        self.output.append(_pair(left["row"], right["row"]))
                    if self.how == "semi" and left["first"] is None:
                        self.output.append(dict(left["row"]))
                    for one in (left, right):
                        one["first"] = one["first"] or self.number

    def _close(self, kind: Any, step: Step) -> None:
        takes_all = step.epoch.is_last and self._comes_alone(kind)
        limit = step.now_us - self.far[kind]
        done = [each for each in self.sides[kind] if takes_all or each["time"] < limit]
        self.sides[kind] = [each for each in self.sides[kind] if each not in done]
        if self._comes_alone(kind):
            self.output += [self._alone(each["row"]) for each in done if each["first"] is None]

    def _comes_alone(self, kind: Any) -> bool:
        return self.how in {Left: ("full", "left", "anti"), Right: ("full", "right")}[kind]

    def _alone(self, row: Any) -> Row:
        return dict(row) if self.how == "anti" else _pair(row)

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


def window_joined(size_s: int, hop_s: int, tables: tuple[str, str], seen: Seen) -> Outcome:
    """Every left row in each of its windows, with the right rows there or alone, when the window is over."""
    size, hop = size_s * SECOND, hop_s * SECOND
    held: dict[Any, list[Any]] = {Left: [], Right: []}
    output: list[Row] = []
    for step in steps(seen):
        for row in step.epoch.rows:
            if _time(row) is not None and us(_time(row)) // hop * hop + size > step.before_us:
                held[type(row)].append(row)
        for left in held[Left]:
            for start in _starts(us(left["ts"]), size, hop):
                if step.before_us < start + size <= step.closes_us:
                    window = {"window_start": at(start), "window_end": at(start + size)}
                    found = [
                        row
                        for row in held[Right]
                        if row["k"] == left["k"] is not None and start in _starts(us(row["at"]), size, hop)
                    ]
                    output += [_pair(left, row) | window for row in found] or [_pair(left) | window]
        for rows in held.values():
            rows[:] = [row for row in rows if us(_time(row)) // hop * hop + size > step.closes_us]
    return Outcome(
        output, {name: [*map(dict, rows)] for name, rows in zip(tables, held.values(), strict=True)}
    )


def _starts(time: int, size: int, hop: int) -> list[int]:
    last = time // hop * hop
    return [start for start in range(last, time - size - hop, -hop) if start <= time < start + size]


def looked_up(seen: Seen) -> Outcome:
    """Left rows with the newest right row of their key so far."""
    newest: dict[Any, Row] = {}
    output: list[Row] = []
    for step in steps(seen):
        for row in step.epoch.rows:
            if isinstance(row, Right) and row["k"] is not None:
                known = newest.get(row["k"])
                newest[row["k"]] = row if known is None or _by_time(row) > _by_time(known) else known
        lefts = [row for row in step.epoch.rows if isinstance(row, Left)]
        output += [_pair(newest.get(row["k"], {}), row) for row in lefts]
    return Outcome(output, {"newest": [dict(row) for row in newest.values()]})


def _by_time(row: Any) -> tuple[int, int]:
    return 0 if row["at"] is None else us(row["at"]), row["b"]
