"""`state`, `sql` and `export`: the rows of state tables."""

from __future__ import annotations

import click
import pyarrow as pa

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
from lakestate.cli.rows.listings import parse_keys, show_rows
from lakestate.cli.rows.parquet_file import write_parquet
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.inspection import StateTable


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
@epoch_option
def state(
    session: Session,
    job_id: str,
    operator: str,
    table: str,
    keys: tuple[str, ...],
    where: str | None,
    columns: str | None,
    limit: int,
    only_count: bool,
    epoch: str,
) -> None:
    """Show the rows of a state table at the end of an epoch.

    Overwritten, removed and expired rows are not there: these are the rows that a restored operator would
    see. With --key only the row groups that can hold the keys are fetched. For a file, use export.
    """
    with waiting(f"opening {operator}.{table}"):
        found = session.epoch_state(job_id, epoch).table(operator, table)
        rows = _select(found, keys, where, columns)
    if only_count:
        total = sum(batch.num_rows for batch in rows)
        session.show(Report({"operator": operator, "table": table, "epoch": found.epoch, "rows": total}))
        return
    show_rows(session, rows, limit)


def _select(
    table: StateTable, keys: tuple[str, ...], where: str | None, columns: str | None
) -> pa.RecordBatchReader:
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if where is None:
        return table.get(parse_keys(keys, table), names).to_reader() if keys else table.reader(None, names)
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
    are streamed. Another epoch stands after an @, in quotes:

    \b
      lakestate sql totals 'SELECT * FROM totals ORDER BY spend DESC LIMIT 10'
      lakestate sql totals 'SELECT * FROM totals EXCEPT SELECT * FROM "totals@12"'
      lakestate sql totals 'SELECT count(*) FROM per_user."totals@before-sale"'
    """
    with waiting("running the query"):
        state_of_epoch = session.epoch_state(job_id, epoch)
        rows, problems = run_query(session.checkpoint.job(job_id), state_of_epoch, query)
        for problem in problems:
            note(f"not a view: {problem}")
    show_rows(session, rows, limit)


@command("export")
@table_arguments
@click.argument("target", metavar="DEST.parquet")
@_row_options
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
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
    overwrite: bool,
    epoch: str,
    dry_run: bool,
) -> None:
    """Write the rows of a state table into one plain Parquet file.

    DEST is a path or a URL; in the store of the checkpoints, the options of the place hold for it too. Rows
    are streamed, and the file appears when it is complete. --dry-run counts the rows.
    """
    with waiting(f"exporting {operator}.{table}") as line:
        found = session.epoch_state(job_id, epoch).table(operator, table)
        rows = _select(found, keys, where, columns)
        facts: dict[str, object] = {"operator": operator, "table": table, "epoch": found.epoch}
        if dry_run:
            facts |= {"file": target, "rows": sum(batch.num_rows for batch in rows), "done": False}
        else:
            options = dict(session.place.store.options) if "://" in target else {}
            written = write_parquet(
                rows, target, options, lambda n: line.update(f"{n:,} rows"), overwrite=overwrite
            )
            facts |= {
                "file": written.url,
                "rows": written.rows,
                "size_bytes": Bytes(written.size_bytes),
                "done": True,
            }
    session.show(Report(facts))
