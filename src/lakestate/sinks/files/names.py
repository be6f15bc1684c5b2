"""Names of output files: unique, never reused, and showing which sink began them in which epoch. Pure.

A name is `{prefix}-{fingerprint}-{epoch}-{subtask}-{id}{suffix}.{format}`. The fingerprint stands for the
job and the sink, so that clean-up touches nothing that belongs to another one. Until a file is visible,
whatever belongs to it has a neutral name: readers find files by patterns of prefixes and extensions, and
many of them look into hidden folders too.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.values import EPOCH_MAX, Epoch, TaskInfo
from lakestate.tables.hashing.routing import routing_keys

_ORIGIN = re.compile(r".*[-=]([0-9a-f]{12}-[0-9]{10}-[0-9]{5})-")
_HIDDEN = "_open-"
_AFFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def sink_fingerprint(job_id: str, sink_id: str, state_id: str) -> str:
    """Twelve hexadecimal digits that identify a sink of a job, and the state that the job continues.

    Two jobs of one name with different checkpoints have different ones, and so has a job that was deleted
    and started again. `state_id` is empty for a job that has none; see `GenerationRecord`.

    >>> len(sink_fingerprint("job", "out", "4f1c"))
    12
    >>> sink_fingerprint("job", "out", "4f1c") == sink_fingerprint("job", "out", "77b0")
    False
    """
    # No id contains a slash, so different ids never make the same text.
    parts = [job_id, sink_id, state_id] if state_id else [job_id, sink_id]
    return hashlib.blake2b("/".join(parts).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True)
class FileNaming:
    """How the files of a sink are named.

    >>> FileNaming("part", "", "parquet").name("0123456789ab", Epoch(7), 3, "f00")
    'part-0123456789ab-0000000007-00003-f00.parquet'
    """

    prefix: str = "part"
    suffix: str = ""
    extension: str = "parquet"

    def __post_init__(self) -> None:
        if not _AFFIX.fullmatch(self.prefix) or not re.fullmatch(r"[A-Za-z0-9._-]{0,64}", self.suffix):
            # A name that begins with a dot or an underscore is hidden from readers.
            raise InvalidInputError(
                "not a prefix or suffix of file names",
                found=f"{self.prefix!r}, {self.suffix!r}",
                expected="letters, digits, dots, dashes and underscores; a letter or digit first",
            )
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._]{0,31}", self.extension):
            raise InvalidInputError(
                "not an extension of file names",
                found=repr(self.extension),
                expected="letters, digits, dots and underscores; a letter or digit first",
            )

    def name(self, fingerprint: str, epoch: Epoch, subtask_index: int, file_id: str) -> str:
        """The name of a file that a subtask begins in an epoch."""
        stem = f"{self.prefix}-{fingerprint}-{epoch:010d}-{subtask_index:05d}-{file_id}"
        return f"{stem}{self.suffix}.{self.extension}"


def neutral_name(path: str) -> str:
    """The name of a file without its extension, or anything else that a pattern could ask for.

    >>> neutral_name("country=DE/part-0123456789ab-0000000007-00003-f00.parquet")
    '0123456789ab-0000000007-00003-79bab8b4931ac31c'
    """
    name = path.rpartition("/")[2]
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    origin = _ORIGIN.match(name)
    return digest if origin is None else f"{origin[1]}-{digest}"


def hidden_name(path: str) -> str:
    """The name under which a file grows in a local directory.

    It has no dot, so no pattern with an extension matches it. It begins with an underscore, which readers
    that skip hidden names skip, and with which no prefix begins.
    """
    return f"{_HIDDEN}{neutral_name(path)}"


def epoch_begun(name: str, fingerprint: str) -> Epoch | None:
    """The epoch in which a file of a sink was begun, or None if the name is not of this sink.

    >>> epoch_begun("country=DE/part-0123456789ab-0000000007-00003-f00.parquet", "0123456789ab")
    Epoch(7)
    """
    found = re.search(rf"(?:^|[-/=]){re.escape(fingerprint)}-([0-9]{{10}})-[0-9]{{5}}-[^/]*$", name)
    number = 0 if found is None else int(found[1])
    return Epoch(number) if 1 <= number <= EPOCH_MAX else None


def owned_file_id(unique: str, task: TaskInfo) -> str:
    """A file id whose routing key the subtask owns.

    So the state of an open file is in the key range of the subtask that writes it, and after rescaling
    exactly one subtask has it.
    """
    first, last = np.uint64(task.key_range.first), np.uint64(task.key_range.last)
    block, start = max(16, 8 * task.parallelism), 0
    while True:
        candidates = [f"{unique}{number:x}" for number in range(start, start + block)]
        keys = routing_keys([pa.array(candidates)])
        owned = np.flatnonzero((keys >= first) & (keys <= last))
        if len(owned):
            return candidates[int(owned[0])]
        start += block
