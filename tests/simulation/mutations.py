"""Ways to break the protocol on purpose, so that the tests themselves can be tested.

Each changes the code under test in one place. The simulator must notice every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import xxhash

from lakestate.ambient import Ambient
from lakestate.coordinator import commit, epoch_planner, job_driver, publish, recover, upkeep
from lakestate.coordinator.complete_epoch import operator_entries
from lakestate.coordinator.job_driver import JobDriver
from lakestate.coordinator.retention import retain
from lakestate.errors import NotFoundError, OutcomeUnknownError
from lakestate.job.objects import JobObjects
from lakestate.protocol import retention
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.paths import FENCE
from lakestate.protocol.records import TagRecord
from lakestate.protocol.resolve import ReplayCommit, Resume
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy
from lakestate.protocol.values import Epoch, FileRef, ObjectRef
from lakestate.sinks.files import committer, names, uploads, writer
from lakestate.storage.multipart import part_objects
from lakestate.storage.store import Created
from lakestate.tables import manager
from lakestate.tables.contract import FinishedTable
from lakestate.tables.global_keyed import compaction as global_keyed_compaction
from lakestate.tables.runs import checkpointer as run_checkpointer
from lakestate.tables.runs import compaction as compact_runs
from lakestate.testing.simulation import Scenario, run_seed
from lakestate.testing.simulation.cluster import actors
from lakestate.testing.simulation.random_streams import random_stream

Patch = pytest.MonkeyPatch
_AGES: dict[str, int] = {}


@dataclass(frozen=True)
class Mutation:
    """One deliberate bug."""

    name: str
    apply: Callable[[Patch], None]
    seeds_max: int = 2000
    is_rare: bool = False
    """True if it takes dozens of seeds until it matters."""
    needs_on_commit: bool = False
    """True if it matters only to operators with `on_commit`."""
    needs_neighbour: bool = False
    """True if it matters only to jobs that share their output with others."""
    needs_delivery: bool = False
    """True if it matters only to sinks that deliver staged rows."""
    needs_log: bool = False
    """True if it matters only to those that deliver to a log."""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _silently(*_: Any, **__: Any) -> None:
    """Nothing."""


def no_fence_before_publishing(patch: Patch) -> None:
    patch.setattr(publish, "check_fence", _silently)


def no_fence_before_deleting(patch: Patch) -> None:
    patch.setattr(retain, "check_fence", _silently)


def no_fence_before_committing(patch: Patch) -> None:
    patch.setattr(commit, "check_fence", _silently)


def claim_without_compare(patch: Patch) -> None:
    real = JobObjects.swap

    def swap(job: JobObjects, path: str, record: Any, seen: Any) -> bool:
        if path != FENCE:
            return real(job, path, record, seen)
        job.store.put(job.store_path(path), record.encode())
        return True

    patch.setattr(JobObjects, "swap", swap)


def publish_before_upload(patch: Patch) -> None:
    waiting: list[Callable[[], Any]] = []
    real = JobObjects.put_verified

    def put_later(job: JobObjects, ref: Any, data: Any) -> None:
        held = bytes(data)
        waiting.append(lambda: real(job, ref, held))
        if len(waiting) > 1:
            waiting.pop(0)()

    patch.setattr(JobObjects, "put_verified", put_later)


def delete_before_classify(patch: Patch) -> None:
    patch.setattr(retention, "needed_objects", lambda facts: frozenset())


def delete_by_old_tags(patch: Patch) -> None:
    patch.setattr(retain, "_refresh_tags", lambda job, before: before)


def commit_before_publish(patch: Patch) -> None:
    real = JobDriver._publish

    def publish_after(driver: JobDriver, manifest: Any) -> Any:
        commit_now(driver, ForgedPermit(manifest), manifest)
        return real(driver, manifest)

    patch.setattr(JobDriver, "_publish", publish_after)


def commit_now(driver: JobDriver, permit: Any, manifest: Any) -> None:
    """Commit without fence and marker."""
    for sink in manifest.sinks:
        found = driver._committers[sink.sink_id]
        if isinstance(found, commit.OperatorCommitter):
            found.commit(permit, manifest, sink)
        elif isinstance(found, commit.JobCommitter):
            found.commit(driver._job, permit, sink)
        else:
            found(permit, sink)


class ForgedPermit:
    """What a committer reads of a permit."""

    def __init__(self, manifest: Any) -> None:
        self.job_id = manifest.job_id
        self.epoch = manifest.epoch
        self.manifest = SimpleNamespace(path="forged", checksum=0)
        self.record = SimpleNamespace(generation=manifest.generation)


def forget_an_interrupted_commit(patch: Patch) -> None:
    real = recover.decide_recovery

    def decide_recovery(*arguments: Any) -> Any:
        found = real(*arguments)
        return Resume(found.record) if isinstance(found, ReplayCommit) else found

    patch.setattr(recover, "decide_recovery", decide_recovery)


def ignore_a_superseded_attempt(patch: Patch) -> None:
    def complete(driver: JobDriver, epoch: Any, result: Any) -> Any:
        last = {(each.operator_id, each.entry.subtask_index): each for each in result.checkpoints}
        return operator_entries(epoch, list(last.values()))

    patch.setattr(JobDriver, "_require_complete", complete)


def forget_a_carried_file(patch: Patch) -> None:
    real = run_checkpointer.RunCheckpointer.finish

    def finish(checkpointer: Any) -> FinishedTable:
        done = real(checkpointer)
        return replace(done, files=_without_oldest(done.files))

    patch.setattr(run_checkpointer.RunCheckpointer, "finish", finish)


def _without_oldest(files: TableFiles) -> TableFiles:
    return replace(files, files=files.files[:-1]) if len(files.files) > 1 else files


def collect_what_is_merged(patch: Patch) -> None:
    real = upkeep.retain_epochs

    def retain_all(job: JobObjects, claim: Any, policy: Any, ambient: Any, *_: Any, **__: Any) -> Any:
        return real(job, claim, policy, ambient)

    patch.setattr(upkeep, "retain_epochs", retain_all)


def drop_tombstones(patch: Patch) -> None:
    real = compact_runs._merge_surviving_rows

    def surviving(runs: Any, layout: Any, expired: Any, reaches_oldest: bool) -> Iterator[Any]:
        return real(runs, layout, expired, True)

    patch.setattr(compact_runs, "_merge_surviving_rows", surviving)


def read_keys_of_others(patch: Patch) -> None:
    patch.setattr(FileRef, "clipped_to", lambda file, keys: file)


def unknown_is_failure(patch: Patch) -> None:
    real = publish._create_record

    def create(job: JobObjects, ours: Any) -> Any:
        try:
            outcome = job.store.create(job.store_path(job.paths.epoch_record(ours.epoch)), ours.encode())
        except OutcomeUnknownError:
            job.store.delete_many([job.store_path(ours.manifest.path)])
            raise
        return None if isinstance(outcome, Created) else real(job, ours)

    patch.setattr(publish, "_create_record", create)


def overwrite_names(patch: Patch) -> None:
    def create_new(job: JobObjects, name: Any, data: Any, attempt: str) -> Any:
        job.store.put(job.store_path(name(None)), data)
        return ObjectRef(name(None), len(data), xxhash.xxh3_64_intdigest(data))

    patch.setattr(JobObjects, "create_new", create_new)


def share_part_numbers(patch: Patch) -> None:
    patch.setattr(uploads, "claim_lane", lambda store, path, after, names: after + 1)


def abort_live_uploads(patch: Patch) -> None:
    patch.setattr(committer, "_live_names", lambda pre_commits: [])


def go_on_after_a_superseded_epoch(patch: Patch) -> None:
    real = JobDriver._publish

    def publish_anyway(driver: JobDriver, manifest: Any) -> Any:
        permit = real(driver, manifest)
        if permit is not None:
            return permit
        found = job_driver.recover_job(driver._job, driver.claim)
        assert found is not None
        return found.permit or publish.decide_publication(found.record, None, None).permit  # type: ignore[union-attr]

    def commit_what_stands(driver: JobDriver, permit: Any, manifest: Any) -> None:
        commit_now(driver, permit, manifest)

    patch.setattr(JobDriver, "_publish", publish_anyway)
    patch.setattr(JobDriver, "_commit", commit_what_stands)


def tag_without_looking_again(patch: Patch) -> None:
    def create(job: JobObjects, name: str, epoch: Epoch, ambient: Ambient) -> TagRecord:
        record = job.read_epoch(epoch)
        if record is None:
            raise NotFoundError("not published", object_name=str(epoch))
        tag = TagRecord(job.job_id, name, epoch, record.manifest, ambient.now_ms())
        job.store.create(job.store_path(job.paths.tag(name)), tag.encode())
        return tag

    patch.setattr(actors, "create_tag", create)


def keep_one_epoch(patch: Patch) -> None:
    real = retain.next_boundary

    def boundary(current: Any, published: Any, policy: Any, *more: Any) -> Any:
        return real(current, published, RetentionPolicy(1), *more)

    patch.setattr(retain, "next_boundary", boundary)


def hurry_the_watermark(patch: Patch) -> None:
    real = epoch_planner.job_watermark

    def ahead(previous_us: int | None, sources_us: Any) -> int | None:
        found = real(None, sources_us)
        return previous_us if found is None else found + 1_000_000

    patch.setattr(epoch_planner, "job_watermark", ahead)


def commit_one_sink(patch: Patch) -> None:
    real = job_driver.commit_epoch

    def commit_first(job: Any, claim: Any, permit: Any, manifest: Any, *more: Any) -> None:
        real(job, claim, permit, replace(manifest, sinks=manifest.sinks[:1]), *more)

    patch.setattr(job_driver, "commit_epoch", commit_first)


def collect_records_only(patch: Patch) -> None:
    real = retain.plan_retention

    def plan(facts: Any) -> Any:
        found = real(facts)
        return replace(found, delete_then=()) if isinstance(found, RetentionPlan) else found

    patch.setattr(retain, "plan_retention", plan)


def abort_nothing(patch: Patch) -> None:
    patch.setattr(committer, "_clear_store", _silently)


def refuse_what_is_complete(patch: Patch) -> None:
    patch.setattr(part_objects, "is_made_of", lambda data, parts: False)


def refuse_merges_by_age(patch: Patch) -> None:
    """A merge counts as of what it holds, and not as of the epoch that its files are named after."""
    patch.setattr(manager, "parse_object_name", lambda path: SimpleNamespace(epoch=_AGES.get(path, 10**9)))
    stored = global_keyed_compaction._store_merge

    def remembered(*args: Any) -> Any:
        files = stored(*args)
        _AGES.update((file.path, file.epoch) for file in files)
        return files

    patch.setattr(global_keyed_compaction, "_store_merge", remembered)


def forget_which_state_a_sink_belongs_to(patch: Patch) -> None:
    """Two jobs of one name with different checkpoints take each other's files for their own."""
    real = names.sink_fingerprint

    def fingerprint(job_id: str, sink_id: str, state_id: str) -> str:
        return real(job_id, sink_id, "")

    patch.setattr(names, "sink_fingerprint", fingerprint)
    patch.setattr(writer, "sink_fingerprint", fingerprint)


