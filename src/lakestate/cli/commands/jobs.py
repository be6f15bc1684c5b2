"""`jobs`, `epochs` and `show`: what there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import click

from lakestate.cli.cells import Bytes, Millis, joined, moment_of_ms, moment_of_us
from lakestate.cli.facts.epochs import SeenEpoch, see_epochs
from lakestate.cli.facts.subtasks import SeenSubtasks, see_subtasks
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, epoch_argument, job_argument
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.errors import NotFoundError
from lakestate.job.named_epochs import readable_tags
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest

EPOCHS_SHOWN = 20


@command("jobs")
def jobs(session: Session) -> None:
    """List the jobs, with their newest epochs."""
    with waiting(f"listing {session.backend.url}"):
        found = [_see_job(session.backend.objects(name)) for name in session.checkpoint.job_names()]
    columns = ("job", "status", "epoch", "published", "generation", "rows", "state_bytes", "epochs", "tags")
    session.show(Listing(columns, [row for row, _ in found]))
    if not found:
        note(f"there is no job below {session.backend.url}")
    _tell(session, (problem for _, problems in found for problem in problems))


def _see_job(job: JobObjects) -> tuple[tuple[object, ...], list[str]]:
    """The row of a job, and what of it cannot be read."""
    numbers = job.list_epochs()
    tags, damages = readable_tags(job)
    problems = [f"a tag of job {job.job_id} cannot be read: {damage}" for damage in damages]
    if not numbers:
        return (job.job_id, "no epoch", *(None,) * 5, 0, None), problems
    (seen,) = see_epochs(job, numbers[-1:], tags)
    if seen.damage is not None:
        problems.append(f"epoch {seen.epoch} of job {job.job_id} cannot be read: {seen.damage}")
    summary = None if seen.manifest is None else seen.manifest.summary
    row = (
        job.job_id,
        seen.status,
        seen.epoch,
        seen.published,
        seen.generation,
        None if summary is None else summary.row_count,
        None if summary is None else Bytes(summary.size_bytes),
        len(numbers),
        joined(sorted(tag.name for tag in tags)),
    )
    return row, problems


@command("epochs")
@job_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=EPOCHS_SHOWN,
    show_default=True,
    metavar="N",
    help="How many, counted from the newest.",
)
@click.option("--all", "show_all", is_flag=True, help="All of them.")
def epochs(session: Session, job_id: str, limit: int, show_all: bool) -> None:
    """List the epochs of a job, newest first.

    Rows and bytes are those of all state files that an epoch refers to: an overwritten key counts until
    compaction drops it. An epoch that cannot be read says so, and the others are shown all the same.
    """
    job = session.job(job_id)
    with waiting("reading manifests"):
        numbers = job.list_epochs()
        wanted = numbers if show_all else numbers[-limit:]
        tags, damages = readable_tags(job)
        seen = see_epochs(job, wanted, tags)
    columns = (
        *("epoch", "status", "published", "duration_ms", "rows", "files", "state_bytes", "written_bytes"),
        *("watermark", "generation", "tags"),
    )
    session.show(Listing(columns, [_epoch_row(each) for each in reversed(seen)]))
    if len(wanted) < len(numbers):
        note(f"{len(numbers) - len(wanted)} older epochs are not shown: --all shows them")
    _tell(session, (f"epoch {each.epoch} cannot be read: {each.damage}" for each in seen if each.damage))
    _tell(session, (f"a tag cannot be read: {damage}" for damage in damages))


def _epoch_row(seen: SeenEpoch) -> tuple[object, ...]:
    manifest = seen.manifest
    tags = joined(seen.tags)
    if manifest is None:
        return (seen.epoch, seen.status, seen.published, *(None,) * 6, seen.generation, tags)
    summary = manifest.summary
    return (
        seen.epoch,
        seen.status,
        seen.published,
        Millis(manifest.finished_ms - manifest.started_ms),
        summary.row_count,
        summary.file_count,
        Bytes(summary.size_bytes),
        Bytes(summary.bytes_written),
        moment_of_us(manifest.watermark_us),
        seen.generation,
        tags,
    )


def _tell(session: Session, problems: Iterable[str]) -> None:
    for problem in problems:
        note(problem)
        session.exit_code = ExitCode.DAMAGED


@command("show")
@job_argument
@epoch_argument
@click.option("--files", "with_files", is_flag=True, help="Also list the data files of each table.")
def show(session: Session, job_id: str, epoch: str, with_files: bool) -> None:
    """Show everything about one epoch: offsets, operators, tables, sinks.

    EPOCH is a number, a tag, a time, or newest (the default). What is damaged is listed, and the rest is
    shown.

    With --files, each data file is listed once, with the epoch that wrote it, and the first and last
    routing key in it, which are hashes of keys. Paths are those below the folder of the job; one that begins
    with @ and the name of a job is a file that a fork shares with that job.
    """
    job = session.job(job_id)
    number = session.epoch(job, epoch)
    with waiting(f"reading epoch {number}"):
        tags, damages = readable_tags(job)
        (seen,) = see_epochs(job, [number], tags)
        if seen.record is None and seen.damage is None:
            known = ", ".join(str(each) for each in reversed(job.list_epochs()[-5:]))
            raise NotFoundError(
                f"job {job_id} has no such epoch", object_name=str(number), found=f"newest epochs {known}"
            )
        subtasks = SeenSubtasks() if seen.manifest is None else see_subtasks(job, seen.manifest)
    report = _report(job_id, seen, subtasks)
    if with_files and seen.manifest is not None:
        report = replace(report, listings=_with_files(report.listings, subtasks))
    session.show(report)
    _tell(session, (f"a tag cannot be read: {damage}" for damage in damages))
    if seen.damage is not None or subtasks.damages:
        session.exit_code = ExitCode.DAMAGED


def _with_files(listings: Mapping[str, Listing], subtasks: SeenSubtasks) -> dict[str, Listing]:
    """The files come first: they are what CSV shows."""
    return {"data_files": Listing(_FILE_COLUMNS, list(subtasks.file_rows())), **listings}


def _report(job_id: str, seen: SeenEpoch, subtasks: SeenSubtasks) -> Report:
    manifest = seen.manifest
    damages = [*([seen.damage] if seen.damage else []), *subtasks.damages]
    facts: dict[str, object] = {
        "job": job_id,
        "epoch": seen.epoch,
        "status": seen.status,
        "published": seen.published,
        "generation": seen.generation,
        "tags": list(seen.tags),
    }
    if manifest is None:
        return Report(facts, {"damage": Listing(("problem",), [(each,) for each in damages])})
    listings = {
        "tables": Listing(_TABLE_COLUMNS, list(subtasks.table_rows())),
        "operators": Listing(_OPERATOR_COLUMNS, list(_operator_rows(manifest))),
        "sources": Listing(("source", "watermark", "offsets"), list(_source_rows(manifest))),
        "sinks": Listing(
            ("sink", "committing_bytes", "finished_files", "open_files"), list(subtasks.sink_rows())
        ),
        "damage": Listing(("problem",), [(each,) for each in damages]),
    }
    return Report(facts | _manifest_facts(manifest), listings)


def _manifest_facts(manifest: Manifest) -> dict[str, object]:
    summary, back, forked = manifest.summary, manifest.went_back, manifest.forked_from
    return {
        "parent": manifest.parent,
        "went_back_to": None if back is None else back.to,
        "forked_from": None if forked is None else str(forked.point),
        "muted": None if forked is None else forked.is_muted,
        "started": moment_of_ms(manifest.started_ms),
        "duration_ms": Millis(manifest.finished_ms - manifest.started_ms),
        "watermark": moment_of_us(manifest.watermark_us),
        "rows": summary.row_count,
        "files": summary.file_count,
        "state_bytes": Bytes(summary.size_bytes),
        "written_bytes": Bytes(summary.bytes_written),
    }


_TABLE_COLUMNS = (
    *("operator", "table", "type", "version", "key", "value", "expiry", "files", "rows", "state_bytes"),
)
_FILE_COLUMNS = (
    *("operator", "table", "epoch", "rows", "removed_rows", "size_bytes", "from_key", "to_key", "file"),
)
_OPERATOR_COLUMNS = ("operator", "parallelism", "watermark", "files", "rows", "state_bytes", "written_bytes")


def _operator_rows(manifest: Manifest) -> Iterator[tuple[object, ...]]:
    for entry in manifest.operators:
        parts = [subtask.summary for subtask in entry.subtasks]
        yield (
            entry.operator_id,
            entry.parallelism,
            moment_of_us(entry.watermark_us),
            sum(part.file_count for part in parts),
            sum(part.row_count for part in parts),
            Bytes(sum(part.size_bytes for part in parts)),
            Bytes(sum(part.bytes_written for part in parts)),
        )


def _source_rows(manifest: Manifest) -> Iterator[tuple[object, ...]]:
    for source in manifest.sources:
        yield source.source, moment_of_us(source.watermark_us), source.offsets
