"""`diff` and `history`: what changed between two epochs, and what one key had in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from lakestate.cli.completion import complete_epoch, complete_full_table
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, job_argument, limit_option, table_arguments
from lakestate.cli.output import Listing
from lakestate.cli.rows.keys import find_table_name, parse_keys
from lakestate.cli.rows.listings import show_rows
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.inspection import JobState, StateChanges
from lakestate.inspection.changes import EXPIRED, KeyVersion
from lakestate.job.named_epochs import NEWEST
from lakestate.protocol.values import Epoch
from lakestate.row_kind import AFTER, CHANGE, DELETE, INSERT


@command("diff")
@job_argument
@click.argument("before", metavar="EPOCH", shell_complete=complete_epoch)
@click.argument("after", metavar="[EPOCH]", default=NEWEST, shell_complete=complete_epoch)
@click.option(
    "--table",
    "named",
    metavar="OPERATOR.TABLE",
    shell_complete=complete_full_table,
    help="The rows that changed in one table.",
)
@click.option("--key", metavar="KEY", help="Only this key, with --table: a value, column=value,… or JSON.")
@limit_option
def diff(
    session: Session, job_id: str, before: str, after: str, named: str | None, key: str | None, limit: int
) -> None:
    """Say what changed from one epoch to another, the newest if only one is named.

    Without --table, how many rows of each table were inserted, updated, deleted, or expired. With it, the
    rows themselves: insert, delete (with _expired, if time did it), or update_preimage and
    update_postimage, the row before and after. Only the files that differ are read.
    """
    objects = session.job(job_id)
    first, last = session.epoch(objects, before), session.epoch(objects, after)
    job = session.checkpoint.job(job_id)
    if named is not None:
        _show_changes(session, job, named, key, first, last, limit)
        return
    if key is not None:
        raise InvalidInputError(
            "a key of no table", found=f"--key {key}", expected="--table OPERATOR.TABLE with it"
        )
    with waiting(f"comparing epochs {first} and {last}"):
        rows = list(_count_changes(session, job, first, last))
    session.show(Listing(("operator", "table", "inserted", "updated", "deleted", "expired"), rows))


def _show_changes(
    session: Session, job: JobState, named: str, key: str | None, first: Epoch, last: Epoch, limit: int
) -> None:
    with waiting(f"comparing epochs {first} and {last}"):
        history = job.table(*find_table_name(named, job.epoch(last), job.epoch(first)))
        changes = history.changes(first, last)
        keys = None if key is None else parse_keys([key], history.at(last))
        where = None if keys is None else {name: keys.column(name) for name in keys.column_names}
        rows = changes.reader(where, _change_first(changes))
    show_rows(session, rows, limit, if_none=f"nothing changed from epoch {first} to {last}")


def _change_first(changes: StateChanges) -> list[str]:
    """What happened to a row stands before the row."""
    return [CHANGE, EXPIRED, *changes.row_schema.names]


def _count_changes(
    session: Session, job: JobState, first: Epoch, last: Epoch
) -> Iterator[tuple[object, ...]]:
    """The changes of each table, as far as both epochs of it can be read."""
    tables = {(info.operator, info.table) for epoch in (first, last) for info in job.epoch(epoch).tables()}
    for operator, table in sorted(tables):
        counts = Counter[tuple[str, bool]]()
        try:
            changes = job.table(operator, table).changes(first, last)
            for batch in changes.reader(columns=[CHANGE, EXPIRED]):
                counts.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        except (CorruptionError, IncompatibleStateError) as error:
            note(f"{operator}.{table} cannot be compared: {error}")
            if isinstance(error, CorruptionError):
                session.exit_code = ExitCode.DAMAGED
            continue
        yield (
            operator,
            table,
            counts[INSERT, False],
            counts[AFTER, False],
            counts[DELETE, False],
            counts[DELETE, True],
        )


@command("history")
@table_arguments
@click.argument("key")
def history(session: Session, job_id: str, operator: str, table: str, key: str) -> None:
    """Show what one key had in every epoch that is retained.

    KEY is a value, column=value,… or a JSON object. Epochs without a change are one line. A key is present,
    absent, deleted or expired; epochs that retention has deleted are not retained, and one that cannot be
    read is damaged. Only the row groups that can hold the key are read.
    """
    session.job(job_id)
    with waiting("reading all epochs"):
        tables = session.checkpoint.job(job_id).table(operator, table)
        newest = tables.at(NEWEST)
        found = tables.history(parse_keys([key], newest))
    names = newest.schema.names
    rows = [row for version in found for row in _version_rows(version, names)]
    session.show(Listing(("first_epoch", "last_epoch", "status", "since", *names), rows, is_data=True))
    for version in found:
        if version.problem is not None:
            note(f"epoch {version.first} cannot be read: {version.problem}")
            session.exit_code = ExitCode.DAMAGED


def _version_rows(version: KeyVersion, names: list[str]) -> Iterator[tuple[object, ...]]:
    head = (version.first, version.last, version.status, version.since)
    for row in version.rows or ({},):
        yield (*head, *(row.get(name) for name in names))
