"""`fork`: a new job from an epoch of another one."""

from __future__ import annotations

import click

from lakestate.cli.completion import complete_operator
from lakestate.cli.options import command, dry_run_option, epoch_option, job_argument
from lakestate.cli.output import Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.repair import fork as make_fork
from lakestate.repair import preview_fork


@command("fork")
@job_argument
@click.argument("new")
@epoch_option
@click.option("--unmuted", is_flag=True, help="Let the new job write its output from its first start on.")
@click.option(
    "--drop",
    multiple=True,
    metavar="OPERATOR",
    shell_complete=complete_operator,
    help="Leave the state of an operator out. May be repeated.",
)
@dry_run_option
def fork(
    session: Session, job_id: str, new: str, epoch: str, unmuted: bool, drop: tuple[str, ...], dry_run: bool
) -> None:
    """Make a new job from an epoch of another one: state and offsets. Nothing is copied.

    The parent is not disturbed. It keeps what the fork shares with it, under a tag, until no epoch of the
    fork needs it. Files that sinks have open in the epoch stay with the parent: the fork has no state of
    sinks.

    The fork is muted: run with the same code, its sinks write nothing and on_commit of its operators is not
    called. Start it with unmute=True, or make it with --unmuted, and it writes; give its sinks another place
    first, or its rows appear beside those of the parent.

    An epoch that is damaged is refused: metadata is read, and data files must be there with their sizes.
    What is damaged in an operator that --drop names does not matter. fsck also reads the data.

    Repeating the command completes or shows the same fork.
    """
    session.job(job_id)
    make = preview_fork if dry_run else make_fork
    with waiting(f"forking job {job_id}"):
        made = make(session.backend, job_id, new, epoch, muted=not unmuted, drop=drop)
    session.show(
        Report(
            {
                "job": made.job_id,
                "parent": made.parent.job_id,
                "epoch": made.parent.epoch,
                "muted": made.is_muted,
                "without_state_of": list(made.left_out),
                "done": not dry_run,
            }
        )
    )
    if made.is_muted and not dry_run:
        note(f"start job {new} with unmute=True when it should write its output")
