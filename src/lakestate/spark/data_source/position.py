"""How far a query of Spark's has come with a sink, and whether a batch follows. No I/O.

Spark numbers the batches of a query from 0, and runs the last one again if it died before it had
written down that the batch was done. An epoch says in its manifest which batch it holds; so a batch
that is published already is recognised, however often it comes back. One that Spark has planned
anew, because its checkpoint is older than the state, has the same number and other rows.
"""

from __future__ import annotations

import msgspec

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.protocol.metadata import Manifest, SourceOffsets

BATCHES = "batches"
"""The name of the only source of such a job: the batches of Spark's query."""


class BatchPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch of one query. The run, which is one start of the query, only says who did it."""

    query_id: str
    batch_id: int
    run_id: str
    rows: int | None = None
    """How many it has. None in what was stored before they were counted, and in tasks."""
    plan_digest: str | None = None
    """Of Spark's `offsets/N`, which is written once for a batch. None where that cannot be read."""

    def offsets(self, watermark_us: int | None) -> SourceOffsets:
        """The position as a manifest keeps it."""
        return SourceOffsets(BATCHES, msgspec.json.encode(self).decode(), watermark_us)

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> BatchPosition:
        """The last batch that an epoch and those before it hold."""
        where = f"epoch {manifest.epoch} of job {manifest.job_id}"
        for source in manifest.sources:
            if source.source == BATCHES:
                return _decode(source.offsets, where)
        raise IncompatibleStateError(
            "the state is not of a sink that a query writes to",
            object_name=where,
            found=f"sources {', '.join(source.source for source in manifest.sources) or 'none'}",
            expected=BATCHES,
            action="give the query a stateLocation of its own",
        )


def is_published(reached: BatchPosition | None, batch: BatchPosition, state: str) -> bool:
    """Whether a batch is in the newest epoch already; False if it is the one to write next.

    >>> first, second = BatchPosition("q", 0, "r"), BatchPosition("q", 1, "r")
    >>> is_published(None, first, ""), is_published(first, first, ""), is_published(first, second, "")
    (False, True, False)

    Anything else would lose rows or write them twice, and is refused.
    """
    if reached is not None and reached.query_id != batch.query_id:
        raise IncompatibleStateError(
            "the state is of another query",
            object_name=state,
            found=f"query {batch.query_id}",
            expected=f"query {reached.query_id}",
            action="give each query a checkpointLocation and a stateLocation of its own; if Spark's "
            "checkpoint was deleted, finish the open files and delete the state with it",
        )
    if reached is not None and reached.batch_id == batch.batch_id:
        return True
    next_batch = 0 if reached is None else reached.batch_id + 1
    if batch.batch_id != next_batch:
        raise IncompatibleStateError(
            "Spark's checkpoint and the state of the sink are not of one time",
            object_name=state,
            found=f"batch {batch.batch_id}",
            expected=f"batch {next_batch}",
            action="restore both from the same moment, or start with a new checkpointLocation; "
            "state that was moved is found again with the option jobId",
        )
    return False


def check_same_plan(reached: BatchPosition, batch: BatchPosition, state: str) -> None:
    """Refuse a batch that has the number of the published one, but was planned anew.

    Its rows were not written, because that batch is published; those that it has more would be lost.
    Spark's offsets tell for sure. The number of rows has to do where they are out of reach: it can
    differ in the same batch, if the query is not deterministic.

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
            "; if only the query gave other rows this time, mark the batch as done with "
            f"commits/{batch.batch_id} in Spark's checkpoint, a copy of the one before"
        )
    if not is_same:
        raise IncompatibleStateError(
            "Spark's checkpoint is older than the state of the sink: a batch was planned anew",
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
            "the position of the query cannot be read", object_name=where, found=str(cause)
        ) from cause
