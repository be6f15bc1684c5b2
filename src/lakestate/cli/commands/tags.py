"""`tag`, `untag` and `tags`: names that keep an epoch from retention."""

from __future__ import annotations

import click

from lakestate.cli.cells import moment_of_ms
from lakestate.cli.completion import complete_tag
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, dry_run_option, epoch_argument, job_argument
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.coordinator.retention.needed_tags import refuse_needed_tag
from lakestate.errors import ConflictError, CorruptionError, NotFoundError
from lakestate.job.named_epochs import readable_tags, require_tag_name
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.protocol.names import did_you_mean
from lakestate.protocol.values import Epoch


@command("tags")
@job_argument
def tags(session: Session, job_id: str) -> None:
    """List the tags of a job. Each keeps an epoch from retention."""
    with waiting("reading tags"):
        found, damages = readable_tags(session.job(job_id))
    rows = [(tag.name, tag.epoch, moment_of_ms(tag.created_at_ms), tag.fork or None) for tag in found]
    session.show(Listing(("tag", "epoch", "created", "fork"), rows))
    for damage in damages:
        note(f"a tag cannot be read: {damage}")
        session.exit_code = ExitCode.DAMAGED


@command("tag")
@job_argument
@click.argument("name")
@epoch_argument
@dry_run_option
def tag(session: Session, job_id: str, name: str, epoch: str, dry_run: bool) -> None:
    """Keep an epoch from retention under a name; the newest one, if no other is named.

    Making the same tag again changes nothing. A name that belongs to another epoch is refused.
    """
    job = session.job(job_id)
    number = session.epoch(job, epoch)
    if dry_run:
        require_tag_name(name)
        with waiting(f"reading epoch {number}"):
            open_epoch(job, number)
            _refuse_taken(job, name, number)
        session.show(Report({"job": job_id, "tag": name, "epoch": number, "done": False}))
        return
    with waiting(f"tagging epoch {number}"):
        made = session.backend.create_tag(job_id, name, number)
    session.show(Report({"job": job_id, "tag": made.name, "epoch": made.epoch, "done": True}))


@command("untag")
@job_argument
@click.argument("name", shell_complete=complete_tag)
@dry_run_option
def untag(session: Session, job_id: str, name: str, dry_run: bool) -> None:
    """Delete a tag. Its epoch goes with the next retention, unless something else keeps it.

    The tag of a fork is refused while the fork needs what it keeps.
    """
    job = session.job(job_id)
    with waiting("looking for forks that need it"):
        epoch = _epoch_of(job, name)
        refuse_needed_tag(job, name)
        if not dry_run:
            session.backend.delete_tag(job_id, name)
    session.show(Report({"job": job_id, "tag": name, "epoch": epoch, "done": not dry_run}))


def _epoch_of(job: JobObjects, name: str) -> Epoch | None:
    try:
        found = job.read_tag(job.paths.tag(name))
    except CorruptionError:
        # A tag that cannot be read keeps retention from deleting anything: then deleting it is the way out.
        return None
    if found is None:
        raise _no_such_tag(job, name)
    return found.epoch


def _refuse_taken(job: JobObjects, name: str, epoch: int) -> None:
    existing = job.read_tag(job.paths.tag(name))
    if existing is not None and existing.epoch != epoch:
        raise ConflictError(
            "the tag exists already",
            object_name=name,
            found=f"epoch {existing.epoch}",
            action="choose another name, or delete it first",
        )


def _no_such_tag(job: JobObjects, name: str) -> NotFoundError:
    names = sorted(tag.name for tag in readable_tags(job)[0])
    return NotFoundError(
        f"job {job.job_id} has no such tag",
        object_name=name,
        found=", ".join(names) or "no tag",
        action=did_you_mean(name, names),
    )
