"""Ways to break the delivery of staged rows: to a target with transactions, and to a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.mutations import ForgedPermit, Mutation, Patch, commit_now

from lakestate.coordinator.job_driver import JobDriver
from lakestate.sinks.kafka.delivery import Delivery, DeliveryWriter
from lakestate.sinks.staged.delivery import StagedEpoch
from lakestate.tables.staged import table as staged_table
from lakestate.tables.staged.table import StagedCheckpointer, StagedView
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.cluster.transaction_log import ProcessLogWriter, TransactionLog
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


def read_the_marker_before_fencing(patch: Patch) -> None:
    def open_writer(delivery: Delivery) -> DeliveryWriter:
        if delivery._writer is None:
            delivery._newest = delivery._log.newest_epoch()
            delivery._writer = delivery._log.open_writer()
        return delivery._writer

    patch.setattr(Delivery, "open", open_writer)


def take_a_lost_answer_for_a_failure(patch: Patch) -> None:
    def deliver_once(delivery: Delivery, epoch: StagedEpoch) -> None:
        writer = delivery.open()
        if delivery._newest is None or delivery._newest < epoch.epoch:
            writer.write(epoch)
            delivery._newest = epoch.epoch

    patch.setattr(Delivery, "_deliver_once", deliver_once)


def fence_nobody(patch: Patch) -> None:
    """As transactional ids of each driver's own would."""

    def open_writer(log: TransactionLog) -> int:
        log._writer += 1
        return log._writer

    patch.setattr(TransactionLog, "open_writer", open_writer)
    patch.setattr(TransactionLog, "_require", lambda log, writer: None)


def commit_the_marker_apart(patch: Patch) -> None:
    def write(writer: ProcessLogWriter, epoch: StagedEpoch) -> None:
        log = writer._log
        rows = next(log.transactions)
        for number, table in enumerate(epoch.tables()):
            writer._send(rows, number, log.to_rows(table), None)
        log.process.call(
            log.process.world.target, Operation.SWAP, "log-rows", lambda: writer._commit(rows, epoch)
        )
        marker = next(log.transactions)
        writer._send(marker, 0, [], int(epoch.epoch))
        log.process.call(
            log.process.world.target,
            Operation.SWAP,
            "log-marker",
            lambda: log.log.commit(writer._number, marker),
        )

    patch.setattr(ProcessLogWriter, "write", write)


def forget_markers(patch: Patch) -> None:
    """As a control topic with a short retention does."""
    real: Any = TransactionLog.open_writer

    def open_writer(log: TransactionLog) -> int:
        log.marker = None
        return int(real(log))

    patch.setattr(TransactionLog, "open_writer", open_writer)


def deliver_without_reading_markers(patch: Patch) -> None:
    real = Delivery._deliver_once

    def deliver_once(delivery: Delivery, epoch: StagedEpoch) -> None:
        delivery.open()
        delivery._newest = None
        real(delivery, epoch)

    patch.setattr(Delivery, "_deliver_once", deliver_once)


_IN_LOG = {"needs_delivery": True, "needs_log": True}

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
    Mutation("read the marker before fencing", read_the_marker_before_fencing, is_rare=True, **_IN_LOG),
    Mutation(
        "take a lost answer of a commit for a failure",
        take_a_lost_answer_for_a_failure,
        is_rare=True,
        **_IN_LOG,
    ),
    Mutation("fence no earlier writer", fence_nobody, **_IN_LOG),
    Mutation("commit the marker apart from the rows", commit_the_marker_apart, **_IN_LOG),
    Mutation("forget markers", forget_markers, **_IN_LOG),
    Mutation("deliver without reading markers", deliver_without_reading_markers, **_IN_LOG),
)
