"""Makes finished files visible after their epoch is published, and removes what failed attempts left.

Every step can be repeated: by a driver that lost an answer, by its successor, by a zombie an hour
later. File names are never used twice, so a repeated step finds that it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import assert_never

from lakestate.errors import CorruptionError, InvalidInputError, NotFoundError, OutcomeUnknownError
from lakestate.protocol.publication import CommitPermit
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.lanes import LANES_FOLDER, LaneNames, lane_folder, lane_of
from lakestate.sinks.files.local.attempts import MadeBy, is_dead_after_claim, is_dead_after_epoch
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.names import epoch_begun, hidden_name, sink_fingerprint
from lakestate.sinks.files.pre_commit import CompletedUpload, FilePreCommit, LocalFile, PreCommit, SmallObject
from lakestate.sinks.files.snapshots import STORE_FOLDER, require_snapshot_path
from lakestate.sinks.sink import EarlierAttempts
from lakestate.storage.parallel import map_in_parallel
from lakestate.storage.store import ObjectInfo, ObjectStore

_log = logging.getLogger("lakestate.files")

ATTEMPTS_MAX = 3
"""After this many lost answers the caller has to try again later."""


class FileCommitter:
    """The committer of a file sink: of an object store, or of a local directory."""

    def __init__(self, output: ObjectStore | LocalOutput) -> None:
        self._local = output if isinstance(output, LocalOutput) else None
        self._store = None if isinstance(output, LocalOutput) else output

    def commit(self, permit: CommitPermit, pre_commits: Sequence[bytes]) -> None:
        """Make every file visible that the epoch finished."""
        decoded = [PreCommit.decode(data) for data in pre_commits]
        map_in_parallel(self._make_visible, [file for each in decoded for file in each.finished])
        # In this order: a row that is committed can always be read from one place or another.
        map_in_parallel(self._show_snapshot, [copy for each in decoded for copy in each.snapshots])
        self._remove_snapshots([path for each in decoded for path in each.dropped])
        if self._local is not None:
            _remove_replaced(self._local, permit.epoch, decoded)

    def clean_up(self, job_id: str, epoch: Epoch, pre_commits: Sequence[bytes]) -> None:
        """Abort uploads and remove hidden files that no epoch from this one on can refer to."""
        decoded = [PreCommit.decode(data) for data in pre_commits]
        live = frozenset(_live_names(decoded))
        for fingerprint in sorted({each.fingerprint for each in decoded}):
            if self._store is not None:
                _clear_store(self._store, fingerprint, epoch, live)
            if self._local is not None:
                _clear_directory(self._local, fingerprint, epoch, live)
            named = _snapshot_paths(decoded)
            self._remove_snapshots(
                [
                    path
                    for path in self._snapshots()
                    if path not in named and _is_dead(path, fingerprint, epoch)
                ]
            )

    def _snapshots(self) -> list[str]:
        if self._local is not None:
            return self._local.snapshots.paths()
        return [] if self._store is None else [info.path for info in self._store.list(f"{STORE_FOLDER}/")]

    def _show_snapshot(self, copy: FilePreCommit) -> None:
        """Make the copy of an open file visible. If it is lost, the file is not, and the epoch counts."""
        try:
            if self._local is not None and isinstance(copy.content, LocalFile):
                self._local.publish_snapshot(copy.content.temporary, copy.path, copy.size_bytes)
            else:
                require_snapshot_path(copy.path)
                self._make_visible(copy)
        except (NotFoundError, CorruptionError, InvalidInputError) as error:
            _log.warning("there is no copy of an open file in this epoch: %s", error)

    def _remove_snapshots(self, paths: Sequence[str]) -> None:
        if self._local is not None:
            for path in paths:
                self._local.snapshots.remove(path)
        if self._store is not None and paths:
            self._store.delete_many([require_snapshot_path(path) for path in paths])

    def _make_visible(self, file: FilePreCommit) -> None:
        match file.content:
            case CompletedUpload():
                self._complete(file, file.content)
            case SmallObject(data=data):
                _check_size(file, self._put(file, data))
            case LocalFile(temporary=temporary, crc32=crc32):
                if self._local is None:
                    raise _foreign_file_error(file)
                self._local.publish(temporary, file.path, file.size_bytes, crc32)
            case _:
                assert_never(file.content)

    def _complete(self, file: FilePreCommit, content: CompletedUpload) -> None:
        if self._store is None:
            raise _foreign_file_error(file)
        parts = [part.uploaded for part in content.parts]
        for attempt in range(ATTEMPTS_MAX):
            try:
                info = self._store.uploads.complete(content.upload(file.path), parts)
                break
            except OutcomeUnknownError:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
        _check_size(file, info)
        if lane_of(parts[-1].number):
            _remove_lanes(self._store, lane_folder(file.path, content.lane_names))

    def _put(self, file: FilePreCommit, data: bytes) -> ObjectInfo:
        if self._store is None:
            raise _foreign_file_error(file)
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return self._store.put(file.path, data)
            except OutcomeUnknownError:
                continue
        return self._store.put(file.path, data)


def _foreign_file_error(file: FilePreCommit) -> CorruptionError:
    return CorruptionError(
        "a file was finished by another kind of sink than the one that commits it",
        object_name=file.path,
        found=type(file.content).__name__,
        action="give the sink the URL that the job was last run with",
    )


def _check_size(file: FilePreCommit, found: ObjectInfo) -> None:
    if found.size_bytes != file.size_bytes:
        raise CorruptionError(
            "the file in place is not the one that was finished",
            object_name=file.path,
            found=f"{found.size_bytes} bytes",
            expected=f"{file.size_bytes} bytes",
        )


def _live_names(pre_commits: Sequence[PreCommit]) -> list[tuple[str, str]]:
    """What the epoch refers to: the path of each file with its upload or hidden file."""
    found = [(each.path, each.token) for pre_commit in pre_commits for each in pre_commit.open]
    for file in (file for each in pre_commits for file in (*each.finished, *each.snapshots)):
        match file.content:
            case CompletedUpload(token=name) | LocalFile(temporary=name):
                found.append((file.path, name))
            case SmallObject():
                pass
            case _:
                assert_never(file.content)
    return found


def _snapshot_paths(pre_commits: Sequence[PreCommit]) -> set[str]:
    """The copies of open files that the epoch refers to."""
    made = {copy.path for pre_commit in pre_commits for copy in pre_commit.snapshots}
    return made | {each.snapshot for pre_commit in pre_commits for each in pre_commit.open}


def _is_dead(name: str, fingerprint: str, epoch: Epoch) -> bool:
    """True of a file of this sink that the epoch would refer to if it were needed: it was begun by then."""
    begun = epoch_begun(name, fingerprint)
    return begun is not None and begun <= epoch


def _clear_store(
    store: ObjectStore, fingerprint: str, epoch: Epoch, live: frozenset[tuple[str, str]]
) -> None:
    for dangling in store.uploads.list_dangling():
        upload = dangling.upload
        is_live = bool(live & {(upload.path, upload.token), (upload.path, "")})
        if not is_live and _is_dead(upload.path, fingerprint, epoch):
            store.uploads.abort(upload)
    live_folders = {lane_folder(path, names) for path, _ in live for names in LaneNames}
    claims = [info.path for info in store.list(f"{LANES_FOLDER}/")]
    folders = {path: path.rpartition("/")[0] for path in claims}
    dead = [
        path
        for path, folder in folders.items()
        if f"{folder}/" not in live_folders and _is_dead(folder, fingerprint, epoch)
    ]
    store.delete_many(dead)


def _clear_directory(
    output: LocalOutput, fingerprint: str, epoch: Epoch, live: frozenset[tuple[str, str]]
) -> None:
    named = {temporary for _, temporary in live}
    for temporary in output.hidden_files():
        if is_dead_after_epoch(temporary, fingerprint, epoch, named):
            output.remove(temporary)


def _remove_replaced(output: LocalOutput, epoch: Epoch, pre_commits: Sequence[PreCommit]) -> None:
    """Remove what the epoch's copies are copies of, and the copies of attempts that failed.

    Each is as large as the file, and an attempt may fail in every epoch: that cannot wait for clean-up.
    An attempt copies a file only if another one failed, so usually there is nothing to do. With
    snapshots there is a copy in every epoch.
    """
    named = {temporary for _, temporary in _live_names(pre_commits)}
    copied = {name for pre_commit in pre_commits for name in _copied_files(pre_commit, epoch)}
    for temporary in output.hidden_files() if copied else ():
        made = [MadeBy.of(temporary, each) for each in {each.fingerprint for each in pre_commits}]
        found = next((each for each in made if each is not None), None)
        if found is not None and found.file in copied and found.epoch <= epoch and temporary not in named:
            output.remove(temporary)


def _copied_files(pre_commit: PreCommit, epoch: Epoch) -> set[str]:
    made = [MadeBy.of(name, pre_commit.fingerprint) for _, name in _live_names([pre_commit])]
    copied = {each.file for each in made if each is not None and each.is_copy and each.epoch == epoch}
    return copied | {hidden_name(copy.path) for copy in pre_commit.snapshots}


def clear_earlier_attempts(output: LocalOutput, earlier: EarlierAttempts) -> None:
    """Remove the hidden files of attempts of drivers before this one, unless they may still count."""
    fingerprint = sink_fingerprint(earlier.job_id, earlier.sink_id, earlier.state_id)
    named = _hidden_names(earlier.newest)
    suspects = [
        temporary
        for temporary in output.hidden_files()
        if is_dead_after_claim(temporary, fingerprint, earlier.generation, named)
    ]
    if suspects:
        # Read only now: usually nothing is left, and nobody need look for manifests.
        named |= _hidden_names(earlier.pending())
        for temporary in suspects:
            if temporary not in named:
                output.remove(temporary)


def _hidden_names(pre_commits: Sequence[bytes]) -> set[str]:
    return {name for _, name in _live_names([PreCommit.decode(data) for data in pre_commits])}


def _remove_lanes(store: ObjectStore, folder: str) -> None:
    """The upload is complete, so no attempt needs a lane of it any more."""
    store.delete_many([info.path for info in store.list(folder)])
