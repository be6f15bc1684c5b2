"""`fsck`: read everything that a job needs, and say what is damaged and which epochs can be restored."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import click

from lakestate.cli.cells import Bytes
from lakestate.cli.code import load_sinks
from lakestate.cli.config import AT
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, dry_run_option, job_argument, pipeline_option
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.repair import AsideObject, list_set_aside, object_versions, rebuild_fence, set_aside
from lakestate.repair import put_back as restore_aside
from lakestate.repair.setting_aside import MOVABLE, WHY_OTHERS_STAY
from lakestate.sinks.sink import Sink
from lakestate.storage.store import ObjectInfo
from lakestate.verification import Finding, Problem, VerificationReport, verify
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
    "--repair",
    is_flag=True,
    help="Move damaged objects aside, and rebuild the fence if it is damaged. Nothing is deleted.",
)
@click.option("--put-back", is_flag=True, help="Undo --repair: move objects back whose place is empty.")
@dry_run_option
def fsck(
    session: Session,
    job_id: str,
    pipeline: str | None,
    threads: int,
    repair: bool,
    put_back: bool,
    dry_run: bool,
) -> None:
    """Verify a whole job: existence, size, checksum, content and cross-references of everything.

    With the code of the job, the unfinished output of its sinks is verified as well. The job may be
    running. Exit code 1 if anything is damaged. If the newest epoch is damaged and an older one is whole,
    the hint is the command that continues from that one.

    --repair moves damaged data files, metadata and manifests below set-aside/ of the job, where nothing
    reads or deletes them: their places are free for copies that are intact. --put-back undoes it. A damaged
    fence (generation.json) is rebuilt, which fences a running driver. Other damaged objects stay, and the
    list says why. Nothing is ever deleted.
    """
    job = session.job(job_id)
    if repair and put_back:
        raise InvalidInputError("--repair and --put-back contradict each other", action="give one of them")
    spec = session.code(pipeline)
    check = _Check(session.backend, job_id, load_sinks(spec), threads)
    if put_back and not dry_run:
        with waiting("moving objects back"):
            returned = restore_aside(session.backend, job_id)
        for each in returned:
            note(f"put back: {each.path}")
        if not returned:
            note("nothing was put back: no object is set aside whose place is empty")
    with waiting(f"reading everything of job {job_id}"):
        seen = object_versions(job)
        report = check.run()
    repairs = _repairs(job, report)
    if repair and not dry_run:
        repairs = _carry_out(session.backend, job, repairs, seen)
        if any(each.what is _What.REBUILD for each in repairs):
            with waiting("reading everything again"):
                report = check.run()
    with waiting("listing what is set aside"):
        aside = list_set_aside(job)
    session.show(_shown(report, repairs if repair else [], aside))
    if not report.is_clean:
        session.exit_code = ExitCode.FOUND
        _tell_way_out(session, job_id, report, spec, can_repair=not repair and _can_repair(repairs))


@dataclass(frozen=True, slots=True)
class _Check:
    """One way to verify a job."""

    backend: ParquetBackend
    job_id: str
    sinks: Mapping[str, Sink]
    threads: int

    def run(self) -> VerificationReport:
        """Read everything."""
        return verify(self.backend, self.job_id, sinks=self.sinks, threads=self.threads)


class _What(Enum):
    """What a repair does about an object."""

    MOVE = "move aside"
    REBUILD = "rebuild"
    NOTHING = "stays"


@dataclass(frozen=True, slots=True)
class _Repair:
    """What is done about one damaged object."""

    path: str
    what: _What
    detail: str = ""
    done: bool = False


def _repairs(job: JobObjects, report: VerificationReport) -> list[_Repair]:
    """What can be done about each damaged object of the job. Output of sinks is not the job's own."""
    root = job.url_of("")
    found = {each.object_name: each for each in report.findings if each.object_name.startswith(root)}
    return [_repair_of(name.removeprefix(root), each) for name, each in found.items()]


