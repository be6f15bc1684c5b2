"""Ways to break the commit of output that operators write themselves, with `on_commit`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.simulation.mutations import ForgedPermit, Mutation, Patch, commit_now

from lakestate.coordinator import commit, complete_epoch, job_driver, recover
from lakestate.coordinator.job_driver import JobDriver
from lakestate.errors import OperatorError
from lakestate.job.objects import JobObjects
from lakestate.runtime import subtask
from lakestate.testing.simulation.cluster.world import SINK_IDS
from lakestate.testing.simulation.ledger import Ledger


def commit_own_output_before_publish(patch: Patch) -> None:
    real = JobDriver._publish

    def publish_after(driver: JobDriver, manifest: Any) -> Any:
        commit_now(driver, ForgedPermit(manifest), replace(manifest, sinks=_own(driver, manifest)))
        return real(driver, manifest)

    patch.setattr(JobDriver, "_publish", publish_after)


def _own(driver: JobDriver, manifest: Any) -> tuple[Any, ...]:
    """What operators left to commit."""
    is_own = {name: isinstance(found, commit.OperatorCommitter) for name, found in driver._committers.items()}
    return tuple(sink for sink in manifest.sinks if is_own[sink.sink_id])


def commit_twice_as_another_epoch(patch: Patch) -> None:
    def twice(committer: commit.OperatorCommitter, permit: Any, manifest: Any, pre_commit: Any) -> None:
        real(committer, permit, manifest, pre_commit)
        wrong = SimpleNamespace(
            job_id=permit.job_id, epoch=permit.epoch.next(), manifest=permit.manifest, record=permit.record
        )
        real(committer, wrong, manifest, pre_commit)  # type: ignore[arg-type]

    real = commit.OperatorCommitter.commit
    patch.setattr(commit.OperatorCommitter, "commit", twice)


def forget_own_output_after_a_crash(patch: Patch) -> None:
    real = job_driver.recover_job

    def recover_without(job: JobObjects, claim: Any) -> Any:
        found = real(job, claim)
        if found is None or found.permit is None:
            return found
        sinks = tuple(sink for sink in found.manifest.sinks if sink.sink_id in SINK_IDS)
        return replace(found, manifest=replace(found.manifest, sinks=sinks))

    patch.setattr(job_driver, "recover_job", recover_without)


def mark_before_committing(patch: Patch) -> None:
    real = job_driver.commit_epoch

    def marked(job: Any, claim: Any, permit: Any, manifest: Any, *more: Any) -> None:
        real(job, claim, permit, replace(manifest, sinks=()), *more)
        real(job, claim, permit, manifest, *more)

    patch.setattr(job_driver, "commit_epoch", marked)


def keep_commit_data_of_one_subtask(patch: Patch) -> None:
    real = complete_epoch.encode_commit_parts
    patch.setattr(complete_epoch, "encode_commit_parts", lambda parts: real(parts[:1]))


def go_on_after_a_failed_commit(patch: Patch) -> None:
    real = JobDriver._commit

    def commit_or_not(driver: JobDriver, permit: Any, manifest: Any) -> None:
        with suppress(OperatorError):
            real(driver, permit, manifest)

    patch.setattr(JobDriver, "_commit", commit_or_not)


def commit_in_every_start(patch: Patch) -> None:
    patch.setattr(recover, "_is_committed", lambda job, record: False)


def say_another_generation(patch: Patch) -> None:
    """The driver that commits, in place of the one that published: a repeated call would not be equal."""
    real = job_driver.commit_epoch

    def of_this_driver(job: Any, claim: Any, permit: Any, manifest: Any, committers: Any, *more: Any) -> None:
        def told(committer: Any) -> Any:
            if not isinstance(committer, commit.OperatorCommitter):
                return committer
            return commit.OperatorCommitter(
                lambda each: committer.on_commit(replace(each, generation=claim.generation))
            )

        real(job, claim, permit, manifest, {name: told(each) for name, each in committers.items()}, *more)

    patch.setattr(job_driver, "commit_epoch", of_this_driver)


def compare_epochs_for_equality(patch: Patch) -> None:
    """A target that only knows whether the last call came again."""

    def add(ledger: Ledger, found: commit.OperatorCommit) -> None:
        if ledger.epoch != found.epoch:
            ledger.epoch = 0
            real(ledger, found)

    real = Ledger.add
    patch.setattr(Ledger, "add", add)


def expire_rows_before_the_hooks(patch: Patch) -> None:
    real = subtask.SubtaskRun._load_tables

    def load(run: subtask.SubtaskRun, step: Any) -> Any:
        tables = real(run, step)
        tables._context = replace(tables._context, watermark_us=run._plan.watermark_us)
        return tables

    patch.setattr(subtask.SubtaskRun, "_load_tables", load)


OWN_OUTPUT: Sequence[Mutation] = (
    Mutation("commit own output before publishing", commit_own_output_before_publish, needs_on_commit=True),
    Mutation(
        "commit own output a second time as another epoch",
        commit_twice_as_another_epoch,
        needs_on_commit=True,
    ),
    Mutation(
        "forget own output after a crash before the marker",
        forget_own_output_after_a_crash,
        needs_on_commit=True,
    ),
    Mutation(
        "mark an epoch before its own output is committed", mark_before_committing, needs_on_commit=True
    ),
    Mutation(
        "keep the commit data of one subtask only", keep_commit_data_of_one_subtask, needs_on_commit=True
    ),
    Mutation(
        "publish the next epoch after a failed commit",
        go_on_after_a_failed_commit,
        is_rare=True,
        needs_on_commit=True,
    ),
    Mutation("commit own output again in every start", commit_in_every_start, needs_on_commit=True),
    Mutation("expire rows before the hooks of the epoch", expire_rows_before_the_hooks, needs_on_commit=True),
    Mutation("tell on_commit the generation that commits", say_another_generation, needs_on_commit=True),
    Mutation(
        "a target that compares epochs for equality",
        compare_epochs_for_equality,
        is_rare=True,
        needs_on_commit=True,
    ),
)
