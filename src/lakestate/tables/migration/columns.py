"""Changes to a table's columns that are declared and need no code: add, drop, rename, widen.

Key columns may only be renamed: the values of the key decide which subtask owns a row and where it is in
its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.compatibility import widens
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.exact_values import exact_array
from lakestate.tables.arrow.lossless_cast import cast_chunks_losslessly
from lakestate.tables.arrow.schema import INTERNAL_PREFIX, arrow_type, ddl_of
from lakestate.tables.migration.steps import Migration, require_version

UNKNOWN_TYPE = ""


@dataclass(frozen=True, slots=True)
class ColumnChanges(Migration):
    """A declared step: columns are dropped, renamed, widened and added, in this order.

    `drop` and the keys of `rename` use names of the older version; `widen`, `add` and the values of
    `rename` those of the newer. An added column has the same value in all existing rows.

    >>> step = ColumnChanges(1, add={"tier": ("string", "free")}, drop=["old"],
    ...                      rename={"name": "user"}, widen={"n": "bigint"})
    >>> rows = pa.table({"name": ["ada"], "n": pa.array([7], pa.int32()), "old": [True]})
    >>> step.apply(rows, ["name"]).to_pylist()
    [{'user': 'ada', 'n': 7, 'tier': 'free'}]
    """

    from_version: int
    add: Mapping[str, tuple[str, object]] = field(default_factory=dict, kw_only=True)
    drop: Sequence[str] = field(default=(), kw_only=True)
    rename: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    widen: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        require_version(self.from_version)
        _check_shapes(self)
        _check_names(self)
        for ddl in self.widen.values():
            arrow_type(ddl)
        for name in self.add:
            self._default(name)

    def apply(self, rows: pa.Table, key_names: Sequence[str], target: pa.Schema | None = None) -> pa.Table:
        """The rows in the next version's columns."""
        self._check_before(rows.column_names, key_names)
        columns = {
            self.rename.get(name, name): rows.column(name)
            for name in rows.column_names
            if name not in self.drop
        }
        self._check_after(columns, [self.rename.get(name, name) for name in key_names])
        for name, ddl in self.widen.items():
            columns[name] = _widen_column(columns[name], name, ddl)
        for name in self.add:
            columns[name] = pa.repeat(self._default(name), rows.num_rows)
        return pa.table(columns)

    def name_before(self, name: str) -> str:
        """The name that a column of the next version has in this one."""
        return next((old for old, new in self.rename.items() if new == name), name)

    def columns_before(
        self, columns: Mapping[str, Column], key_names: Sequence[str]
    ) -> tuple[dict[str, Column], list[str]]:
        """The columns and keys of the older version, derived from those of the newer.

        A type that cannot be derived is UNKNOWN_TYPE. Raises InvalidInputError if the changes do not
        lead to those columns.
        """
        self._check_leads_to(columns, key_names)
        kept = {name: column for name, column in columns.items() if name not in self.add}
        for name in self.widen:
            kept[name] = replace(kept[name], type=UNKNOWN_TYPE)
        before = {self.name_before(name): column for name, column in kept.items()}
        before |= {name: Column(name, UNKNOWN_TYPE) for name in self.drop}
        return before, [self.name_before(name) for name in key_names]

    def _default(self, name: str) -> pa.Scalar:
        ddl, value = self.add[name]
        return exact_array([value], arrow_type(ddl), name)[0]

    def _check_before(self, names: Sequence[str], key_names: Sequence[str]) -> None:
        _refuse_keys("dropped", self.drop, key_names)
        absent = [name for name in (*self.drop, *self.rename) if name not in names]
        if absent:
            raise InvalidInputError(
                f"a column to drop or rename is not in version {self.from_version}",
                object_name=", ".join(absent),
                found=", ".join(names),
            )
        kept = [self.rename.get(name, name) for name in names if name not in self.drop]
        twice = sorted({name for name in kept if kept.count(name) > 1})
        if twice:
            raise InvalidInputError("a column is renamed to one that exists", object_name=", ".join(twice))

    def _check_after(self, columns: Mapping[str, object], key_names: Sequence[str]) -> None:
        _refuse_keys("widened", self.widen, key_names)
        absent = [name for name in self.widen if name not in columns]
        present = [name for name in self.add if name in columns]
        if absent or present:
            raise InvalidInputError(
                "a column to widen does not exist" if absent else "a column to add already exists",
                object_name=", ".join(absent or present),
                found=", ".join(columns),
            )

    def _check_leads_to(self, columns: Mapping[str, Column], key_names: Sequence[str]) -> None:
        _refuse_keys("added", self.add, key_names)
        _refuse_keys("widened", self.widen, key_names)
        _refuse_keys("dropped", self.drop, [self.name_before(name) for name in key_names])
        result = (*self.add, *self.widen, *self.rename.values())
        absent = [name for name in result if name not in columns]
        made = {*self.add, *self.rename.values()}
        left = [name for name in (*self.drop, *self.rename) if name in columns and name not in made]
        if absent or left:
            raise InvalidInputError(
                f"{self} leads to other columns than version {self.from_version + 1} has",
                object_name=", ".join(absent or left),
                found="no such column" if absent else "still a column",
                expected=", ".join(columns),
            )
        for name in (*self.add, *self.widen):
            self._check_type(columns[name])

    def _check_type(self, column: Column) -> None:
        ddl = self.widen.get(column.name) or self.add[column.name][0]
        if column.type not in (UNKNOWN_TYPE, ddl_of(arrow_type(ddl))):
            raise InvalidInputError(
                f"{self} gives a column another type than version {self.from_version + 1} has",
                object_name=column.name,
                found=ddl,
                expected=column.type,
            )
        if column.name in self.add and not column.nullable and not self._default(column.name).is_valid:
            raise InvalidInputError(
                "a column that may not be null is added with null", object_name=column.name
            )

    def __str__(self) -> str:
        return f"ColumnChanges from version {self.from_version}"


