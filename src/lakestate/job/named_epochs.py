"""Finding the epoch that a person names: by its number, a tag, a time, or as the newest."""

from __future__ import annotations

import datetime as dt

from lakestate.errors import CorruptionError, InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.names import did_you_mean
from lakestate.protocol.values import Epoch

NEWEST = "newest"


def find_epoch(job: JobObjects, named: Epoch | int | str | dt.datetime) -> Epoch:
    """The epoch that somebody means by a number, a word or a time.

    It need not be readable: what is damaged can be named, too.
    """
    if isinstance(named, dt.datetime):
        return _epoch_at(job, _require_zone(named))
    if not isinstance(named, str):
        return Epoch(named)
    if named == NEWEST:
        return _newest(job)
    if named.isdecimal():
        return Epoch(int(named))
    moment = _moment(named)
    if moment is not None:
        return _epoch_at(job, moment)
    try:
        tag = job.read_tag(job.paths.tag(named))
    except InvalidInputError:
        tag = None
    if tag is None:
        tags = sorted(each.name for each in job.read_tags())
        raise NotFoundError(
            f"job {job.job_id} has no such tag",
            object_name=named,
            found=", ".join(tags) or "no tag",
            action=did_you_mean(named, tags)
            or "name an epoch by its number, a tag, a time such as 2026-01-31T12:00, or newest",
        )
    return tag.epoch


def _newest(job: JobObjects) -> Epoch:
    epochs = job.list_epochs()
    if not epochs:
        raise NotFoundError(
            f"job {job.job_id} has no published epoch", object_name=job.url_of("epochs/"), action="start it"
        )
    return epochs[-1]


def _moment(text: str) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found


def _require_zone(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        raise InvalidInputError(
            "a time without a zone does not say when",
            object_name=moment.isoformat(),
            expected=f"a time such as {moment.isoformat()}Z",
        )
    return moment


def _epoch_at(job: JobObjects, moment: dt.datetime) -> Epoch:
    """The newest epoch that was published by then."""
    wanted_ms = int(moment.timestamp() * 1000)
    for epoch in reversed(job.list_epochs()):
        try:
            record = job.read_epoch(epoch)
        except CorruptionError:
            continue
        if record is not None and record.published_at_ms <= wanted_ms:
            return epoch
    raise NotFoundError(
        f"no epoch of job {job.job_id} had been published by then",
        object_name=moment.isoformat(),
        action=f"lakestate epochs {job.job_id} lists what there is",
    )
