"""Finding the epoch that a person names: by its number, a tag, a time, or as the newest.

No tag can have a name that always means another epoch: a number, or the word `newest`. One that looks like
a time stands before the time.
"""

from __future__ import annotations

import datetime as dt

from lakestate.errors import CorruptionError, InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.names import did_you_mean
from lakestate.protocol.paths import TAGS, ObjectKind, parse_object_name
from lakestate.protocol.records import EpochRecord, TagRecord
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
    tag, moment = _find_tag(job, named), _moment(named)
    if tag is None and moment is not None:
        return _epoch_at(job, moment)
    if tag is None:
        tags = sorted(each.name for each in readable_tags(job)[0])
        raise NotFoundError(
            f"job {job.job_id} has no such tag",
            object_name=named,
            found=", ".join(tags) or "no tag",
            action=did_you_mean(named, [*tags, NEWEST])
            or "name an epoch by its number, a tag, a time such as 2026-01-31T12:00, or newest",
        )
    return tag.epoch


def require_tag_name(name: str) -> None:
    """Refuse a name for a new tag by which nobody would find it: it means another epoch."""
    if name == NEWEST or name.isdecimal():
        raise InvalidInputError(
            "not a valid tag name",
            object_name=repr(name),
            found="a name that means an epoch already",
            expected=f"neither a number nor {NEWEST!r}",
            action="choose another tag name",
        )


def _find_tag(job: JobObjects, name: str) -> TagRecord | None:
    try:
        path = job.paths.tag(name)
    except InvalidInputError:
        return None
    return job.read_tag(path)


def readable_tags(job: JobObjects) -> tuple[list[TagRecord], list[str]]:
    """The tags of a job for people, and why some cannot be read. Retention must know all of them."""
    found: list[TagRecord] = []
    damages: list[str] = []
    prefix = job.store_path("")
    for info in job.store.list(job.store_path(TAGS)):
        path = info.path.removeprefix(prefix)
        if parse_object_name(path).kind is not ObjectKind.TAG:
            continue
        try:
            tag = job.read_tag(path)
        except CorruptionError as error:
            damages.append(str(error))
        else:
            found += [] if tag is None else [tag]
    return found, damages


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
    """The newest epoch that had been published by then.

    If it is not known to be the newest, because epochs after it are gone or cannot be read, it is refused:
    whoever goes back to a time would otherwise go back further than that.
    """
    wanted_ms = int(moment.timestamp() * 1000)
    later: EpochRecord | None = None
    for epoch in reversed(job.list_epochs()):
        try:
            record = job.read_epoch(epoch)
        except CorruptionError:
            continue
        if record is None:
            continue
        if record.published_at_ms <= wanted_ms:
            if later is not None:
                _require_no_gap(job, moment, epoch, later.epoch)
            return epoch
        later = record
    raise NotFoundError(
        f"no epoch of job {job.job_id} had been published by then",
        object_name=moment.isoformat(),
        found="no epoch" if later is None else f"the oldest, epoch {later.epoch}, is of {_published(later)}",
        action=f"lakestate epochs {job.job_id} lists what there is",
    )


def _require_no_gap(job: JobObjects, moment: dt.datetime, epoch: Epoch, later: Epoch) -> None:
    if later == epoch.next():
        return
    first, last = epoch.next(), later - 1
    gone = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    raise NotFoundError(
        f"which epoch of job {job.job_id} was the newest by then is not known",
        object_name=moment.isoformat(),
        found=f"{gone} not retained, between epochs {epoch} and {later}",
        action=f"name one of these by its number, such as {epoch}",
    )


def _published(record: EpochRecord) -> str:
    try:
        return dt.datetime.fromtimestamp(record.published_at_ms / 1000, dt.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{record.published_at_ms} ms"
