"""The small frozen values that all other parts use. Pure; validated when they are created."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from lakestate.errors import InvalidInputError
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange, key_range_of, require_parallelism
from lakestate.protocol.names import require_name
from lakestate.protocol.relative_path import require_object_path

EPOCH_MAX = 2**32 - 1
GENERATION_MAX = 2**63 - 1


def _is_integer(number: object) -> bool:
    # A fraction would be truncated silently, and a boolean is always a mistake.
    return hasattr(number, "__index__") and not isinstance(number, bool)


class Epoch(int):
    """One checkpoint, of a micro-batch or without rows. The first is 1.

    >>> Epoch(7).next(), Epoch.of_batch(0)
    (Epoch(8), Epoch(1))
    """

    __slots__ = ()

    def __new__(cls, number: int) -> Self:
        """Check the number."""
        if not _is_integer(number) or not 1 <= number <= EPOCH_MAX:
            raise InvalidInputError("not an epoch", found=number, expected=f"1 to {EPOCH_MAX}")
        return super().__new__(cls, number)

    @classmethod
    def of_batch(cls, batch_id: int) -> Self:
        """The epoch of a Spark batch, if no epoch was without a batch; see `BatchNumbers`."""
        return cls(batch_id + 1)

    @property
    def batch_id(self) -> int:
        """The number of this epoch among Spark's files: they begin with 0."""
        return int(self) - 1

    def next(self) -> Epoch:
        """The epoch after this one."""
        return Epoch(int(self) + 1)

    def __repr__(self) -> str:
        return f"Epoch({int(self)})"

    def __str__(self) -> str:
        return str(int(self))


class Generation(int):
    """One start of the driver. A higher generation fences a lower one; the first is 1."""

    __slots__ = ()

    def __new__(cls, number: int) -> Self:
        """Check the number."""
        if not _is_integer(number) or not 1 <= number <= GENERATION_MAX:
            raise InvalidInputError("not a generation", found=number, expected=f"1 to {GENERATION_MAX}")
        return super().__new__(cls, number)

    def next(self) -> Generation:
        """The generation after this one."""
        return Generation(int(self) + 1)

    def __repr__(self) -> str:
        return f"Generation({int(self)})"

    def __str__(self) -> str:
        return str(int(self))


FIRST_EPOCH = Epoch(1)
FIRST_GENERATION = Generation(1)


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The identity of a subtask.

    >>> TaskInfo("job", "op", subtask_index=1, parallelism=2).key_range.last == 2**64 - 1
    True
    """

    job_id: str
    operator_id: str
    subtask_index: int = 0
    parallelism: int = 1
    generation: Generation = FIRST_GENERATION
    state_id: str = ""
    """Identifies the state of the job; see `GenerationRecord`."""

    def __post_init__(self) -> None:
        require_name("job", self.job_id)
        require_name("operator", self.operator_id)
        require_parallelism(self.parallelism)
        key_range_of(self.subtask_index, self.parallelism)
        object.__setattr__(self, "generation", Generation(self.generation))

    @property
    def key_range(self) -> KeyRange:
        """The routing keys this subtask owns."""
        return key_range_of(self.subtask_index, self.parallelism)

    def __str__(self) -> str:
        return f"{self.job_id}/{self.operator_id}[{self.subtask_index}/{self.parallelism}]"


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The epoch of a job that a fork begins with.

    >>> str(ForkPoint("totals", Epoch(12)))
    'totals@12'
    >>> ForkPoint.parse("totals@12")
    ForkPoint(job_id='totals', epoch=Epoch(12))
    """

    job_id: str
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.job_id}@{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> ForkPoint:
        """The point that a text names, exactly as `str` writes it."""
        job_id, _, number = text.partition("@")
        if not number.isascii() or not number.isdecimal() or str(int(number)) != number:
            raise InvalidInputError("not an epoch of a job", found=repr(text), expected="job@epoch")
        return cls(require_name("job", job_id), Epoch(int(number)))


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A stored object with the size and checksum of its bytes. The path is relative to the job's root.

    In a fork it may lead to an object of another job; see `relative_path`.
    """

    path: str
    size_bytes: int
    checksum: int

    def __post_init__(self) -> None:
        require_object_path(self.path)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Event times from `first_us` to `last_us`, both included, in microseconds since 1970."""

    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Block:
    """One row group of a data file, which can be fetched and verified on its own."""

    start: int
    length: int
    row_count: int
    keys: KeyRange
    checksum: int
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class FileRef:
    """One immutable data file, and the part of it that is valid.

    `keys` and `times` are what the file holds. `valid_keys` and `valid_from_us` say which of its rows
    belong to the holder of the reference: after rescaling, two subtasks refer to one file, and once
    one of them has compacted its half, the other must not bring those rows back.
    """

    path: str
    size_bytes: int
    checksum: int
    row_count: int
    epoch: Epoch
    generation: Generation
    subtask_index: int
    state_version: int
    schema_fingerprint: int
    keys: KeyRange | None = None
    times: TimeRange | None = None
    removed_count: int = 0
    valid_keys: KeyRange = ALL_KEYS
    valid_from_us: int | None = None
    blocks: tuple[Block, ...] = ()
    """The row groups, unless the file is small and has only one. The footer follows the last one."""
    footer_checksum: int = 0
    unknown_fields: bytes = b""

    def __post_init__(self) -> None:
        require_object_path(self.path)

    def clipped_to(self, keys: KeyRange) -> FileRef | None:
        """The same file for the holder of `keys`, or None if it has no valid rows there."""
        valid = self.valid_keys.intersection(keys)
        if valid is None or (self.keys is not None and not self.keys.overlaps(valid)):
            return None
        return self if valid == self.valid_keys else replace(self, valid_keys=valid)

    @property
    def object_ref(self) -> ObjectRef:
        """Path, size and checksum of the file."""
        return ObjectRef(self.path, self.size_bytes, self.checksum)
