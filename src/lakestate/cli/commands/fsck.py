"""`fsck`: read everything that a job needs, and say what is damaged and which epochs can be restored."""

from __future__ import annotations

import click

from lakestate.cli.cells import Bytes
from lakestate.cli.code import load_sinks
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, dry_run_option, job_argument, pipeline_option
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.protocol.paths import FENCE
from lakestate.repair import rebuild_fence
from lakestate.verification import VerificationReport, verify
from lakestate.verification.job import THREADS_DEFAULT


@command("fsck")
@job_argument
@pipeline_option
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=THREADS_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many files are read at a time.",
)
@click.option(
    "--repair", is_flag=True, help="Rebuild the fence if it is damaged. The damaged one is set aside."
)
@dry_run_option
def fsck(
    session: Session, job_id: str, pipeline: str | None, threads: int, repair: bool, dry_run: bool
) -> None:
    """Verify a whole job: existence, size, checksum, content and cross-references of everything.

    With the code of the job, the unfinished output of its sinks is verified as well. The job may be
    running. Exit code 1 if anything is damaged.

    --repair rebuilds a damaged fence (generation.json), which fences a running driver. Nothing else can be
    repaired without a copy: to continue without what is damaged, use rollback. Nothing is ever deleted.
    """
    session.job(job_id)
    sinks = load_sinks(session.code(pipeline))
    with waiting(f"reading everything of job {job_id}"):
        report = verify(session.backend, job_id, sinks=sinks, threads=threads)
    set_aside = _repair_fence(session, job_id, report) if repair and not dry_run else None
    if set_aside is not None:
        with waiting("reading everything again"):
            report = verify(session.backend, job_id, sinks=sinks, threads=threads)
    session.show(_shown(report, set_aside))
    if not report.is_clean:
        session.exit_code = ExitCode.FOUND
        _tell_way_out(job_id, report, repair=repair)


def _repair_fence(session: Session, job_id: str, report: VerificationReport) -> str | None:
    if not report.about(FENCE):
        return None
    rebuilt = rebuild_fence(session.backend, job_id)
    return rebuilt.set_aside or "nothing: the fence was missing"


def _shown(report: VerificationReport, set_aside: str | None) -> Report:
    facts = {
        "url": report.url,
        "sound": report.is_clean,
        "objects": sum(report.checked.values()),
        "read_bytes": Bytes(report.bytes_read),
        "restorable": list(report.restorable),
        "set_aside": set_aside,
    }
    findings = [
        (
            each.kind,
            each.problem.value,
            each.object_name,
            each.found,
            each.expected,
            list(each.epochs),
        )
        for each in report.findings
    ]
    lost = [(verdict.epoch, verdict.reasons[0]) for verdict in report.not_restorable]
    orphans = [(o.kind, o.object_name, Bytes(o.size_bytes), o.deletion.value) for o in report.orphans]
    dangling = [(each.object_name, each.token, each.status.value) for each in report.dangling]
    return Report(
        facts,
        {
            "findings": Listing(("kind", "problem", "object", "found", "expected", "epochs_lost"), findings),
            "not_restorable": Listing(("epoch", "reason"), lost),
            "orphans": Listing(("kind", "object", "size_bytes", "what_happens"), orphans),
            "dangling": Listing(("object", "token", "what_happens"), dangling),
        },
    )


def _tell_way_out(job_id: str, report: VerificationReport, *, repair: bool) -> None:
    if report.about(FENCE) and not repair:
        note(f"hint: lakestate fsck {job_id} --repair rebuilds the fence")
    newest = report.epochs[-1] if report.epochs else None
    if newest is not None and not newest.is_restorable and report.restorable:
        good = report.restorable[-1]
        note(f"hint: restore the objects from a copy, or: lakestate rollback {job_id} {good}")
