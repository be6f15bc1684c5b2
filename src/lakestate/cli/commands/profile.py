"""`profile`: where the time of an epoch goes."""

from __future__ import annotations

import click

from lakestate.cli.cells import Share
from lakestate.cli.facts.epochs import see_epochs
from lakestate.cli.options import command, job_argument
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.inspection.profile import EpochProfile, average_profile

EPOCHS_READ = 20


@command("profile")
@job_argument
@click.option(
    "--epochs",
    "count",
    type=click.IntRange(min=1),
    default=EPOCHS_READ,
    show_default=True,
    metavar="N",
    help="The average of how many, counted from the newest.",
)
def profile(session: Session, job_id: str, count: int) -> None:
    """Show where the time of an epoch goes: in Spark, in Lakestate, in your code.

    The driver of a pipeline measures each epoch, and the manifest of the next one keeps that. What subtasks
    do at the same time counts once, shared out by what each part took. Waiting for the trigger does not
    count.
    """
    job = session.job(job_id)
    with waiting("reading manifests"):
        seen = see_epochs(job, job.list_epochs()[-count:], ())
        found = average_profile(each.manifest for each in seen if each.manifest is not None)
    session.show(_report(job_id, found))
    if not found.epochs:
        note("no epoch was measured: only pipelines on Spark are, from their second epoch on")


def _report(job_id: str, found: EpochProfile) -> Report:
    owners: dict[str, float] = {}
    for part in found.parts:
        owners[part.owner] = owners.get(part.owner, 0.0) + part.share
    facts = {
        "job": job_id,
        "epochs": found.epochs,
        "milliseconds": round(found.milliseconds, 1),
        **{owner.lower().replace(" ", "_"): Share(round(share, 3)) for owner, share in owners.items()},
    }
    rows = [
        (part.part, part.owner, round(part.milliseconds, 1), Share(round(part.share, 3)), part.what)
        for part in found.parts
    ]
    return Report(facts, {"parts": Listing(("part", "owner", "milliseconds", "share", "what"), rows)})
