"""Stored state that a start gives up: `drop=["operator"]` and `drop=["operator.table"]`.

A name is resolved against what the newest epoch holds, because ids and names of tables may contain dots.
Only what the pipeline no longer declares can be dropped, since it is dropped in every epoch of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.protocol.names import did_you_mean


@dataclass(frozen=True, slots=True)
class Dropped:
    """Operators and sinks that are gone, and tables that are gone from those that stay."""

    operators: frozenset[str] = frozenset()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def resolve_dropped(
    names: Collection[str],
    stored: Mapping[str, Sequence[str]],
    declared: Mapping[str, Collection[str]],
    where: str,
) -> Dropped:
    """What names mean. `stored` and `declared` give the tables of operators and sinks, by id.

    >>> stored = {"gone": [], "totals": ["old", "n"]}
    >>> resolve_dropped(["gone", "totals.old"], stored, {"totals": ["n"]}, "epoch 3 of job shop")
    Dropped(operators=frozenset({'gone'}), tables={'totals': ('old',)})
    """
    if isinstance(names, str):
        raise InvalidInputError("drop takes a list of names", found=repr(names), action=f"write [{names!r}]")
    operators: set[str] = set()
    tables: dict[str, list[str]] = {}
    for name in names:
        operator, table = _resolve(name, stored, where)
        _check_not_declared(name, operator, table, declared)
        if table is None:
            operators.add(operator)
        else:
            tables.setdefault(operator, []).append(table)
    return Dropped(frozenset(operators), {operator: tuple(found) for operator, found in tables.items()})


def _resolve(name: str, stored: Mapping[str, Sequence[str]], where: str) -> tuple[str, str | None]:
    known: list[tuple[str, str | None]] = [(operator, None) for operator in stored]
    known += [(operator, table) for operator, tables in stored.items() for table in tables]
    matches = [each for each in known if _shown(*each) == name]
    if len(matches) > 1:
        raise InvalidInputError(
            "a name in drop has two meanings",
            object_name=name,
            found=", and ".join(_described(*each) for each in matches),
            action="keep one of them declared for now, or rename the new operator",
        )
    if not matches:
        shown = [_shown(*each) for each in known]
        raise NotFoundError(
            f"{where} has no such state to drop",
            object_name=name,
            found=", ".join(shown) or "no state",
            action=did_you_mean(name, shown) or "remove it from drop: it may have been dropped already",
        )
    return matches[0]


def _check_not_declared(
    name: str, operator: str, table: str | None, declared: Mapping[str, Collection[str]]
) -> None:
    if table is None and operator in declared:
        raise InvalidInputError(
            "an operator or sink in drop is still in the pipeline",
            object_name=name,
            action=f'remove it from the pipeline or from drop; a single table is dropped with "{name}.table"',
        )
    if table is not None and table in declared.get(operator, ()):
        raise InvalidInputError(
            "a table in drop is still declared",
            object_name=name,
            action="remove its declaration, or remove it from drop; to begin with an empty table, declare "
            "one with another name",
        )


def _shown(operator: str, table: str | None) -> str:
    return operator if table is None else f"{operator}.{table}"


def _described(operator: str, table: str | None) -> str:
    return f"operator {operator}" if table is None else f"table {table} of operator {operator}"
