"""What runs on Spark for one query, so that it can be cancelled together."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkWork:
    """The jobs of one query, whichever thread and session they are started in.

    They carry a tag of Spark's context. The tags of a session would not do: they are known only to the
    thread that set them, and to cancel all work of a session could cancel work of the user's own.
    """

    def __init__(self, job_id: str) -> None:
        self._tag = f"lakestate-{job_id}-{uuid.uuid4().hex[:8]}"
        self.reason: BaseException | None = None
        """Why the work was cancelled, or None."""

    @contextmanager
    def tag(self, session: SparkSession) -> Iterator[None]:
        """Mark the jobs that this thread starts in the block."""
        context = session.sparkContext
        context.addJobTag(self._tag)
        try:
            yield
        finally:
            context.removeJobTag(self._tag)

    def cancel(self, session: SparkSession, reason: BaseException) -> None:
        """Cancel the jobs that are running. Call it again for those that begin later."""
        self.reason = self.reason or reason
        session.sparkContext.cancelJobsWithTag(self._tag)

    def raise_if_cancelled(self) -> None:
        """Raise the reason for which the work was cancelled, if it was."""
        if self.reason is not None:
            raise self.reason
