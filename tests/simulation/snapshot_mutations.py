"""Ways to break the copies that sinks leave of their open files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.simulation import mutations
from tests.simulation.mutations import Mutation, Patch

from lakestate.sinks.files import snapshot_upload
from lakestate.sinks.files.committer import FileCommitter


def _with_snapshots(patch: Patch) -> None:
    drawn = mutations.harsh
    patch.setattr(mutations, "harsh", lambda seed: replace(drawn(seed), snapshots=True, roll_bytes=1000))


def forget_what_is_put(patch: Patch) -> None:
    """What an epoch puts into the file is missing from its copy."""
    _with_snapshots(patch)
    patch.setattr(snapshot_upload.SnapshotUpload, "add", lambda *_: None)


def copy_without_looking(patch: Patch) -> None:
    """A file whose parts are in no copy is taken for one that can be copied."""
    _with_snapshots(patch)
    patch.setattr(snapshot_upload.SnapshotUpload, "_begin", _begin_without_the_first_parts)


def _begin_without_the_first_parts(copy: snapshot_upload.SnapshotUpload) -> None:
    if copy._upload is None:
        copy._upload = copy._uploads.store.uploads.start(copy._path)


def show_no_copy(patch: Patch) -> None:
    _with_snapshots(patch)
    patch.setattr(FileCommitter, "_show_snapshot", lambda *_: None)


def leave_old_copies(patch: Patch) -> None:
    _with_snapshots(patch)
    patch.setattr(FileCommitter, "_remove_snapshots", lambda *_: None)


OPEN_FILES: Sequence[Mutation] = (
    Mutation("forget what is put in the copy of an open file", forget_what_is_put),
    Mutation("copy an open file without its first parts", copy_without_looking),
    Mutation("show no copy of an open file", show_no_copy),
    Mutation("leave copies of files that are finished", leave_old_copies),
)
