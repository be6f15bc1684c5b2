"""`verify_cache`: compare every cached run of a host with the checksum it was stored with.

The cache itself does this at the first use of a run in each process, and rebuilds what is damaged.
Here everything is read at once. Nothing is written, and locks are shared.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from lakestate.errors import InvalidInputError
from lakestate.storage.cache.entry import (
    DATA_SUFFIX,
    RECORD_SUFFIX,
    EntryRecord,
    checksum_of,
    decode_record,
    entry_name,
)
from lakestate.verification.report import Finding, Problem

_REBUILT = "it is rebuilt from the store when it is needed"
_ATTEMPTS = 3
"""An entry may be replaced while it is checked; then it is checked again."""


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What a run cache holds, and which of its entries are damaged."""

    directory: str
    entries: int = 0
    bytes_read: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True if no entry is damaged."""
        return not self.findings

    def __str__(self) -> str:
        detail = f"{len(self.findings)} damaged" if self.findings else "no damage"
        head = f"{self.directory}: {detail} in {self.entries:,} cached runs ({self.bytes_read:,} bytes)"
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])


def verify_cache(directory: str | Path) -> CacheReport:
    """Verify a run cache directory, as in `ParquetBackend(cache_dir=...)`.

    A damaged cached run costs time, never rows.

    >>> import tempfile
    >>> from lakestate.storage.cache.run_cache import RunCache
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RunCache(Path(folder), 1000).open("a", lambda path: path.write_bytes(b"rows")).close()
    ...     report = verify_cache(folder)
    >>> report.entries, report.bytes_read, report.is_clean
    (1, 4, True)
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InvalidInputError("not a run cache", object_name=str(folder), expected="a directory")
    findings: list[Finding] = []
    entries = bytes_read = 0
    for data in sorted(folder.glob(f"*{DATA_SUFFIX}")):
        finding, size = _check_entry(data)
        entries += 1
        bytes_read += size
        if finding is not None:
            findings.append(finding)
    return CacheReport(str(folder), entries, bytes_read, tuple(findings))


def _check_entry(data: Path) -> tuple[Finding | None, int]:
    found: tuple[Finding | None, int] = None, 0
    for _ in range(_ATTEMPTS):
        before = _record(data)
        found = _compare_entry(data, before)
        if found[0] is None or _record(data) == before:
            break
    return found


def _compare_entry(data: Path, record: EntryRecord | None) -> tuple[Finding | None, int]:
    if record is None or entry_name(record.key) != data.name.removesuffix(DATA_SUFFIX):
        # An entry without its own record counts as absent.
        name = data.with_suffix(RECORD_SUFFIX)
        return Finding(str(name), "record of a cached run", Problem.UNREADABLE, consequence=_REBUILT), 0
    try:
        descriptor = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, 0
    try:
        # Eviction waits for this lock, so the whole read is of one entry.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        size, checksum = os.fstat(descriptor).st_size, checksum_of(descriptor)
    finally:
        os.close(descriptor)
    if checksum == record.checksum:
        return None, size
    found, expected = f"xxh3 {checksum}, {size} bytes", f"xxh3 {record.checksum}"
    return Finding(str(data), "cached run", Problem.CHECKSUM, found, expected, consequence=_REBUILT), size


def _record(data: Path) -> EntryRecord | None:
    try:
        return decode_record(data.with_suffix(RECORD_SUFFIX).read_bytes())
    except FileNotFoundError:
        return None
