"""`retain` and `compact`: the upkeep of a job, by hand."""

from __future__ import annotations

from collections import Counter

import click

from lakestate.cli.cells import Bytes
from lakestate.cli.failures import ExitCode
from lakestate.cli.options import command, dry_run_option, job_argument
from lakestate.cli.output import Listing, Report
from lakestate.cli.session import Session
from lakestate.cli.waiting import note, waiting
from lakestate.coordinator.retention.retain import preview_retention
from lakestate.errors import NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy, RetentionRefused
from lakestate.protocol.values import Epoch
from lakestate.repair import PlannedMerge, compact_job, plan_job_compaction


@command("retain")
@job_argument
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=RetentionPolicy().keep_epochs,
    show_default=True,
    metavar="N",
    help="How many of the newest epochs stay.",
)
@click.option("--yes", is_flag=True, help="Delete. Without it, only the plan is shown.")
@dry_run_option
def retain(session: Session, job_id: str, keep: int, yes: bool, dry_run: bool) -> None:
    """Delete what neither the newest epochs nor a tagged one needs.

    A pipeline does this by itself. By hand it is for a job that does not run: deleting takes over the job,
    and a driver that does run ends with FencedError, and continues when it is started again. Without --yes,
    and with --dry-run, only the plan is shown. If anything that must stay cannot be read, nothing is deleted.
    """
    job = session.job(job_id)
    with waiting("reading what must stay"):
        oldest = _oldest_to_keep(job, keep)
        plan, sizes = preview_retention(job, oldest), _sizes(job)
    if isinstance(plan, RetentionRefused):
        _show_refusal(session, job_id, plan)
        return
    done = yes and not dry_run
    if done:
        with waiting("deleting"):
            session.backend.claim(job_id)
            carried_out = session.backend.cleanup_checkpoint(job_id, oldest)
        if isinstance(carried_out, RetentionRefused):
            _show_refusal(session, job_id, carried_out)
            return
        plan = carried_out
    session.show(_retention_report(job, plan, sizes, done=done))
    if not done and (plan.delete_first or plan.delete_then):
        note("nothing was deleted: --yes deletes")


def _oldest_to_keep(job: JobObjects, keep: int) -> Epoch:
    epochs = job.list_epochs()
    if not epochs:
        raise NotFoundError(f"job {job.job_id} has no published epoch", object_name=job.url_of("epochs/"))
    return epochs[-keep:][0]


def _show_refusal(session: Session, job_id: str, refused: RetentionRefused) -> None:
    damages = [(damage.object_name, damage.reason) for damage in refused.damages]
    session.show(Report({"job": job_id, "done": False}, {"refused": Listing(("object", "reason"), damages)}))
    note(f"nothing is deleted while this cannot be read: lakestate fsck {job_id} finds all of it")
    session.exit_code = ExitCode.DAMAGED


def _sizes(job: JobObjects) -> dict[str, int]:
    prefix = job.store_path("")
    return {info.path.removeprefix(prefix): info.size_bytes for info in job.store.list(prefix)}


def _retention_report(job: JobObjects, plan: RetentionPlan, sizes: dict[str, int], *, done: bool) -> Report:
    going = [*plan.delete_first, *plan.delete_then]
    kinds = Counter(parse_object_name(path).kind for path in going)
    bytes_of = Counter[ObjectKind]()
    for path in going:
        bytes_of[parse_object_name(path).kind] += sizes.get(path, 0)
    records = [parse_object_name(path).epoch for path in plan.delete_first]
    facts = {
        "job": job.job_id,
        "oldest_epoch_kept": plan.boundary,
        "epochs_deleted": [epoch for epoch in records if epoch is not None],
        "objects": len(going),
        "size_bytes": Bytes(sum(bytes_of.values())),
        "objects_kept": len(plan.kept),
        "done": done,
    }
    rows = [(kind.value, kinds[kind], Bytes(bytes_of[kind])) for kind in kinds]
    return Report(
        facts, {"deleted" if done else "would_delete": Listing(("kind", "objects", "size_bytes"), rows)}
    )


@command("compact")
@job_argument
@click.option(
    "--files-min",
    type=click.IntRange(min=2),
    default=CompactionPolicy().files_min,
    show_default=True,
    metavar="N",
    help="As in CompactionPolicy.",
)
@click.option(
    "--files-max",
    type=click.IntRange(min=2),
    default=CompactionPolicy().files_max,
    show_default=True,
    metavar="N",
    help="As in CompactionPolicy.",
)
@click.option("--yes", is_flag=True, help="Merge. Without it, only the plan is shown.")
@dry_run_option
def compact(session: Session, job_id: str, files_min: int, files_max: int, yes: bool, dry_run: bool) -> None:
    """Merge files of the newest epoch that are worth merging.

    A pipeline does this by itself, beside the stream. By hand it is for a job that does not run, with a
    stricter policy than its own: fewer files make it start faster. The newest epoch is published again with
    the merged files, offsets and open files as they are. That takes over the job: a driver that does run
    ends with FencedError, and continues when it is started again. Without --yes, and with --dry-run, only
    the plan is shown. What was merged is deleted by retention.
    """
    policy = CompactionPolicy(files_min=files_min, files_max=max(files_min, files_max))
    session.job(job_id)
    with waiting("reading metadata"):
        planned = plan_job_compaction(session.backend, job_id, policy)
    rows = [_plan_row(each) for each in planned]
    if not yes or dry_run or not planned:
        facts: dict[str, object] = {"job": job_id, "done": False}
        session.show(Report(facts, {"would_merge": Listing(_PLAN_COLUMNS, rows)}))
        note("nothing was merged: --yes merges" if planned else "nothing is worth merging")
        return
    with waiting("merging") as line:
        done = compact_job(session.backend, job_id, policy, lambda text: line.update(f"merging: {text}"))
    facts = {
        "job": job_id,
        "done": done.merges > 0,
        "epoch": done.epoch,
        "merges": done.merges,
        "written_bytes": Bytes(done.bytes_written),
        "files_before": done.before.file_count,
        "files_after": done.after.file_count,
        "state_before_bytes": Bytes(done.before.size_bytes),
        "state_after_bytes": Bytes(done.after.size_bytes),
    }
    session.show(Report(facts, {"merged": Listing(_PLAN_COLUMNS, rows)}))


_PLAN_COLUMNS = ("operator", "table", "subtask", "files", "state_bytes", "merged_files", "rewritten_bytes")


def _plan_row(planned: PlannedMerge) -> tuple[object, ...]:
    return (
        planned.operator,
        planned.table,
        planned.subtask,
        planned.files,
        Bytes(planned.size_bytes),
        planned.merged_files,
        Bytes(planned.rewritten_bytes),
    )
