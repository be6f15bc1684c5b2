"""Ways to break the delivery of staged rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.mutations import ForgedPermit, Mutation, Patch, commit_now

from lakestate.coordinator.job_driver import JobDriver
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.tables.staged import table as staged_table
from lakestate.tables.staged.table import StagedCheckpointer, StagedView
from lakestate.testing.simulation.cluster.world import DELIVERED
from lakestate.testing.simulation.ledger import DeliveryTarget


def deliver_without_comparing_epochs(patch: Patch) -> None:
    def transact(target: DeliveryTarget, epoch: int, rows: Sequence[dict[str, Any]]) -> bool:
        target.rows += rows
        return True

    patch.setattr(DeliveryTarget, "transact", transact)


def compare_epochs_for_equality(patch: Patch) -> None:
    """A target that only knows whether the last epoch came again, and takes an older one of a zombie."""

    def transact(target: DeliveryTarget, epoch: int, rows: Sequence[dict[str, Any]]) -> bool:
        if target.epoch == epoch:
            return False
        target.rows += rows
        target.epoch = epoch
        return True

    patch.setattr(DeliveryTarget, "transact", transact)


def deliver_before_publishing(patch: Patch) -> None:
    real = JobDriver._publish

    def publish_after(driver: JobDriver, manifest: Any) -> Any:
        staged = tuple(sink for sink in manifest.sinks if sink.sink_id == DELIVERED)
        commit_now(driver, ForgedPermit(manifest), replace(manifest, sinks=staged))
        return real(driver, manifest)

    patch.setattr(JobDriver, "_publish", publish_after)


def deliver_one_subtask_only(patch: Patch) -> None:
    real = StagedEpoch.of
    patch.setattr(StagedEpoch, "of", lambda job, permit, parts: real(job, permit, parts[:1]))


def name_one_object_only(patch: Patch) -> None:
    real = StagedCheckpointer._commit_data
    patch.setattr(StagedCheckpointer, "_commit_data", lambda self, files: real(self, files[:1]))


def keep_rows_for_the_next_epoch(patch: Patch) -> None:
    """As a list of files that is carried forward would."""
    real = staged_table.StagedTable.epoch_checkpointer

    def with_previous(table: Any, epoch: Any, previous: Any, context: Any) -> Any:
        found = real(table, epoch, previous, context)
        finish = found.finish

        def carrying() -> Any:
            done = finish()
            files = (*previous.files, *done.files.files)
            data = found._commit_data(files)
            return replace(done, files=replace(done.files, files=files, commit_data=data))

        found.finish = carrying
        return found

    patch.setattr(staged_table.StagedTable, "epoch_checkpointer", with_previous)
    patch.setattr(
        staged_table.StagedTable,
        "subtask_metadata_from_table",
        classmethod(lambda cls, config, merged, task: merged),
    )


def forget_the_rest_of_the_rows(patch: Patch) -> None:
    """Only full objects are written."""

    def checkpoint_into(view: StagedView, checkpointer: Any) -> None:
        checkpointer.take(view._writes)

    patch.setattr(StagedView, "checkpoint_into", checkpoint_into)


DELIVERY: Sequence[Mutation] = (
    Mutation("deliver without comparing epochs", deliver_without_comparing_epochs, needs_delivery=True),
    Mutation(
        "deliver to a target that compares epochs for equality",
        compare_epochs_for_equality,
        is_rare=True,
        needs_delivery=True,
    ),
    Mutation("deliver before publishing", deliver_before_publishing, needs_delivery=True),
    Mutation("deliver the rows of one subtask only", deliver_one_subtask_only, needs_delivery=True),
    Mutation("name one staged object only", name_one_object_only, is_rare=True, needs_delivery=True),
    Mutation("keep staged rows for the next epoch", keep_rows_for_the_next_epoch, needs_delivery=True),
    Mutation("stage full objects only", forget_the_rest_of_the_rows, needs_delivery=True),
)
