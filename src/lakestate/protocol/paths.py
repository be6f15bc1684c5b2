"""Builds and parses every object name of a job. Pure.

Data files have a unique id. Manifests and metadata objects are only ever created, under a name with a
suffix if the plain name is taken. No name is ever used for two contents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from lakestate.protocol.names import require_name
from lakestate.protocol.relative_path import split_origin
from lakestate.protocol.values import EPOCH_MAX, Epoch

FENCE = "generation.json"
BOUNDARY = "retention.json"
EPOCH_RECORDS = "epochs/"
CHECKPOINTS = "checkpoints/"
TAGS = "tags/"
SET_ASIDE = "set-aside/"
"""Damaged objects that a repair has replaced. Nothing reads them, and nothing deletes them."""


class ObjectKind(Enum):
    """What an object of a job is, according to its name."""

    FENCE = "fence"
    BOUNDARY = "retention boundary"
    EPOCH_RECORD = "epoch record"
    MANIFEST = "manifest"
    COMMITTED = "commit marker"
    SUBTASK_METADATA = "subtask metadata"
    DATA = "data file"
    ENGINE_LOG = "engine log"
    TAG = "tag"
    SET_ASIDE = "object set aside by a repair"
    FOREIGN = "foreign object"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A parsed name: its kind, and its epoch if it has one."""

    path: str
    kind: ObjectKind
    epoch: Epoch | None = None
    origin: str | None = None
    """The job that owns the object, if it is not the one that names it."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The names of one job's objects, relative to the job's root.

    >>> paths = Paths("totals")
    >>> paths.root, paths.epoch_record(Epoch(3)), paths.manifest(Epoch(3))
    ('totals', 'epochs/0000000003.json', 'checkpoints/3/manifest.pb')
    >>> paths.data(Epoch(3), "op", "users", 0, "a1")
    'checkpoints/3/operator-op/users-0-a1.parquet'
    """

    job_id: str

    def __post_init__(self) -> None:
        require_name("job", self.job_id)

    @property
    def root(self) -> str:
        """The job's folder below the checkpoint URL."""
        return self.job_id

    def epoch_record(self, epoch: Epoch) -> str:
        """The record whose creation publishes the epoch. Zero-padded, so that listings are in order."""
        return f"{EPOCH_RECORDS}{epoch:010d}.json"

    def manifest(self, epoch: Epoch, attempt: str | None = None) -> str:
        """A manifest of the epoch. Further attempts get a suffix; the epoch record names the valid one."""
        return f"{CHECKPOINTS}{epoch:d}/manifest{_suffix(attempt)}.pb"

    def commit_marker(self, epoch: Epoch) -> str:
        """The marker that the epoch's sinks are committed."""
        return f"{CHECKPOINTS}{epoch:d}/committed.json"

    def subtask_metadata(
        self, epoch: Epoch, operator_id: str, subtask_index: int, attempt: str | None = None
    ) -> str:
        """What a subtask wrote in the epoch. Further attempts get a suffix."""
        require_name("operator", operator_id)
        return f"{CHECKPOINTS}{epoch:d}/operator-{operator_id}-{subtask_index}{_suffix(attempt)}.metadata"

    def data(self, epoch: Epoch, operator_id: str, table: str, subtask_index: int, uid: str) -> str:
        """A data file of a table."""
        require_name("operator", operator_id)
        require_name("table", table)
        return f"{CHECKPOINTS}{epoch:d}/operator-{operator_id}/{table}-{subtask_index}-{uid}.parquet"

    def set_aside(self, path: str, repair: str) -> str:
        """Where a repair puts a copy of a damaged object before it replaces it."""
        return f"{SET_ASIDE}{repair}/{path}"

    def engine_log(self, epoch: Epoch, uid: str) -> str:
        """A piece of a file of the engine that grows."""
        return f"{CHECKPOINTS}{epoch:d}/engine-{uid}.log"

    def tag(self, name: str) -> str:
        """The tag of that name."""
        return f"{TAGS}{require_name('tag', name)}.json"


_FORK_TAG = "fork-"


def fork_tag(state_id: str) -> str:
    """The name of the tag that keeps a fork's epoch in the parent. No other fork ever has the same."""
    return f"{_FORK_TAG}{state_id}"


def is_fork_tag(name: str) -> bool:
    """Whether a tag can be one that was made with a fork. A person may have chosen such a name, too."""
    return name.startswith(_FORK_TAG)


def _suffix(attempt: str | None) -> str:
    return "" if attempt is None else f".{attempt}"


# Exactly as we write it: `checkpoints/007/` is not ours, so it must not be deleted.
_EPOCH_FOLDER = "checkpoints/([1-9][0-9]{0,9})"
_PATTERNS = (
    (re.compile(r"epochs/([0-9]{10})\.json"), ObjectKind.EPOCH_RECORD),
    (re.compile(rf"{_EPOCH_FOLDER}/manifest(?:\.[0-9A-Za-z-]+)?\.pb"), ObjectKind.MANIFEST),
    (re.compile(rf"{_EPOCH_FOLDER}/committed\.json"), ObjectKind.COMMITTED),
    (re.compile(rf"{_EPOCH_FOLDER}/operator-[^/]+\.metadata"), ObjectKind.SUBTASK_METADATA),
    (re.compile(rf"{_EPOCH_FOLDER}/engine-[0-9A-Za-z-]+\.log"), ObjectKind.ENGINE_LOG),
    (re.compile(rf"{_EPOCH_FOLDER}/operator-[^/]+/[^/]+\.parquet"), ObjectKind.DATA),
)


def parse_object_name(path: str) -> ObjectName:
    """Kind and epoch of the object at a path below the job's root, or of another job.

    >>> name = parse_object_name("checkpoints/12/operator-op/users-0-a1.parquet")
    >>> name.kind, name.epoch
    (<ObjectKind.DATA: 'data file'>, Epoch(12))
    >>> parse_object_name("notes.txt").kind
    <ObjectKind.FOREIGN: 'foreign object'>
    """
    origin, below = split_origin(path)
    if origin is not None:
        return replace(parse_object_name(below), path=path, origin=origin)
    if path == FENCE:
        return ObjectName(path, ObjectKind.FENCE)
    if path == BOUNDARY:
        return ObjectName(path, ObjectKind.BOUNDARY)
    if path.startswith(SET_ASIDE):
        return ObjectName(path, ObjectKind.SET_ASIDE)
    if re.fullmatch(r"tags/[^/]+\.json", path):
        return ObjectName(path, ObjectKind.TAG)
    for pattern, kind in _PATTERNS:
        match = pattern.fullmatch(path)
        if match and 1 <= int(match[1]) <= EPOCH_MAX:
            return ObjectName(path, kind, Epoch(int(match[1])))
    return ObjectName(path, ObjectKind.FOREIGN)
