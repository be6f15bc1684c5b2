"""One step from a state version to the next, written as code over the rows of a table.

A step sees the user's columns, key columns first, and only rows that exist. It may change values. It
may not change the number of rows, their order, or their keys, because the key decides where a row is
stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.tables.arrow.exact_values import exact_array
from lakestate.tables.runs.key_equality import same_keys

VERSION_MAX = 2**31 - 1


class Migration(ABC):
    """How rows of one state version become rows of the next.

    Declare changes of columns with `ColumnChanges`; write others with `ArrowMigration`, or with
    `RowMigration` where speed does not matter. A table takes one migration per version:

    >>> steps = [ArrowMigration(1, lambda rows: rows.drop_columns(["old"])),
    ...          RowMigration(2, lambda row: row | {"n": row["n"] * 2})]
    >>> [step.from_version for step in steps]
    [1, 2]
    """

    __slots__ = ()

    from_version: int
    """The version whose rows it takes."""

    @abstractmethod
    def apply(self, rows: pa.Table, key_names: Sequence[str], target: pa.Schema | None = None) -> pa.Table:
        """The rows in the next version's columns, as many and in the same order, key columns first.

        `target` is the declared schema where this is the last step; a step may use its types.
        """

    def name_before(self, name: str) -> str:
        """The name that a column of the next version has in this one."""
        return name


@dataclass(frozen=True, slots=True)
class ArrowMigration(Migration):
    """A step in code, over all rows of a file at once.

    `migrate` takes and returns a `pyarrow.Table` of key and value columns.

    >>> import pyarrow.compute as pc
    >>> def cents(rows: pa.Table) -> pa.Table:
    ...     return rows.append_column("cents", pc.multiply(rows["euros"], 100)).drop_columns(["euros"])
    >>> rows = pa.table({"user": ["ada"], "euros": [3]})
    >>> ArrowMigration(1, cents).apply(rows, ["user"]).to_pylist()
    [{'user': 'ada', 'cents': 300}]
    """

    from_version: int
    migrate: Callable[[pa.Table], pa.Table]

    def __post_init__(self) -> None:
        require_version(self.from_version)
        _check_callable(self.migrate)

    def apply(self, rows: pa.Table, key_names: Sequence[str], target: pa.Schema | None = None) -> pa.Table:
        """The migrated rows, after a check that rows, order and keys are unchanged."""
        return require_same_rows(rows, self.migrate(rows), key_names)


@dataclass(frozen=True, slots=True)
class RowMigration(Migration):
    """A step in code, row by row: simple, but slow.

    `migrate` takes and returns a dict of key and value columns. Values are Python objects, as
    `pyarrow.Table.to_pylist` returns them; maps are lists of pairs. All rows must be returned with the
    same names. Values of the last step take the declared types. Those of earlier steps keep the type
    of their column, or it is inferred: use `ArrowMigration` where that is not enough.

    >>> rows = pa.table({"user": ["ada"], "name": ["Ada Lovelace"]})
    >>> step = RowMigration(1, lambda row: {"user": row["user"], "first": row["name"].split()[0]})
    >>> step.apply(rows, ["user"]).to_pylist()
    [{'user': 'ada', 'first': 'Ada'}]
    """

    from_version: int
    migrate: Callable[[dict[str, Any]], dict[str, Any]]

    def __post_init__(self) -> None:
        require_version(self.from_version)
        _check_callable(self.migrate)

    def apply(self, rows: pa.Table, key_names: Sequence[str], target: pa.Schema | None = None) -> pa.Table:
        """The migrated rows, after a check that keys are unchanged."""
        migrated = [
            _require_mapping(self.migrate(row), number) for number, row in enumerate(rows.to_pylist())
        ]
        if not migrated:
            return rows
        names = list(migrated[0])
        _check_same_names(migrated, names)
        arrays = [_row_values(migrated, name, rows.schema, target) for name in names]
        return require_same_rows(rows, pa.table(arrays, names=names), key_names)


def name_before_all(name: str, steps: Sequence[Migration]) -> str:
    """The name that a column had before some steps, given oldest first."""
    for step in reversed(steps):
        name = step.name_before(name)
    return name


def require_version(version: int) -> int:
    """The version, if it is one."""
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= VERSION_MAX:
        raise InvalidInputError("not a state version", found=repr(version), expected="1, 2, 3, …")
    return version


def require_same_rows(before: pa.Table, after: object, key_names: Sequence[str]) -> pa.Table:
    """What a step returned, key columns first, if it has the same rows and keys as before.

    >>> rows = pa.table({"user": ["ada", "bob"]})
    >>> require_same_rows(rows, rows.slice(1), ["user"])
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: the number of rows changed; found 1; expected 2; ...
    """
    if isinstance(after, pa.RecordBatch):
        after = pa.Table.from_batches([after])
    if not isinstance(after, pa.Table):
        raise InvalidInputError("no table was returned", found=type(after).__name__, expected="pyarrow.Table")
    if after.num_rows != before.num_rows:
        raise InvalidInputError(
            "the number of rows changed",
            found=after.num_rows,
            expected=before.num_rows,
            action="keep every row: remove rows with the view's delete",
        )
    names = after.column_names
    if len(set(names)) < len(names):
        raise InvalidInputError("two columns have one name", found=", ".join(names))
    for name in key_names:
        _check_same_key(before, after, name)
    return after.select([*key_names, *(name for name in names if name not in key_names)])


def _check_same_key(before: pa.Table, after: pa.Table, name: str) -> None:
    expected = before.column(name)
    if name not in after.column_names:
        raise InvalidInputError(
            "a key column is gone",
            object_name=name,
            found=", ".join(after.column_names) or "no column",
            action="keep key columns; rename them with ColumnChanges",
        )
    found = after.column(name)
    if found.type != expected.type:
        raise InvalidInputError(
            "a key column has another type", object_name=name, found=found.type, expected=expected.type
        )
    if found.equals(expected):
        return
    same = same_keys([expected.combine_chunks()], [found.combine_chunks()])
    if same.all():
        return
    row = int(np.flatnonzero(~same)[0])
    raise InvalidInputError(
        "a key changed, or rows changed their order",
        object_name=f"{name} in row {row}",
        found=repr(found[row].as_py()),
        expected=repr(expected[row].as_py()),
    )


def _check_callable(migrate: object) -> None:
    if not callable(migrate):
        raise InvalidInputError("a migration needs a function", found=type(migrate).__name__)


def _require_mapping(row: object, number: int) -> Mapping[str, object]:
    if not isinstance(row, Mapping):
        raise InvalidInputError(
            "no dict was returned", object_name=f"row {number}", found=type(row).__name__, expected="dict"
        )
    return row


def _check_same_names(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> None:
    expected = set(names)
    for number, row in enumerate(rows):
        if row.keys() != expected:
            raise InvalidInputError(
                "a row has other names than the first",
                object_name=f"row {number}",
                found=", ".join(map(str, row)),
                expected=", ".join(map(str, names)),
            )


def _row_values(
    rows: Sequence[Mapping[str, object]], name: str, before: pa.Schema, target: pa.Schema | None
) -> pa.Array:
    values = [row[name] for row in rows]
    if target is not None and name in target.names:
        return exact_array(values, target.field(name).type, name)
    if name in before.names:
        try:
            return exact_array(values, before.field(name).type, name)
        except InvalidInputError:
            # The step gave the column another type.
            return pa.array(values)
    return pa.array(values)
