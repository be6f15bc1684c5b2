"""Who owns an output: a sink of a job, and the checkpoint that the job continues. Pure.

The fingerprint in the names of a sink's files stands for the job, the sink and the identity of the job's
state. A copy of a checkpoint has all three, so two jobs would take each other's unfinished output for
their own and clean it up. What tells them apart is where their checkpoints are: each owner leaves its
mark in the output, and a second owner of one fingerprint is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote, unquote

from lakestate.errors import ConflictError, CorruptionError, InvalidInputError
from lakestate.sinks.files.names import sink_fingerprint

NAME_CHARS_MAX = 100
LOCATION_CHARS_MAX = 200
_NO_STATE_ID = "none"


class OutputClaim(Enum):
    """What to do about an output that another job has marked as its own."""

    LOOK = "refuse, and otherwise leave no mark"
    OWN = "refuse, and otherwise leave a mark"
    TAKE_OVER = "replace its mark: it never runs again"


@dataclass(frozen=True, slots=True)
class OutputOwner:
    """One sink of a job, with the checkpoint that the job continues. It holds no credentials.

    >>> owner = OutputOwner("job", "out", "4f1c", "s3://bucket/state")
    >>> owner.mark
    'a948b4bc3dc6/job/out/4f1c/s3%3A%2F%2Fbucket%2Fstate'
    >>> OutputOwner.of_mark(owner.mark) == owner
    True
    """

    job_id: str
    sink_id: str
    state_id: str
    checkpoint: str

    @property
    def fingerprint(self) -> str:
        """Of the sink."""
        return sink_fingerprint(self.job_id, self.sink_id, self.state_id)

    @property
    def mark(self) -> str:
        """The name of the mark. It says everything, so that the mark can be empty: see `neutral_name`."""
        names = (self.job_id, self.sink_id, self.state_id or _NO_STATE_ID)
        parts = [_part(name, NAME_CHARS_MAX) for name in names]
        return "/".join([self.fingerprint, *parts, _part(self.checkpoint, LOCATION_CHARS_MAX)])

    @classmethod
    def of_mark(cls, mark: str) -> OutputOwner:
        """The owner that a mark names. Long names in it are shortened."""
        parts = mark.split("/")
        if len(parts) != 5:
            raise CorruptionError(
                "not the mark of an owner",
                object_name=mark,
                expected="fingerprint/job/sink/state/checkpoint",
                action="remove what has been put into the folder of owners",
            )
        job_id, sink_id, state_id, checkpoint = (unquote(part) for part in parts[1:])
        return cls(job_id, sink_id, "" if state_id == _NO_STATE_ID else state_id, checkpoint)

    def __str__(self) -> str:
        state = f"state {self.state_id}" if self.state_id else "state without an identity"
        return f"job {self.job_id}, sink {self.sink_id}, {state}, checkpoint {self.checkpoint}"


def other_owners(owner: OutputOwner, marks: Collection[str]) -> list[str]:
    """The marks of other owners."""
    return sorted(mark for mark in marks if mark != owner.mark)


def foreign_output_error(owner: OutputOwner, output: str, marks: Collection[str]) -> InvalidInputError:
    """The error for an output that another owner has marked."""
    found = "; ".join(str(OutputOwner.of_mark(mark)) for mark in marks)
    return InvalidInputError(
        "another job that has a copy of this state owns the output",
        object_name=output,
        found=found,
        expected=str(owner),
        action="give this job another output, or a new checkpoint; if its checkpoint was moved and the other "
        "job never runs again, call start(take_over_output=True) once, or ls.take_over_output(…) for "
        'format("lakestate")',
    )


def simultaneous_claim_error(owner: OutputOwner, output: str, marks: Collection[str]) -> ConflictError:
    """The error for an output that two owners take over at the same moment."""
    return ConflictError(
        "another job takes over the output at the same moment",
        object_name=output,
        found="; ".join(str(OutputOwner.of_mark(mark)) for mark in marks) or "no mark",
        expected=str(owner),
        action="decide which of the jobs has the output, and start only that one",
    )


def _part(text: str, chars_max: int) -> str:
    """A text as part of a path, without dots: no pattern that names an extension matches it."""
    quoted = quote(text, safe="").replace(".", "%2E")
    if len(quoted) <= chars_max:
        return quoted
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    kept = quoted[: chars_max - len(digest) - 1]
    # Not in the middle of an escaped character.
    return f"{kept[: kept.rfind('%')] if '%' in kept[-2:] else kept}~{digest}"
