"""Whether everything that an epoch refers to is there, with its size. Data files are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from lakestate.errors import CorruptionError
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.protocol.metadata import Manifest, OperatorEntry
from lakestate.protocol.paths import CHECKPOINTS
from lakestate.protocol.values import ObjectRef


def require_whole(job: JobObjects, manifest: Manifest, is_needed: Callable[[OperatorEntry], bool]) -> None:
    """Raise CorruptionError if something of an epoch is damaged that is needed, as far as sizes tell.

    Metadata is read and verified. Raises NotFoundError if retention has deleted the epoch meanwhile.
    """
    needed = [("the log of its engine", piece) for log in manifest.engine_logs for piece in log.pieces]
    for entry in manifest.operators:
        name = f"operator {entry.operator_id}"
        with _name_damage(job, manifest, name):
            if is_needed(entry):
                needed += [(name, ref) for ref in _data_files(job, entry)]
    sizes = _list_sizes(job, (ref for _, ref in needed))
    for name, ref in needed:
        if sizes.get(job.store_path(ref.path)) != ref.size_bytes:
            with _name_damage(job, manifest, name):
                job.check_size(ref)


@contextmanager
def _name_damage(job: JobObjects, manifest: Manifest, name: str) -> Iterator[None]:
    try:
        yield
    except CorruptionError as cause:
        open_epoch(job, manifest.epoch)
        raise CorruptionError(
            f"epoch {manifest.epoch} of job {job.job_id} is damaged, in {name}",
            object_name=cause.object_name,
            found=cause.found or "no such object",
            expected=cause.expected,
            action="restore the object from a copy, leave the operator out, or take another epoch: "
            "ls.verify says which are whole",
        ) from cause


def _data_files(job: JobObjects, entry: OperatorEntry) -> list[ObjectRef]:
    stored = job.read_subtasks(entry.subtasks)
    files = {file.path: file for metadata in stored for part in metadata.tables for file in part.files}
    return [file.object_ref for file in files.values()]


def _list_sizes(job: JobObjects, refs: Iterable[ObjectRef]) -> dict[str, int]:
    """What listings say: a request for a thousand objects, where each would take one otherwise."""
    folders = {f"{job.store_path(ref.path).partition('/')[0]}/{CHECKPOINTS}" for ref in refs}
    return {info.path: info.size_bytes for folder in sorted(folders) for info in job.store.list(folder)}
