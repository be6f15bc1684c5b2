"""Which batch of a Spark query a sink has reached, and whether another batch follows it. No I/O.

Spark numbers the batches of a query from 0, and runs the last one again if it failed before recording that
the batch was done. The manifest of an epoch says which batch it holds, so a published batch is recognised no
matter how often it returns. A batch that Spark planned a second time, because its checkpoint is older than
the state, has the same number but different rows.
"""

from __future__ import annotations

import msgspec

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.protocol.metadata import Manifest, SourceOffsets

BATCHES = "batches"
"""The name of the only source of such a job: the batches of the query."""


class BatchPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch of one query. The run id, one per start of the query, only says who wrote it."""

    query_id: str
    batch_id: int
    run_id: str
    rows: int | None = None
    """Rows of the batch. None in tasks, and in manifests from before rows were counted."""
    plan_digest: str | None = None
    """Digest of Spark's `offsets/N`, which is written once per batch. None if that cannot be read."""

    def offsets(self, watermark_us: int | None) -> SourceOffsets:
        """The position as a manifest stores it."""
        return SourceOffsets(BATCHES, msgspec.json.encode(self).decode(), watermark_us)

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> BatchPosition:
        """The last batch that this epoch or an earlier one holds."""
        where = f"epoch {manifest.epoch} of job {manifest.job_id}"
        for source in manifest.sources:
            if source.source == BATCHES:
                return _decode(source.offsets, where)
        raise IncompatibleStateError(
            "the state does not belong to a sink of a query",
            object_name=where,
            found=f"sources {', '.join(source.source for source in manifest.sources) or 'none'}",
            expected=BATCHES,
            action="give the query its own stateLocation",
        )


def is_published(reached: BatchPosition | None, batch: BatchPosition, state: str) -> bool:
    """Whether a batch is already in the newest epoch. False if it is the batch to write next.

    >>> first, second = BatchPosition("q", 0, "r"), BatchPosition("q", 1, "r")
    >>> is_published(None, first, ""), is_published(first, first, ""), is_published(first, second, "")
    (False, True, False)

    Any other batch would lose rows or write them twice, and is refused.
    """
    if reached is not None and reached.query_id != batch.query_id:
        raise IncompatibleStateError(
            "the state belongs to another query",
            object_name=state,
            found=f"query {batch.query_id}",
            expected=f"query {reached.query_id}",
            action="give each query its own checkpointLocation and stateLocation; if you deleted Spark's "
            "checkpoint, finish the open files and delete the state too",
        )
    if reached is not None and reached.batch_id == batch.batch_id:
        return True
    next_batch = 0 if reached is None else reached.batch_id + 1
    if batch.batch_id != next_batch:
        raise IncompatibleStateError(
            "Spark's checkpoint and the state of the sink are from different times",
            object_name=state,
            found=f"batch {batch.batch_id}",
            expected=f"batch {next_batch}",
            action="restore both from the same moment, or start with a new checkpointLocation; "
            "if you moved the state, set the option jobId",
        )
    return False


def check_same_plan(reached: BatchPosition, batch: BatchPosition, state: str) -> None:
    """Refuse a batch that has the number of the published one but was planned a second time.

    Its rows are not written, because the batch counts as published: additional rows would be lost. Spark's
    offsets decide. If they cannot be read, the number of rows decides, which can differ for the same batch
    if the query is not deterministic.

    >>> published = BatchPosition("q", 4, "r", rows=2)
    >>> check_same_plan(published, BatchPosition("q", 4, "r", rows=2), "")
    >>> check_same_plan(published, BatchPosition("q", 4, "r", rows=3), "s3://state/job")
    Traceback (most recent call last):
    lakestate.errors.IncompatibleStateError: Spark's checkpoint is older than the state of the sink: ...
    """
    action = "restore both from the same moment, or start with a new checkpointLocation"
    if reached.plan_digest is not None and batch.plan_digest is not None:
        is_same = reached.plan_digest == batch.plan_digest
    else:
        is_same = None in (reached.rows, batch.rows) or reached.rows == batch.rows
        action += (
            "; if it is the same batch and only the query returned other rows, mark it as done: copy the "
            f"newest file in commits/ of Spark's checkpoint to commits/{batch.batch_id}"
        )
    if not is_same:
        raise IncompatibleStateError(
            "Spark's checkpoint is older than the state of the sink: a batch was planned a second time",
            object_name=state,
            found=_batch_text(batch),
            expected=f"{_batch_text(reached)}, which is published",
            action=action,
        )


def _batch_text(batch: BatchPosition) -> str:
    read = "" if batch.plan_digest is None else f" and offsets with digest {batch.plan_digest}"
    return f"batch {batch.batch_id} with {batch.rows} rows{read}"


def _decode(text: str, where: str) -> BatchPosition:
    try:
        return msgspec.json.decode(text, type=BatchPosition)
    except UNDECODABLE as cause:
        raise CorruptionError(
            "the position of the query cannot be decoded", object_name=where, found=str(cause)
        ) from cause