def _check_shapes(changes: ColumnChanges) -> None:
    # A string is a sequence of strings: "old" would drop o, l and d.
    if isinstance(changes.drop, str):
        raise InvalidInputError("drop takes a list of names", found=repr(changes.drop))
    for name, added in changes.add.items():
        if not isinstance(added, tuple) or len(added) != 2:
            raise InvalidInputError(
                "an added column needs its type and its value in existing rows",
                object_name=name,
                found=repr(added),
                expected='such as ("bigint", 0)',
            )


def _check_names(changes: ColumnChanges) -> None:
    made = [*changes.add, *changes.rename.values()]
    gone = [*changes.drop, *changes.rename]
    wrong = [
        *_repeated_names(made),
        *_repeated_names(gone),
        *(name for name in changes.widen if name in changes.add),
        *(name for name in (*made, *gone, *changes.widen) if name.startswith(INTERNAL_PREFIX)),
    ]
    if wrong:
        raise InvalidInputError(
            f"{changes} contradicts itself",
            object_name=", ".join(sorted(set(wrong))),
            expected=f"each column changed in one way, no name beginning with {INTERNAL_PREFIX!r}",
        )
    if not (made or gone or changes.widen):
        raise InvalidInputError(f"{changes} changes nothing", action="add, drop, rename or widen a column")


def _repeated_names(names: Sequence[str]) -> Iterable[str]:
    return (name for name in names if names.count(name) > 1)


def _refuse_keys(verb: str, names: Iterable[str], key_names: Sequence[str]) -> None:
    keys = [name for name in names if name in key_names]
    if keys:
        raise InvalidInputError(
            f"a key column cannot be {verb}",
            object_name=", ".join(keys),
            action="the hash of the key decides where a row is stored: write the state into a new table "
            "with the other key",
        )


def _widen_column(column: pa.ChunkedArray, name: str, ddl: str) -> pa.ChunkedArray:
    narrow, wide = ddl_of(column.type), arrow_type(ddl)
    if not widens(narrow, ddl_of(wide)):
        raise InvalidInputError(
            "not a wider type",
            object_name=name,
            found=f"{narrow} to {ddl}",
            expected="a type that holds every value of the old one",
        )
    return cast_chunks_losslessly(column, pa.field(name, wide), "a column is widened")