def _repair_of(path: str, finding: Finding) -> _Repair:
    kind = parse_object_name(path).kind
    if kind is ObjectKind.FENCE:
        return _Repair(path, _What.REBUILD)
    if finding.problem not in _DAMAGE:
        return _Repair(path, _What.NOTHING, f"it {finding.problem.value}")
    if kind in MOVABLE:
        return _Repair(path, _What.MOVE)
    return _Repair(path, _What.NOTHING, WHY_OTHERS_STAY.get(kind, ""))


_DAMAGE = (Problem.SIZE, Problem.CHECKSUM, Problem.UNREADABLE)
"""Problems of the bytes themselves. An object with another problem is what somebody wrote."""


def _can_repair(repairs: Sequence[_Repair]) -> bool:
    return any(each.what is not _What.NOTHING for each in repairs)


def _carry_out(
    backend: ParquetBackend, job: JobObjects, repairs: Sequence[_Repair], seen: Mapping[str, ObjectInfo]
) -> list[_Repair]:
    paths = [each.path for each in repairs if each.what is _What.MOVE]
    with waiting("moving damaged objects aside"):
        moved = {each.path: each.aside for each in set_aside(backend, job.job_id, paths, seen)}
    return [_carried_out(backend, job, each, moved) for each in repairs]


def _carried_out(
    backend: ParquetBackend, job: JobObjects, repair: _Repair, moved: Mapping[str, str]
) -> _Repair:
    match repair.what:
        case _What.REBUILD:
            rebuilt = rebuild_fence(backend, job.job_id)
            aside = rebuilt.set_aside or "it was missing"
            return replace(repair, detail=aside.removeprefix(job.url_of("")), done=True)
        case _What.MOVE if repair.path in moved:
            return replace(repair, detail=moved[repair.path], done=True)
        case _What.MOVE:
            return replace(repair, what=_What.NOTHING, detail="it has changed since it was read")
        case _:
            return repair


def _shown(report: VerificationReport, repairs: Sequence[_Repair], aside: Sequence[AsideObject]) -> Report:
    facts = {
        "url": report.url,
        "sound": report.is_clean,
        "objects": sum(report.checked.values()),
        "read_bytes": Bytes(report.bytes_read),
        "restorable": list(report.restorable),
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
            "repairs": Listing(
                ("object", "what", "done", "detail"),
                [(each.path, each.what.value, each.done, each.detail) for each in repairs],
            ),
            "set_aside": Listing(
                ("object", "now", "size_bytes", "can_be_put_back"),
                [(each.path, each.aside, Bytes(each.size_bytes), each.is_restorable) for each in aside],
            ),
            "orphans": Listing(("kind", "object", "size_bytes", "what_happens"), orphans),
            "dangling": Listing(("object", "token", "what_happens"), dangling),
        },
    )


def _tell_way_out(
    session: Session, job_id: str, report: VerificationReport, spec: str | None, *, can_repair: bool
) -> None:
    is_named = session.at is not None and session.at != os.environ.get(AT)
    at = f"--at {shlex.quote(session.at or '')} " if is_named else ""
    if can_repair:
        note(f"hint: lakestate {at}fsck {job_id} --repair moves what is damaged aside, or rebuilds it")
    newest = report.epochs[-1] if report.epochs else None
    if newest is None or newest.is_restorable:
        return
    if not report.restorable:
        note("hint: no epoch can be restored: only copies of the damaged objects help")
        return
    good = report.restorable[-1]
    if spec is None and session.backend.load_checkpoint_metadata(job_id, good).sinks:
        spec = "MODULE:PIPELINE"
    code = "" if spec is None else f" --pipeline {shlex.quote(spec)}"
    command = f"lakestate {at}rollback {job_id} {good}{code}"
    note(f"hint: restore the objects from a copy, or continue without epoch {newest.epoch}: {command}")
