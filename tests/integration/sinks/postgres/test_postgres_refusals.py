"""What is wrong with a table, a user or a server is named before the first epoch, and nothing is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.support.servers.postgres import PostgresServer

import lakestate as ls
from lakestate.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from lakestate.testing.s3_server import free_ports

ROWS = pa.schema([("user", pa.string()), ("n", pa.int64())])


def execute(postgres: PostgresServer, text: str) -> list[tuple[Any, ...]]:
    with postgres.connect() as connection:
        found = connection.execute(text)  # type: ignore[arg-type]
        return found.fetchall() if found.description else []


def tables_of(postgres: PostgresServer, schema: str) -> list[str]:
    found = execute(postgres, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1")
    return [row[0] for row in found]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("n bigint", "column user string is not in the table"),
        ('"user" text, n integer', "column n integer cannot hold every int64"),
        ('"user" text, n numeric(10,2)', r"column n numeric\(10,2\) cannot hold every int64"),
        ('"user" uuid, n bigint', "column user uuid cannot hold every string"),
        ('"user" text, n bigint, day date NOT NULL', "column day date cannot be null, has no default"),
        ('"user" text, n bigint GENERATED ALWAYS AS (1) STORED', "column n is computed by PostgreSQL"),
    ],
)
def test_a_table_with_another_schema(postgres: PostgresServer, schema: str, columns: str, found: str) -> None:
    execute(postgres, f"CREATE TABLE {schema}.t ({columns})")
    with pytest.raises(InvalidInputError, match=found):
        ls.PostgresSink(postgres.url, f"{schema}.t").check(ROWS)
    assert tables_of(postgres, schema) == ["t"]


@pytest.mark.parametrize(
    ("index", "found"),
    [
        ("", "no unique index"),
        ('CREATE UNIQUE INDEX ON {}.t ("user", n)', r"\(n, user\)"),
        ('CREATE UNIQUE INDEX ON {}.t ("user") WHERE n > 0', "no unique index"),
        ('CREATE UNIQUE INDEX ON {}.t (lower("user"))', "no unique index"),
        ('CREATE INDEX ON {}.t ("user")', "no unique index"),
        ('ALTER TABLE {}.t ADD UNIQUE ("user") DEFERRABLE', "no unique index"),
    ],
)
def test_a_key_without_a_unique_index(postgres: PostgresServer, schema: str, index: str, found: str) -> None:
    execute(postgres, f'CREATE TABLE {schema}.t ("user" text, n bigint)')
    if index:
        execute(postgres, index.format(schema))
    sink = ls.PostgresSink(postgres.url, f"{schema}.t", key=["user"])
    with pytest.raises(
        InvalidInputError, match=f"unique index on exactly the key.*{found}.*CREATE UNIQUE INDEX"
    ):
        sink.check(ROWS)
    execute(postgres, f'CREATE UNIQUE INDEX ON {schema}.t ("user") INCLUDE (n)')
    sink.check(ROWS)


def test_what_to_do_about_it_can_be_pasted_whatever_the_names_are(
    postgres: PostgresServer, schema: str
) -> None:
    user = f'"Weak {schema}"'
    execute(postgres, f'CREATE TABLE {schema}."Per User" ("user" text, n bigint); CREATE ROLE {user} LOGIN')
    execute(postgres, f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}")
    table = f"{schema}.Per User"
    with pytest.raises(InvalidInputError) as refused:
        ls.PostgresSink(postgres.url, table, key=["user"]).check(ROWS)
    execute(postgres, str(refused.value.action))
    ls.PostgresSink(postgres.url, table, key=["user"]).check(ROWS)
    execute(postgres, f"DROP TABLE {schema}.lakestate_epochs")
    weak = ls.PostgresSink(postgres.url.replace("lakestate@", f"Weak%20{schema}@"), table, key=["user"])
    with pytest.raises(InvalidInputError, match="without SELECT, INSERT, UPDATE") as refused:
        weak.check(ROWS)
    execute(postgres, str(refused.value.action))
    weak.check(ROWS)


@pytest.mark.parametrize("create", [True, False])
def test_names_that_would_be_cut_off(postgres: PostgresServer, schema: str, create: bool) -> None:
    longest, rows = "t" * 63, pa.schema([("é" * 32, pa.int64())])
    with pytest.raises(InvalidInputError, match=rf"would cut it off: .*found {longest}a \(64 bytes\)"):
        ls.PostgresSink(postgres.url, f"{schema}.{longest}a", create=create).check(ROWS)
    with pytest.raises(InvalidInputError, match=r"é+ \(64 bytes\); expected names of at most 63 bytes"):
        ls.PostgresSink(postgres.url, f"{schema}.t", create=create).check(rows)
    assert tables_of(postgres, schema) == []
    ls.PostgresSink(postgres.url, f"{schema}.{longest}", create=True).check(ROWS)


def test_key_columns_that_rows_lack(postgres: PostgresServer, schema: str) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.t", key=["item"], create=True)
    with pytest.raises(
        InvalidInputError, match=r"key columns are not in the rows.*found user, n; expected item"
    ):
        sink.check(ROWS)
    assert tables_of(postgres, schema) == []


def test_a_table_that_does_not_exist_and_shall_not_be_created(postgres: PostgresServer, schema: str) -> None:
    with pytest.raises(NotFoundError, match=rf"table {schema}.t of postgresql://.*create=True"):
        ls.PostgresSink(postgres.url, f"{schema}.t").check(ROWS)
    assert tables_of(postgres, schema) == []


def test_what_is_not_a_table(postgres: PostgresServer, schema: str) -> None:
    execute(postgres, f"CREATE VIEW {schema}.t AS SELECT 'a'::text AS \"user\", 1::bigint AS n")
    with pytest.raises(InvalidInputError, match=r"not a table.*a view"):
        ls.PostgresSink(postgres.url, f"{schema}.t").check(ROWS)


def test_markers_that_are_another_table(postgres: PostgresServer, schema: str) -> None:
    execute(postgres, f"CREATE TABLE {schema}.lakestate_epochs (n bigint)")
    with pytest.raises(InvalidInputError, match=r"table of markers is another table.*marker_table"):
        ls.PostgresSink(postgres.url, f"{schema}.t", create=True).check(ROWS)
    assert tables_of(postgres, schema) == ["lakestate_epochs"]


def test_a_user_without_permission(postgres: PostgresServer, schema: str) -> None:
    user = f"user_{schema}"
    execute(postgres, f"CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {user}")
    url = postgres.url.replace("lakestate@", f"{user}@")
    with pytest.raises(
        InvalidInputError, match=r"does not permit to prepare the table.*permission denied for schema"
    ):
        ls.PostgresSink(url, f"{schema}.t", create=True).check(ROWS)
    execute(postgres, f'CREATE TABLE {schema}.t ("user" text PRIMARY KEY, n bigint)')
    execute(postgres, f"GRANT SELECT, INSERT ON {schema}.t TO {user}")
    with pytest.raises(InvalidInputError, match=f"{user} without UPDATE; GRANT SELECT, INSERT, UPDATE ON"):
        ls.PostgresSink(url, f"{schema}.t", key=["user"]).check(ROWS)
    with pytest.raises(InvalidInputError, match="permission denied for schema"):
        ls.PostgresSink(url, f"{schema}.t").check(ROWS)
    execute(postgres, f"GRANT CREATE ON SCHEMA {schema} TO {user}")
    ls.PostgresSink(url, f"{schema}.t").check(ROWS)
    assert tables_of(postgres, schema) == ["lakestate_epochs", "t"]


def test_a_server_that_cannot_be_reached(schema: str) -> None:
    (port,) = free_ports(1)
    sink = ls.PostgresSink(f"postgresql://me:s3cr3t@127.0.0.1:{port}/db", "t")
    with pytest.raises(
        StorageUnavailableError, match=r"connect: postgresql://me@127.0.0.1:\d+/db"
    ) as refused:
        sink.check(ROWS)
    assert "s3cr3t" not in str(refused.value)


def test_no_such_database(postgres: PostgresServer) -> None:
    with pytest.raises(InvalidInputError, match='database "none" does not exist'):
        ls.PostgresSink(postgres.url.replace("/postgres", "/none"), "t").check(ROWS)


@pytest.mark.parametrize(
    ("dsn", "table", "found"),
    [
        ("host=a what=s3cr3t", "t", "not a connection string"),
        ("postgresql://db/x", "a.b.c", "not the name of a table"),
        ("postgresql://db/x", "", "not the name of a table"),
    ],
)
def test_settings_that_mean_nothing(dsn: str, table: str, found: str) -> None:
    with pytest.raises(InvalidInputError, match=found) as refused:
        ls.PostgresSink(dsn, table)
    assert "s3cr3t" not in str(refused.value)


def test_a_dry_run_creates_nothing(postgres: PostgresServer, schema: str) -> None:
    ls.PostgresSink(postgres.url, f"{schema}.t", key=["user"], create=True).dry_run(ROWS)
    assert tables_of(postgres, schema) == []


def test_a_column_of_a_type_that_postgresql_lacks(postgres: PostgresServer, schema: str) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.t", create=True)
    with pytest.raises(
        InvalidInputError, match=r"no column for values of this type: column d; found duration\[us\]"
    ):
        sink.check(pa.schema([("d", pa.duration("us"))]))
