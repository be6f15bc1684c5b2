"""`du`: how much a job stores, where, how fast it grows, and what that costs."""

from __future__ import annotations

import click

from lakestate.cli.cells import Bytes, Millis
from lakestate.cli.completion import complete_full_table
from lakestate.cli.facts.disk_use import (
    growth_of,
    list_stored,
    monthly_usd,
    requests_of,
    sizes_by_age,
    sizes_by_key_range,
)
from lakestate.cli.facts.epochs import see_epochs
from lakestate.cli.facts.subtasks import SeenSubtasks, key_text, see_subtasks
from lakestate.cli.options import command, epoch_option, job_argument
from lakestate.cli.output import Listing, Report
from lakestate.cli.rows.duck import largest_keys
from lakestate.cli.rows.keys import find_table_name
from lakestate.cli.rows.listings import distinct
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.protocol.values import FileRef

KEYS_SHOWN = 10


@command("du")
@job_argument
@click.option(
    "--keys",
    "named",
    metavar="OPERATOR.TABLE",
    shell_complete=complete_full_table,
    help="Read this table, and show its largest keys.",
)
@epoch_option
def du(session: Session, job_id: str, named: str | None, epoch: str) -> None:
    """Say how much a job stores: by table, operator, age and key range, and in all.

    Tables, operators, ages and key ranges are those of one epoch; "stored" is everything below the job's
    folder. Growth and requests are averages over the retained epochs, and the price is that of S3 Standard
    at list prices (us-east-1), for state alone: output files cost besides. If a key range is much larger
    than the others, --keys shows the keys that have the most bytes, written as text.
    """
    job = session.job(job_id)
    with waiting("listing all objects"):
        manifest = session.epoch_state(job_id, epoch).manifest
        subtasks = see_subtasks(job, manifest)
        stored = list_stored(job)
        seen = see_epochs(job, job.list_epochs(), ())
        largest = None if named is None else _largest_keys(session, job_id, epoch, named)
    files = [file for table in subtasks.tables for file in table.files]
    growth, requests = growth_of(seen), requests_of(manifest, files)
    pace = None if growth is None else growth.epochs_a_month
    usd = monthly_usd(stored.size_bytes, requests, pace)
    facts = {
        "job": job_id,
        "epoch": manifest.epoch,
        "state_bytes": Bytes(manifest.summary.size_bytes),
        "stored_bytes": Bytes(stored.size_bytes),
        "epochs": len(seen),
        "growth_per_epoch_bytes": None if growth is None else Bytes(growth.growth_bytes // growth.epochs),
        "written_per_epoch_bytes": None if growth is None else Bytes(growth.written_bytes // growth.epochs),
        "time_between_epochs_ms": None if growth is None else Millis(growth.seconds * 1000 // growth.epochs),
        "writes_per_epoch": requests.writes,
        "reads_per_epoch": requests.reads,
        **{f"{name}_usd_per_month": round(price, 4) for name, price in usd.items()},
    }
    kinds = [(kind.value, stored.counts[kind], Bytes(size)) for kind, size in stored.sizes.items()]
    ages = [(age, count, Bytes(size)) for age, count, size in sizes_by_age(files, manifest.epoch)]
    listings = {
        "tables": Listing(_COLUMNS, _table_rows(subtasks)),
        "operators": Listing(_OPERATOR_COLUMNS, list(subtasks.operator_rows())),
        "ages": Listing(("written", "files", "size_bytes"), ages),
        "key_ranges": Listing(("from_key", "to_key", "size_bytes"), _range_rows(files)),
        "stored": Listing(("kind", "objects", "size_bytes"), kinds),
    }
    if largest is not None:
        listings["largest_keys"] = largest
    session.show(Report(facts, listings))
    for damage in subtasks.damages:
        note(f"not counted: {damage}")


_COLUMNS = ("operator", "table", "files", "rows", "removed_rows", "size_bytes", "share")
_OPERATOR_COLUMNS = ("operator", "tables", "files", "rows", "size_bytes", "share")


def _table_rows(subtasks: SeenSubtasks) -> list[tuple[object, ...]]:
    total = sum(table.size_bytes for table in subtasks.tables) or 1
    return [
        (
            table.operator_id,
            table.config.name,
            len(table.files),
            table.row_count,
            sum(file.removed_count for file in table.files),
            Bytes(table.size_bytes),
            f"{table.size_bytes / total:.0%}",
        )
        for table in sorted(subtasks.tables, key=lambda table: -table.size_bytes)
    ]


def _largest_keys(session: Session, job_id: str, epoch: str, named: str) -> Listing:
    state = session.epoch_state(job_id, epoch)
    found = largest_keys(state.table(*find_table_name(named, state)), KEYS_SHOWN)
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return Listing(distinct(found.column_names), rows, is_data=True)


def _range_rows(files: list[FileRef]) -> list[tuple[object, ...]]:
    return [
        (key_text(keys.first), key_text(keys.last), Bytes(size)) for keys, size in sizes_by_key_range(files)
    ]
