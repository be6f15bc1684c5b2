"""Triggers: when Spark begins a batch, as `Pipeline.start` takes them, and what it spends around one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from lakestate.config import duration_us
from lakestate.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_TRIGGERS = ("processingTime", "availableNow", "once")


def require_trigger(trigger: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The trigger, or InvalidInputError; the default is a batch as soon as there are rows."""
    if trigger is None:
        return {"processingTime": "0 seconds"}
    if len(trigger) != 1 or next(iter(trigger)) not in _TRIGGERS:
        raise InvalidInputError("unknown trigger", found=dict(trigger), expected=f"one of {_TRIGGERS}")
    return trigger


def ends_by_itself(trigger: Mapping[str, Any]) -> bool:
    """Whether a query with this trigger ends when it has read what there is.

    >>> ends_by_itself({"availableNow": True}), ends_by_itself({"processingTime": "1 minute"})
    (True, False)
    """
    return "availableNow" in trigger or "once" in trigger


def quiet_s(trigger: Mapping[str, Any], idle_us: int | None) -> float | None:
    """For how many seconds no epoch has run when a stream counts as silent; None if it never does.

    Not before the trigger has had its turn: between two of its batches a stream is not silent. A query that
    ends by itself does not wait.

    >>> quiet_s({"processingTime": "1 minute"}, 10_000_000), quiet_s({"availableNow": True}, 10_000_000)
    (60.0, None)
    """
    if idle_us is None or ends_by_itself(trigger):
        return None
    interval_us = 0
    # One that only Spark understands, such as "1 minute 30 seconds", does not count.
    with suppress(InvalidInputError):
        interval_us = duration_us(str(trigger.get("processingTime", "")).strip().removeprefix("interval "))
    return max(idle_us, interval_us) / 1_000_000


def time_beside_batch(query: StreamingQuery, batch_id: int) -> float | None:
    """The milliseconds that Spark needed around a batch, if it is the newest that has ended.

    It looks for offsets, writes its logs and plans; what it waited for the trigger does not count.
    """
    progress = None
    # No job ends because it could not be measured.
    with suppress(Py4JError):
        # The progress of pyspark makes a Python object of every field: these are two calls.
        newest = query._jsq.lastProgress()
        progress = None if newest is None else json.loads(newest.json())
    if progress is None or progress["batchId"] != batch_id:
        return None
    spent = progress["durationMs"]
    return float(spent.get("triggerExecution", 0) - spent.get("addBatch", 0))
