"""`state`, `sql` and `export`: the rows of state tables."""

from __future__ import annotations

from collections.abc import Callable

import click
import pyarrow as pa
from click.core import ParameterSource

from lakestate.cli.cells import Bytes
from lakestate.cli.options import (
    command,
    dry_run_option,
    epoch_option,
    job_argument,
    limit_option,
    table_arguments,
)
from lakestate.cli.output import Report
from lakestate.cli.rows.duck import filter_rows, run_query
from lakestate.cli.rows.keys import parse_keys
from lakestate.cli.rows.listings import first_rows, show_rows
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.errors import InvalidInputError
from lakestate.inspection import StateTable
from lakestate.inspection.exports import Export
from lakestate.inspection.row_filter import require_columns
from lakestate.sinks.iceberg.catalog import IcebergCatalog


def _row_options(function: click.decorators.FC) -> click.decorators.FC:
    function = click.option("--columns", metavar="A,B", help="Only these columns.")(function)
    function = click.option("--where", metavar="SQL", help="Only rows for which this is true (DuckDB).")(
        function
    )
    return click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="KEY",
        help="Only this key: a value, column=value,…, or a JSON object. May be repeated.",
    )(function)


@command("state")
@table_arguments
@_row_options
@limit_option
@click.option("--count", "only_count", is_flag=True, help="Only how many rows there are.")
@click.option("--to", "target", metavar="FILE", help="Write the rows into this Parquet file.")
@click.option("--overwrite", is_flag=True, help="Replace the file of --to if it exists.")
@epoch_option
@click.pass_context
def state(
    context: click.Context,
    session: Session,
    job_id: str,
    operator: str,
    table: str,
    keys: tuple[str, ...],
    where: str | None,
    columns: str | None,
    limit: int,
    only_count: bool,
    target: str | None,
    overwrite: bool,
    epoch: str,
) -> None:
    """Show the rows of a state table at the end of an epoch.

    Overwritten, removed and expired rows are not there: these are the rows that a restored operator would
    see. With --key only the row groups that can hold the keys are fetched.

    With --to, the rows are streamed into a Parquet file, which appears when it is complete: all of them,
    unless you pass --limit. FILE is a path or a URL, as in export, which also writes Iceberg tables:

    \b
      lakestate state shop per_user totals --where 'spend > 5' --to /data/spenders.parquet
    """
    if target is None and overwrite:
        raise InvalidInputError("nothing to overwrite", found="--overwrite", expected="--to FILE with it")
    if target is not None and only_count:
        raise InvalidInputError("a count is not written", found="--count and --to", expected="one of them")
    to = None if target is None else Export(operator, table, target, options=_store_options(session, target))
    with waiting(f"opening {operator}.{table}"):
        found = session.epoch_state(job_id, epoch).table(operator, table)
        rows = _select(found, keys, where, columns)
    if to is not None:
        is_limited = context.get_parameter_source("limit") is not ParameterSource.DEFAULT
        chosen = first_rows(rows, limit) if is_limited and limit else rows
        session.show(Report(_write(to, found, lambda: chosen, overwrite=overwrite)))
        return
    if only_count:
        total = sum(batch.num_rows for batch in rows)
        session.show(Report({"operator": operator, "table": table, "epoch": found.epoch, "rows": total}))
        return
    asked = "this key" if len(keys) == 1 else "one of these keys"
    nothing = f"no row of epoch {found.epoch} has {asked}" if keys and where is None else None
    show_rows(session, rows, limit, if_none=nothing)


def _select(
    table: StateTable, keys: tuple[str, ...], where: str | None, columns: str | None
) -> pa.RecordBatchReader:
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if where is None:
        return table.get(parse_keys(keys, table), names).to_reader() if keys else table.reader(None, names)
    if names is not None:
        require_columns(names, table.schema, table.name)
    rows = table.get(parse_keys(keys, table)) if keys else table.reader()
    return filter_rows(rows, where, names or table.schema.names)


