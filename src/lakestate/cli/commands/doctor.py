"""`doctor`: whether this machine can run jobs, and may do everything with the store that a job does."""

from __future__ import annotations

import click

from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, dry_run_option
from lakestate.cli.output import Listing
from lakestate.cli.session import Session
from lakestate.cli.waiting import waiting
from lakestate.spark.diagnosis.doctor import doctor as examine


@command("doctor")
@click.option(
    "--spark/--no-spark", "try_spark", default=True, help="Start Spark and a Python worker, or do not."
)
@click.option("--store/--no-store", "try_store", default=True, help="Try the store, or do not.")
@dry_run_option
def doctor(session: Session, try_spark: bool, try_store: bool, dry_run: bool) -> None:
    """Check Python, Java, Spark, its Python workers, and what the store allows.

    Every permission that a job needs is tried on scratch objects below lakestate-doctor-…, which are
    deleted again: create, create if absent, compare and swap, list, read, copy, delete, multipart upload.
    The clock of the store is compared with that of this machine. With --dry-run the store is only listed.
    Exit code 1 if a check fails.
    """
    with waiting("looking at this machine") as line:
        backend = session.backend if try_store else None
        checks = examine(backend, spark=try_spark, dry_run=dry_run, tell=line.update)
    session.show(
        Listing(("check", "verdict", "detail"), [(c.name, c.verdict.value, c.detail) for c in checks])
    )
    if not checks.is_healthy:
        session.exit_code = ExitCode.FOUND
