"""The target table: what it is, whether rows of a stream fit into it, and how it is created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.sinks.postgres.types import TargetColumn, column_type, holds
from lakestate.sql_names import quote_identifier

if TYPE_CHECKING:
    from psycopg import sql

    from lakestate.sinks.postgres.connection import Connection

_COLUMNS = """
SELECT a.attname, t.typname, format_type(a.atttypid, a.atttypmod), a.atttypmod, a.attnotnull, a.atthasdef,
       a.attgenerated <> '' OR a.attidentity = 'a', a.attidentity <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")


def check_names(connection: Connection, names: Sequence[str], table: str) -> None:
    """Refuse names that PostgreSQL would cut off: two of them could become one."""
    (found,) = connection.execute("SHOW max_identifier_length").fetchone() or ("63",)
    too_long = [name for name in names if len(name.encode()) > int(found)]
    if too_long:
        raise InvalidInputError(
            "a name is too long for PostgreSQL, which would cut it off",
            object_name=f"table {table}",
            found=", ".join(f"{name} ({len(name.encode())} bytes)" for name in too_long),
            expected=f"names of at most {found} bytes",
            action="rename it before the sink",
        )


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, with or without a schema.

    >>> TableName.of("shop.orders")
    TableName(schema='shop', name='orders')
    """

    schema: str | None
    name: str

    @classmethod
    def of(cls, text: str) -> TableName:
        """The table of a text. Names are taken as they are: nothing is folded to lower case."""
        schema, dot, name = text.rpartition(".")
        parts = [schema, name] if dot else [name]
        if not all(parts) or "." in schema or "\0" in text:
            raise InvalidInputError(
                "not the name of a table", found=repr(text), expected="name, or schema.name"
            )
        return cls(schema or None, name)

    @property
    def identifier(self) -> sql.Identifier:
        """As SQL names it."""
        from psycopg import sql

        return sql.Identifier(*filter(None, (self.schema, self.name)))

    @property
    def quoted(self) -> str:
        """As people can paste it into SQL.

        >>> TableName.of("shop.Orders").quoted
        '"shop"."Orders"'
        """
        return ".".join(map(quote_identifier, filter(None, (self.schema, self.name))))

    def __str__(self) -> str:
        return ".".join(filter(None, (self.schema, self.name)))


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table as it is in the database."""

    name: TableName
    """With its schema."""
    oid: int
    columns: tuple[TargetColumn, ...]
    unique: tuple[frozenset[str], ...]
    """The columns of each index by which rows can be replaced."""

    @classmethod
    def find(cls, connection: Connection, name: TableName) -> TargetTable | None:
        """The table, or None if there is none."""
        found = connection.execute(
            "SELECT c.oid, n.nspname, c.relkind FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
            (name.identifier.as_string(connection),),
        ).fetchone()
        if found is None:
            return None
        oid, schema, kind = found
        if kind not in ("r", "p"):
            raise InvalidInputError(
                "not a table", object_name=str(name), found=_KINDS.get(kind, f"relation of kind {kind}")
            )
        columns = tuple(_column(row) for row in connection.execute(_COLUMNS, (oid,)))
        unique = tuple(frozenset(row[0]) for row in connection.execute(_UNIQUE, (oid,)))
        return cls(TableName(schema, name.name), oid, columns, unique)

    def check(self, rows: pa.Schema, key: Sequence[str]) -> None:
        """Refuse rows of a stream that do not fit, with everything that is wrong."""
        known = {column.name: column for column in self.columns}
        problems = [
            problem for field in rows if (problem := _problem(known.get(field.name), field)) is not None
        ]
        problems += [
            f"column {column.name} {column.shown} cannot be null, has no default, and is not in the rows"
            for column in self.columns
            if column.is_required and not column.has_default and column.name not in rows.names
        ]
        if problems:
            raise InvalidInputError(
                "rows do not fit into the table",
                object_name=f"table {self.name}",
                found="; ".join(problems),
                expected=", ".join(f"{column.name} {column.shown}" for column in self.columns),
                action="change the columns of the rows, or the table",
            )
        if key and frozenset(key) not in self.unique:
            listed = [", ".join(sorted(each)) for each in self.unique]
            raise InvalidInputError(
                "rows can be replaced only by a unique index on exactly the key",
                object_name=f"table {self.name}",
                found="; ".join(f"({each})" for each in sorted(listed)) or "no unique index",
                expected=f"({', '.join(key)}), without condition or expression, and not deferrable",
                action=f"CREATE UNIQUE INDEX ON {self.name.quoted} ({', '.join(map(quote_identifier, key))})",
            )

    def check_permissions(self, connection: Connection, needed: Sequence[str]) -> None:
        """Refuse a table that this user may not write to."""
        given = ", ".join(f"has_table_privilege(%(oid)s::oid, '{each}')" for each in _PRIVILEGES)
        found = connection.execute(
            f"SELECT current_user, current_database(), "
            f"has_database_privilege(current_database(), 'TEMP'), {given}",
            {"oid": self.oid},
        ).fetchone()
        assert found is not None
        user, database, may_stage, *granted = found
        missing = [each for each, has in zip(_PRIVILEGES, granted, strict=True) if each in needed and not has]
        if missing:
            raise InvalidInputError(
                "the user may not write to the table",
                object_name=f"table {self.name}",
                found=f"user {user} without {', '.join(missing)}",
                action=f"GRANT {', '.join(needed)} ON {self.name.quoted} TO {quote_identifier(user)}",
            )
        if not may_stage:
            raise InvalidInputError(
                "the user may not create temporary tables",
                object_name=f"table {self.name}",
                found=f"user {user}",
                action=f"GRANT TEMPORARY ON DATABASE {quote_identifier(database)} "
                f"TO {quote_identifier(user)}",
            )


def create_table(connection: Connection, name: TableName, rows: pa.Schema, key: Sequence[str]) -> None:
    """Create the table for rows of a stream, with the key as its primary key."""
    from psycopg import sql

    lines = [
        sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(column_type(field.type, field.name)))
        for field in rows
    ]
    if key:
        lines.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(name.identifier, sql.SQL(", ").join(lines)))


def missing_table_error(name: TableName, place: str) -> NotFoundError:
    """The error for a table that does not exist and shall not be created."""
    return NotFoundError(
        "there is no such table",
        object_name=f"table {name} of {place}",
        action="create it, or pass create=True",
    )


def _column(row: tuple[Any, ...]) -> TargetColumn:
    name, type_name, shown, modifier, is_required, has_default, is_computed, is_identity = row
    return TargetColumn(
        name, type_name, shown, modifier, is_required, has_default or is_identity or is_computed, is_computed
    )


def _problem(column: TargetColumn | None, field: pa.Field) -> str | None:
    if column is None:
        return f"column {field.name} {field.type} is not in the table"
    if column.is_computed:
        return f"column {field.name} is computed by PostgreSQL"
    if not holds(column, field.type):
        return f"column {field.name} {column.shown} cannot hold every {field.type}"
    return None


_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
}
