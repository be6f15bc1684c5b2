"""`doctor`: whether this machine can run jobs, and may do everything with the store that a job does."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click

import lakestate
from lakestate.cli.facts.machine import check_java, check_python, check_spark
from lakestate.cli.facts.store_checks import Check, Verdict, check_store, look_at_store
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, dry_run_option
from lakestate.cli.output import Listing
from lakestate.cli.session import Session
from lakestate.cli.waiting import waiting

PACKAGES = (
    *("pyarrow", "numpy", "obstore", "protobuf", "msgspec", "xxhash"),
    *("pyspark", "pandas", "boto3", "deltalake", "pyiceberg", "duckdb"),
)


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
        checks = [check_python(), Check("lakestate", Verdict.OK, lakestate.__version__), *_packages()]
        checks.append(check_java())
        if try_spark:
            line.update("starting Spark")
            checks.append(check_spark())
        if try_store:
            line.update(f"trying {session.backend.url}")
            store = session.backend.objects("any").store
            checks += look_at_store(store) if dry_run else check_store(store, session.backend.ambient)
    session.show(
        Listing(("check", "verdict", "detail"), [(c.name, c.verdict.value, c.detail) for c in checks])
    )
    if any(check.verdict is Verdict.FAILED for check in checks):
        session.exit_code = ExitCode.FOUND


def _packages() -> list[Check]:
    return [_package(name) for name in PACKAGES]


def _package(name: str) -> Check:
    try:
        return Check(name, Verdict.OK, version(name))
    except PackageNotFoundError:
        return Check(name, Verdict.ABSENT, "not installed")
