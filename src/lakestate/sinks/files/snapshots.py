"""Snapshots: complete copies of files that are still open, for people and programs without Lakestate.

A copy belongs to one epoch, appears when that epoch is committed, and goes when a later one replaces it or
the file is finished. So the visible files and the snapshots together hold each committed row once. Names
and values only; pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from lakestate.errors import CorruptionError
from lakestate.protocol.values import Epoch
from lakestate.storage.object_path import RESERVED

LOCAL_FOLDER = f"{RESERVED}/snapshots"
STORE_FOLDER = "_lakestate/snapshots"
"""The reserved folder is not for objects. Readers skip names that begin with an underscore too."""

_NAME = "_snapshot="


class Snapshot(msgspec.Struct, frozen=True):
    """The copy of an open file that its state refers to."""

    path: str
    """Below the URL of the sink."""
    size_bytes: int
    file_bytes: int
    """How many of its bytes are those of the open file. What follows only ends the copy."""
    crc32: int | None = None
    """Of all of its bytes, if it is a local file."""


def require_snapshot_path(path: str) -> str:
    """The path itself, if it is of a snapshot in an object store. A manifest names what is to be deleted."""
    if not path.startswith(f"{STORE_FOLDER}/") or not path.rpartition("/")[2].startswith(_NAME):
        raise CorruptionError(
            "not the path of a snapshot", object_name=path, expected=f"{STORE_FOLDER}/…/{_NAME}…"
        )
    return path


@dataclass(frozen=True, slots=True)
class SnapshotNaming:
    """How the copies that one attempt makes are named.

    >>> naming = SnapshotNaming("_lakestate/snapshots", "0123456789ab", Epoch(7), 3)
    >>> naming.path("country=DE/part-f00.parquet")
    '_lakestate/snapshots/country=DE/_snapshot=0123456789ab-0000000007-00003-c7ad3f82f705f982'
    """

    folder: str
    fingerprint: str
    epoch: Epoch
    subtask_index: int

    def path(self, file_path: str) -> str:
        """Where the copy of a file goes. Partitions are in the path, because they are not in the file.

        The name has no dot and does not begin with a prefix of files, so patterns do not match it. Readers
        skip an underscore when they look for files. Spark refuses a path with one, unless it has a `=` too.
        """
        partition, slash, _ = file_path.rpartition("/")
        digest = hashlib.blake2b(file_path.encode(), digest_size=8).hexdigest()
        name = f"{_NAME}{self.fingerprint}-{self.epoch:010d}-{self.subtask_index:05d}-{digest}"
        return f"{self.folder}/{partition}{slash}{name}"
