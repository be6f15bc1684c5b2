"""`plan`: what a new version of the code would do to the stored state of a job."""

from __future__ import annotations

import click

from lakestate.cli.cells import Bytes
from lakestate.cli.code import load_pipeline
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, job_argument
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import waiting
from lakestate.errors import InvalidInputError
from lakestate.spark.deploy_plan import plan as plan_pipeline


@command("plan")
@job_argument
@click.argument("pipeline", metavar="MODULE:PIPELINE")
@click.option(
    "--drop", multiple=True, metavar="NAME", help="As in start(drop=…): an operator, or operator.table."
)
@click.option("--reopen", is_flag=True, help="As in start(reopen=True): a job whose stream has ended.")
def plan(session: Session, job_id: str, pipeline: str, drop: tuple[str, ...], reopen: bool) -> None:
    """Say what a pipeline would do to the stored state, before it is deployed.

    MODULE:PIPELINE is a Pipeline, or a function that makes one. It is compared with the newest epoch of its
    own checkpoint; a running job is not disturbed. Sources, operators, sinks and tables are checked, every
    file of an older version is migrated and discarded, and one Spark task loads the code. Each table is
    unchanged, migrated, new, dropped or refused. Exit code 1 if the pipeline could not start.
    """
    with waiting("loading the pipeline") as line:
        code = load_pipeline(pipeline)
        if code.job_id != job_id:
            raise InvalidInputError(
                f"{pipeline} is the pipeline of another job", found=code.job_id, expected=job_id
            )
        line.update("trying the pipeline")
        planned = plan_pipeline(code, drop=drop, reopen=reopen)
    rows = [
        (
            each.operator,
            each.table,
            each.outcome.value,
            each.stored_version,
            each.declared_version,
            Bytes(each.size_bytes),
            Bytes(each.rewritten_bytes),
            each.reason,
        )
        for each in planned.tables
    ]
    columns = (
        "operator",
        "table",
        "outcome",
        "stored",
        "declared",
        "state_bytes",
        "rewritten_bytes",
        "reason",
    )
    facts = {
        "job": job_id,
        "can_start": planned.can_start,
        "after_epoch": planned.epoch,
        "migrated_files": planned.migrated_files,
        "migrated_rows": planned.migrated_rows,
    }
    problems = [(problem.code, str(problem)) for problem in planned.problems]
    session.show(
        Report(facts, {"tables": Listing(columns, rows), "problems": Listing(("code", "problem"), problems)})
    )
    if not planned.can_start:
        session.exit_code = ExitCode.FOUND