MUTATIONS: Sequence[Mutation] = (
    Mutation("publish without reading the fence again", no_fence_before_publishing),
    Mutation("delete without reading the fence again", no_fence_before_deleting),
    Mutation("commit without reading the fence again", no_fence_before_committing, is_rare=True),
    Mutation("claim without compare-and-swap", claim_without_compare, is_rare=True),
    Mutation("publish before the upload is done", publish_before_upload),
    Mutation("delete before classifying", delete_before_classify),
    Mutation("delete by tags read before the boundary moved", delete_by_old_tags),
    Mutation("commit before publishing", commit_before_publish),
    Mutation("forget an interrupted commit", forget_an_interrupted_commit),
    Mutation("ignore a superseded attempt", ignore_a_superseded_attempt),
    Mutation("forget a carried file", forget_a_carried_file),
    Mutation("collect the epoch that is being merged", collect_what_is_merged, is_rare=True),
    Mutation("drop tombstones in a partial merge", drop_tombstones, is_rare=True),
    Mutation("read keys of others after rescaling", read_keys_of_others),
    Mutation("take an unknown outcome for a failure", unknown_is_failure, is_rare=True),
    Mutation("use a name twice", overwrite_names),
    Mutation("share part numbers between attempts", share_part_numbers),
    Mutation("abort uploads that are in use", abort_live_uploads),
    Mutation(
        "commit our output of an epoch that another published", go_on_after_a_superseded_epoch, is_rare=True
    ),
    Mutation("acknowledge a tag without reading the boundary again", tag_without_looking_again, is_rare=True),
    Mutation("keep fewer epochs than the policy says", keep_one_epoch),
    Mutation("a watermark ahead of the rows", hurry_the_watermark),
    Mutation("commit only the first of two sinks", commit_one_sink),
    Mutation("collect only the records of epochs", collect_records_only),
    Mutation("abort no upload that is dead", abort_nothing),
    Mutation("refuse an upload that is complete and half cleared", refuse_what_is_complete),
    Mutation("take files of other checkpoints for our own", forget_which_state_a_sink_belongs_to),
    Mutation("take a merge for as old as what it holds", refuse_merges_by_age, is_rare=True),
)


def harsh(seed: int) -> Scenario:
    """What the seed draws, with more drivers at once, more turns taken and more tags than usual."""
    drawn = Scenario.draw(random_stream(seed, "scenario"))
    rates = replace(drawn.rates, second_driver=0.7, superseded=0.2, stall=max(0.01, drawn.rates.stall))
    keep_epochs = 1 if seed % 3 else drawn.keep_epochs
    return replace(drawn, drivers=3, tags=3, keep_epochs=keep_epochs, switch_rate=0.3, rates=rates)


def seeds_to_find(mutation: Mutation, first: int = 0) -> tuple[int, str] | None:
    """How many seeds it takes to notice the mutation, and the broken promise; None if it goes unnoticed."""
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        for number in range(mutation.seeds_max):
            scenario = harsh(first + number)
            if mutation.needs_on_commit:
                scenario = replace(scenario, commits=True)
            if mutation.needs_neighbour:
                scenario = replace(scenario, has_neighbour=True)
            if mutation.needs_delivery:
                scenario = replace(scenario, delivers=True, delivers_to_log=mutation.needs_log)
            result = run_seed(first + number, scenario=scenario)
            if result.violation is not None:
                return number + 1, str(result.violation)
    return None
