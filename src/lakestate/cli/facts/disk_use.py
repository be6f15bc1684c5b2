"""How much a job stores, by table, age and key range; how fast it grows; what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakestate.cli.facts.epochs import SeenEpoch
from lakestate.job.objects import JobObjects
from lakestate.protocol.key_ranges import KeyRange, key_range_of
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.protocol.relative_path import split_origin
from lakestate.protocol.values import Epoch, FileRef

KEY_RANGES = 8
"""Into how many equal parts the key space is cut."""

GB_MONTH_USD = 0.023
WRITES_1000_USD = 0.005
READS_1000_USD = 0.0004
"""List prices of S3 Standard in us-east-1: storage, PUT and LIST, GET. Deletions are free."""

PUBLISHING_WRITES, PUBLISHING_READS = 3, 3
RETENTION_WRITES = 6
"""What an epoch asks of the store besides its subtasks; see docs/limits.md. Most of retention is listings."""

SECONDS_OF_A_MONTH = 30 * 86_400


@dataclass(frozen=True, slots=True)
class StoredObjects:
    """Everything below the job's folder: that of all retained epochs, and what nothing refers to."""

    counts: Mapping[ObjectKind, int]
    sizes: Mapping[ObjectKind, int]

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return sum(self.sizes.values())


def list_stored(job: JobObjects) -> StoredObjects:
    """List every object of a job."""
    counts, sizes = Counter[ObjectKind](), Counter[ObjectKind]()
    prefix = job.store_path("")
    for info in job.store.list(prefix):
        kind = parse_object_name(info.path.removeprefix(prefix)).kind
        counts[kind] += 1
        sizes[kind] += info.size_bytes
    return StoredObjects(counts, sizes)


def sizes_by_age(files: Iterable[FileRef], newest: Epoch) -> list[tuple[str, int, int]]:
    """Files and bytes by how many epochs ago they were written: this one, 1 to 9, 10 to 99, and so on.

    >>> from lakestate.protocol.values import Generation
    >>> file = FileRef("checkpoints/3/x", 100, 0, 1, Epoch(3), Generation(1), 0, 1, 0)
    >>> sizes_by_age([file], Epoch(15))
    [('10 to 99 epochs ago', 1, 100)]
    """
    counts, sizes = Counter[int](), Counter[int]()
    for file in files:
        digits = 0 if file.epoch >= newest else len(str(newest - file.epoch))
        counts[digits] += 1
        sizes[digits] += file.size_bytes
    return [(_age_text(digits), counts[digits], sizes[digits]) for digits in sorted(counts)]


def _age_text(digits: int) -> str:
    if digits == 0:
        return "this epoch"
    return f"{10 ** (digits - 1)} to {10**digits - 1} epochs ago"


def sizes_by_key_range(files: Iterable[FileRef]) -> list[tuple[KeyRange, int]]:
    """Bytes in each part of the key space. Inside a file or row group, keys are taken to be spread evenly.

    A part that is much larger than the others has keys with very many rows, or very large ones.
    """
    ranges = [key_range_of(index, KEY_RANGES) for index in range(KEY_RANGES)]
    sizes = [0.0] * KEY_RANGES
    for file in files:
        for keys, size_bytes in _pieces(file):
            for index, part in enumerate(ranges):
                sizes[index] += size_bytes * _share(keys, part)
    return [(part, round(size)) for part, size in zip(ranges, sizes, strict=True)]


def _pieces(file: FileRef) -> list[tuple[KeyRange, int]]:
    if file.blocks:
        return [(block.keys, block.length) for block in file.blocks]
    return [] if file.keys is None else [(file.keys, file.size_bytes)]


def _share(keys: KeyRange, part: KeyRange) -> float:
    common = keys.intersection(part)
    return 0.0 if common is None else (common.last - common.first + 1) / (keys.last - keys.first + 1)


@dataclass(frozen=True, slots=True)
class Requests:
    """What one epoch asks of the store, output files and reads that a cache saves not included."""

    writes: int
    reads: int


def requests_of(manifest: Manifest, files: Iterable[FileRef]) -> Requests:
    """The requests of an epoch, counted from what it left: see docs/limits.md."""
    here = manifest.epoch
    data = sum(file.epoch == here and split_origin(file.path)[0] is None for file in files)
    entries = [subtask for operator in manifest.operators for subtask in operator.subtasks]
    names = (parse_object_name(entry.metadata.path) for entry in entries)
    metadata = sum(name.epoch == here and name.origin is None for name in names)
    return Requests(
        writes=data + metadata + PUBLISHING_WRITES + RETENTION_WRITES, reads=metadata + PUBLISHING_READS
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """How a job has grown over its retained epochs."""

    epochs: int
    seconds: float
    growth_bytes: int
    written_bytes: int

    @property
    def epochs_a_month(self) -> float | None:
        """How many epochs a month has at this pace; None if it is not known."""
        return None if self.seconds <= 0 else self.epochs * SECONDS_OF_A_MONTH / self.seconds


def growth_of(seen: Sequence[SeenEpoch]) -> Growth | None:
    """The growth from the oldest to the newest readable epoch; None if there are not two."""
    readable = [(each.record, each.manifest) for each in seen if each.record and each.manifest]
    if len(readable) < 2:
        return None
    (first_record, first), (last_record, last) = readable[0], readable[-1]
    return Growth(
        epochs=last.epoch - first.epoch,
        seconds=(last_record.published_at_ms - first_record.published_at_ms) / 1000,
        growth_bytes=last.summary.size_bytes - first.summary.size_bytes,
        written_bytes=sum(manifest.summary.bytes_written for _, manifest in readable[1:]),
    )


def monthly_usd(stored_bytes: int, requests: Requests, epochs_a_month: float | None) -> dict[str, float]:
    """What S3 would ask for in a month, at list prices."""
    storage = stored_bytes / 1e9 * GB_MONTH_USD
    if epochs_a_month is None:
        return {"storage": storage}
    writes = requests.writes * epochs_a_month / 1000 * WRITES_1000_USD
    reads = requests.reads * epochs_a_month / 1000 * READS_1000_USD
    return {"storage": storage, "requests": writes + reads, "total": storage + writes + reads}
