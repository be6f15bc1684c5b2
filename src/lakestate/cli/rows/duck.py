"""State tables as views of DuckDB: every table of an epoch, and of other epochs that a query names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.cli.rows.epoch_names import quote_epochs
from lakestate.errors import (
    RESTORE_OR_GO_BACK,
    CorruptionError,
    IncompatibleStateError,
    InvalidInputError,
    LakestateError,
    MissingExtraError,
    NotFoundError,
    StorageUnavailableError,
)
from lakestate.inspection import EpochState, JobState, StateTable
from lakestate.sql_names import quote_identifier

if TYPE_CHECKING:
    import duckdb


def open_duckdb() -> duckdb.DuckDBPyConnection:
    """A database in memory that shows times in UTC."""
    try:
        import duckdb
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            "this needs DuckDB", action='install it with: pip install "lakestate[cli]"'
        ) from missing
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@contextmanager
def translate_sql_errors() -> Iterator[None]:
    """What DuckDB says about a query, in one line; and what was wrong with state that it was reading."""
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException) as cause:
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        failure = _failure_of_a_stream(" ".join(lines))
        if failure is not None:
            raise failure from cause
        told = [line for line in lines if not line.startswith(("LINE ", "^"))] or [type(cause).__name__]
        hint = next(
            (line for line in told[1:] if line.lower().startswith(("did you mean", "candidate"))), None
        )
        raise InvalidInputError("DuckDB refuses this query", found=told[0], action=hint) from cause


def _failure_of_a_stream(told: str) -> LakestateError | None:
    """What went wrong while DuckDB read rows of ours: it keeps the text of an error, and not the error."""
    for kind in (CorruptionError, StorageUnavailableError, NotFoundError):
        text, found, _ = told.partition(f" [{kind.code}]")
        if found:
            summary, hint, _ = text.rpartition("Unknown error: ")[2].partition(f"; {RESTORE_OR_GO_BACK}")
            return kind(summary, action=RESTORE_OR_GO_BACK if hint else None)
    return None


def filter_rows(
    rows: pa.RecordBatchReader | pa.Table, condition: str, columns: list[str]
) -> pa.RecordBatchReader:
    """The rows for which a condition of SQL is true."""
    connection = open_duckdb()
    connection.register("rows_of_state", rows)
    names = ", ".join(quote_identifier(name) for name in columns)
    return _answer(connection, f"SELECT {names} FROM rows_of_state WHERE ({condition})")  # noqa: S608 - the user's own


def run_query(job: JobState, epoch: EpochState, sql: str) -> tuple[pa.RecordBatchReader, list[str]]:
    """The answer to a query over the tables of an epoch, and what is said of tables that cannot be read."""
    views = _Views(open_duckdb())
    query, named = quote_epochs(sql)
    views.add_epoch(epoch, "")
    for each in named:
        views.add_epoch(job.epoch(each), f"@{each}")
    return _answer(views.connection, query), views.problems


def largest_keys(table: StateTable, count: int) -> pa.Table:
    """The keys with the most bytes, as text, and their rows. Rows are told apart as they are routed."""
    connection = open_duckdb()
    table.to_duckdb(connection, "rows_of_state")
    config = table.declaration
    names = config.routing_columns or table.key_columns
    keys = ", ".join(quote_identifier(name) for name in names)
    parts = [_bytes_of(field) for field in table.schema]
    sql = (
        f"SELECT {keys}, count(*) AS rows, sum({' + '.join(parts)})::BIGINT AS text_bytes "  # noqa: S608 - our own
        f"FROM rows_of_state GROUP BY {keys} ORDER BY {len(names) + 2} DESC, {keys} LIMIT {count}"
    )
    return _answer(connection, sql).read_all()


def _bytes_of(field: pa.Field) -> str:
    name = quote_identifier(field.name)
    is_binary = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
    return f"coalesce({f'octet_length({name})' if is_binary else f'strlen({name}::VARCHAR)'}, 0)"


def _answer(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """The rows of a query, as they come."""
    with translate_sql_errors():
        statements = connection.extract_statements(sql)
        if len(statements) > 1:
            # DuckDB would run all of them, and show the rows of the last.
            raise InvalidInputError(
                "this is more than one query",
                found=f"{len(statements)} statements",
                action="ask one at a time",
            )
        relation = connection.sql(sql)
        if relation is None:
            raise InvalidInputError("this has no rows", found=sql, expected="a query, such as SELECT …")
        rows = relation.to_arrow_reader()

    def batches() -> Iterator[pa.RecordBatch]:
        with translate_sql_errors():
            yield from rows

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


class _Views:
    """The views of one connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.problems: list[str] = []

    def add_epoch(self, epoch: EpochState, suffix: str) -> None:
        """Views `operator.table`, and `table` where no other operator has one of that name."""
        tables = epoch.tables()
        names = [info.table for info in tables]
        for info in tables:
            try:
                table = epoch.table(info.operator, info.table)
            except IncompatibleStateError as error:
                self.problems.append(str(error))
                continue
            name = f"{info.table}{suffix}"
            # SHOW TABLES lists it: its name is what can be typed, and no table can have it.
            source = f"{quote_identifier(info.operator)}.{quote_identifier(name)}"
            table.to_duckdb(self.connection, source)
            self._add_view(info.operator, name, source)
            if names.count(info.table) == 1:
                self._add_view(None, name, source)

    def _add_view(self, schema: str | None, name: str, source: str) -> None:
        where = ""
        if schema is not None:
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(schema)}")
            where = f"{quote_identifier(schema)}."
        query = f"SELECT * FROM {quote_identifier(source)}"  # noqa: S608 - our own name
        self.connection.execute(f"CREATE VIEW {where}{quote_identifier(name)} AS {query}")
