"""`rollback`: continue a job from an earlier epoch."""

from __future__ import annotations

import click

from lakestate.cli.cells import Bytes
from lakestate.cli.code import load_outputs
from lakestate.cli.completion import complete_epoch
from lakestate.cli.options import command, dry_run_option, job_argument, pipeline_option
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.errors import InvalidInputError, VisibleOutputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.values import Epoch
from lakestate.repair import LaterOutput, go_back, preview_going_back
from lakestate.repair.later_output import readable_epochs


@command("rollback")
@job_argument
@click.argument("epoch", shell_complete=complete_epoch)
@pipeline_option
@click.option(
    "--accept-visible-output",
    is_flag=True,
    help="Go back although output of later epochs is visible, and its rows will be written again.",
)
@dry_run_option
def rollback(
    session: Session,
    job_id: str,
    epoch: str,
    pipeline: str | None,
    accept_visible_output: bool,
    dry_run: bool,
) -> None:
    """Make a job continue from an earlier epoch: state, offsets, open files.

    The state of EPOCH is published again as the next epoch. Nothing is rewritten or deleted. Output that
    became visible since then is listed; it stays visible, and its rows are written again, so there must be
    none, or you accept it. A running driver is fenced. Going back to the same epoch twice does nothing.

    A job with sinks needs them: --pipeline.
    """
    job = session.job(job_id)
    number = session.epoch(job, epoch)
    spec = session.code(pipeline)
    if spec is None:
        _require_no_sinks(job, number)
    outputs = load_outputs(spec)
    settings = {"sinks": outputs.sinks, "committers": outputs.committers}
    with waiting("reading later epochs"):
        later = preview_going_back(session.backend, job_id, number, **settings)  # type: ignore[arg-type]
    if dry_run or (not later.is_empty and not accept_visible_output):
        session.show(_report(job_id, number, None, later, ()))
        if not dry_run:
            raise _refusal(job_id, number, later)
        if not later.is_empty and not accept_visible_output:
            note("this is refused without --accept-visible-output")
        return
    with waiting("going back"):
        done = go_back(
            session.backend,
            job_id,
            number,
            sinks=outputs.sinks,
            committers=outputs.committers,
            accept_visible_output=accept_visible_output,
        )
    session.show(_report(job_id, number, done.epoch, later, done.finished_files))


def _refusal(job_id: str, number: Epoch, later: LaterOutput) -> VisibleOutputError:
    is_known = bool(later.files or later.commits)
    certainty = "is" if is_known else "may be"
    return VisibleOutputError(
        f"output of epochs after {number} {certainty} visible, and would be written again",
        object_name=f"job {job_id}",
        found=None if is_known else "epochs that are gone, or cannot be read",
        action="remove it if readers must not see it twice, then pass --accept-visible-output; "
        "nothing was changed",
    )


def _require_no_sinks(job: JobObjects, number: Epoch) -> None:
    later = readable_epochs(job, after=number)
    ids = sorted({sink.sink_id for manifest in later for sink in manifest.sinks})
    if ids:
        raise InvalidInputError(
            f"job {job.job_id} has sinks, or operators with on_commit",
            found=", ".join(ids),
            expected="the code that declares them",
            action="pass --pipeline module:pipeline, or set it in the config file",
        )


def _report(
    job_id: str, number: Epoch, epoch: Epoch | None, later: LaterOutput, finished: tuple[str, ...]
) -> Report:
    facts = {
        "job": job_id,
        "to": number,
        "newest": later.newest,
        "epoch": epoch,
        "no_longer_open": list(finished),
        "not_committed": later.not_committed,
        "done": epoch is not None,
    }
    files = [(file.sink_id, file.epoch, file.path, file.rows, Bytes(file.size_bytes)) for file in later.files]
    commits = [(commit.name, commit.epoch) for commit in later.commits]
    unknown = list(later.unknown)
    return Report(
        facts,
        {
            "visible_files": Listing(("sink", "epoch", "file", "rows", "size_bytes"), files),
            "other_commits": Listing(("of", "epoch"), commits),
            "output_not_known": Listing(("from_epoch", "to_epoch"), unknown),
        },
    )