@command("sql")
@job_argument
@click.argument("query")
@limit_option
@epoch_option
def sql(session: Session, job_id: str, query: str, limit: int, epoch: str) -> None:
    """Ask the tables of an epoch with SQL (DuckDB).

    Every table is a view, operator.table, and also table if no other operator has one of that name. Rows
    are streamed; SHOW TABLES lists the views. Another epoch stands directly after an @: a number, a tag, a
    date or newest. A time, or a tag with dots, needs quotes:

    \b
      lakestate sql shop 'SELECT * FROM totals ORDER BY spend DESC LIMIT 10'
      lakestate sql shop 'SELECT * FROM totals EXCEPT SELECT * FROM totals@12'
      lakestate sql shop 'SELECT count(*) FROM per_user.totals@before-sale'
      lakestate sql shop 'SELECT count(*) FROM per_user."totals@2026-01-31T12:00"'
    """
    with waiting("running the query"):
        state_of_epoch = session.epoch_state(job_id, epoch)
        rows, problems = run_query(session.checkpoint.job(job_id), state_of_epoch, query)
        for problem in problems:
            note(f"not a view: {problem}")
    show_rows(session, rows, limit)


@command("export")
@table_arguments
@click.argument("target", metavar="DEST")
@_row_options
@click.option(
    "--catalog",
    metavar="CATALOG",
    help="Export to an Iceberg table: the warehouse of an SQLite catalog, or a name that pyiceberg knows.",
)
@click.option(
    "--catalog-option",
    "catalog_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the catalog, as in pyiceberg. May be repeated.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that exists, or whatever the table holds.")
@epoch_option
@dry_run_option
def export(
    session: Session,
    job_id: str,
    operator: str,
    table: str,
    target: str,
    keys: tuple[str, ...],
    where: str | None,
    columns: str | None,
    catalog: str | None,
    catalog_options: tuple[str, ...],
    overwrite: bool,
    epoch: str,
    dry_run: bool,
) -> None:
    """Write the rows of a state table into a plain Parquet file, or into an Iceberg table.

    DEST is the path or URL of a file; in the store of the checkpoints, the options of the place hold for it
    too. With --catalog it is the name of an Iceberg table, namespace.name, which is created if need be:

    \b
      lakestate export shop per_user totals /data/totals.parquet
      lakestate export shop per_user totals shop.totals --catalog /data/warehouse

    Rows are streamed. The file appears when it is complete, and the rows of a table are replaced in one
    commit. A table that holds this epoch, or a later one, stays as it is. --dry-run counts the rows. In a
    pipeline, Pipeline(exports=[ls.Export(…)]) does the same again and again.
    """
    options = _store_options(session, target)
    to = Export(operator, table, target, catalog=_catalog_of(catalog, catalog_options), options=options)
    with waiting(f"exporting {operator}.{table}"):
        found = session.epoch_state(job_id, epoch).table(operator, table)

        def read() -> pa.RecordBatchReader:
            return _select(found, keys, where, columns)

        if dry_run:
            rows = sum(batch.num_rows for batch in read())
            facts: dict[str, object] = {"operator": operator, "table": table, "epoch": found.epoch}
            facts |= {"to": target, "rows": rows, "done": False}
        else:
            part = "; ".join(str(each) for each in (*keys, where, columns) if each)
            facts = _write(to, found, read, overwrite=overwrite, part=part)
    session.show(Report(facts))
    if not dry_run and not facts["done"]:
        note(f"the table holds epoch {facts['epoch']} already: --overwrite writes it again")


def _store_options(session: Session, target: str) -> dict[str, str]:
    """The options of the place hold for URLs, too."""
    return dict(session.place.store.options) if "://" in target else {}


def _write(
    to: Export,
    found: StateTable,
    read: Callable[[], pa.RecordBatchReader],
    *,
    overwrite: bool,
    part: str = "",
) -> dict[str, object]:
    """Write rows where an export goes, and say what is there now."""
    with waiting(f"exporting {to.operator}.{to.table}") as line:
        tell: Callable[[int], None] = lambda n: line.update(f"{n:,} rows")  # noqa: E731
        done = to.write(found, read, tell, overwrite=overwrite, part=part)
    facts: dict[str, object] = {"operator": to.operator, "table": to.table, "epoch": done.epoch}
    facts |= {"to": done.target, "rows": done.rows}
    facts |= {} if done.size_bytes is None else {"size_bytes": Bytes(done.size_bytes)}
    return facts | {"done": done.is_new}


def _catalog_of(named: str | None, options: tuple[str, ...]) -> IcebergCatalog | None:
    """A catalog by the warehouse of an SQLite one, or by a name with properties."""
    properties = dict(_named_value(each) for each in options)
    if named is None:
        if properties:
            raise InvalidInputError(
                "properties of no catalog", found=", ".join(properties), expected="--catalog"
            )
        return None
    if "/" in named or named.startswith("."):
        return IcebergCatalog.sqlite(named, **properties)
    return IcebergCatalog(named, properties)


def _named_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidInputError("not a property of a catalog", found=repr(text), expected="NAME=VALUE")
    return name, value
