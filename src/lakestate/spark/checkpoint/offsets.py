"""The files of Spark's checkpoint directory: stored in the manifest, rebuilt from it at every start.

Spark writes `commits/N` only after the epoch of batch N is published, so we write that file in its place.
These few small files are all that Spark needs to continue at batch N + 1. In the manifest they bear the
number of their epoch, which differs from that of Spark's batch after an epoch without rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lakestate.codec.engine_files import METADATA, SourceLog, SparkFiles, needed_logs
from lakestate.coordinator.engine.batches import BatchNumbers, EngineFiles, has_offsets
from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import Manifest, NamedBytes
from lakestate.protocol.values import Epoch
from lakestate.spark.checkpoint.source_logs import LogsBefore, read_logs

CheckPath = Callable[[str, str], None]
"""Refuses a file, given with the log that names it, that does not belong to a source of the pipeline."""


def read_engine_files(
    directory: Path,
    epoch: Epoch,
    before: Manifest | None = None,
    check_path: CheckPath = lambda log, path: None,
    *,
    batch: int | None = None,
) -> EngineFiles:
    """Read what Spark needs to continue after this epoch from its checkpoint directory.

    Call it while the batch of the epoch runs: its offsets are written then, its commit is not. `before`
    is the epoch before, `batch` the number that Spark gives to the batch, if it is not that of the epoch.
    What the next start would refuse is refused here, before the epoch is published; only what the epoch
    before did not have is read and checked.
    """
    _refuse_state_of_spark(directory)
    batch = epoch.batch_id if batch is None else batch
    own = Epoch.of_batch(batch)
    names = [METADATA, f"offsets/{batch - 1}", f"offsets/{batch}", f"commits/{batch - 1}"]
    found = [NamedBytes(name, path.read_bytes()) for name in names if (path := directory / name).is_file()]
    if not has_offsets(found, own):
        raise CorruptionError(
            "Spark's checkpoint directory has no offsets of the running batch",
            object_name=str(directory / f"offsets/{batch}"),
            action="make sure that nothing else writes to this directory, and restart the job",
        )
    known = LogsBefore(before)
    contents = list(read_logs(directory, known))
    _refuse_lost_logs(directory, known.names, [content.log.name for content in contents])
    inline = [NamedBytes(each.log.name, each.log.data) for each in contents if each.parts is None]
    updates = tuple(update for each in contents if (update := each.update) is not None)
    files = SparkFiles.parse((*found, *inline), own, [update.name for update in updates])
    for content in contents:
        for entry in replace(content.log, data=content.new).file_paths() if content.new else ():
            check_path(content.log.name, entry)
    return EngineFiles(files.renumber(epoch).encode(), updates)


def _refuse_state_of_spark(directory: Path) -> None:
    """Refuse state that Spark keeps itself: it is not in the manifest, so a restart would lose it."""
    if (directory / "state").exists():
        raise InvalidInputError(
            "a source of the pipeline has state of Spark's own",
            object_name=str(directory / "state"),
            expected="a streaming DataFrame without aggregation, dropDuplicates or join of two streams",
            action="do this in an operator, or over each batch in a transform",
        )


def files_to_rebuild(
    files: Sequence[NamedBytes], epoch: Epoch | None, check_path: CheckPath
) -> tuple[NamedBytes, ...]:
    """The files with which Spark continues after an epoch: no more than it needs, each one checked."""
    if epoch is None or not files:
        return ()
    found = SparkFiles.parse(files, epoch)
    for log, path in found.file_paths():
        check_path(log, path)
    return found.encode()


def rebuild_directory(directory: Path, files: Sequence[NamedBytes]) -> None:
    """Replace the content of the directory with these files. It is a cache, and may be out of date."""
    _clear_directory(directory)
    for file in files:
        path = directory / file.name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as cause:
            raise CorruptionError(
                "two of Spark's files need the same path as a file and as a directory",
                object_name=f"{file.name} in the manifest",
                action="restore the manifest, or start from an intact epoch with start(from_epoch=…)",
            ) from cause


def _clear_directory(directory: Path) -> None:
    """Remove everything in the folder. The folder itself stays, because its driver holds a lock on it."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in list(directory.iterdir()):
        if path.is_dir() and not path.is_symlink():
            # Spark may still be purging old logs: files that disappear meanwhile are not an error.
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    left = next(directory.iterdir(), None)
    if left is not None:
        raise InvalidInputError(
            "Spark's checkpoint directory cannot be emptied",
            object_name=str(left),
            action="make sure that nothing else writes to this directory, and restart the job",
        )


def source_offsets(files: Sequence[NamedBytes], epoch: Epoch, count: int) -> list[str]:
    """How far each source has been read, in Spark's notation and in the order of the sources."""
    data = next((file.data for file in files if file.name == f"offsets/{epoch.batch_id}"), None)
    if data is None:
        return [""] * count
    try:
        version, _, *offsets = data.decode().split("\n")
    except ValueError as cause:
        raise CorruptionError(
            "Spark's offset log cannot be decoded",
            object_name=f"offsets/{epoch.batch_id} in the manifest",
            found=f"{data[:40]!r}",
            expected="lines of text: a version, the batch metadata, and one line for each source",
        ) from cause
    if version not in ("v1", "v2"):
        raise IncompatibleStateError(
            "Spark's offset log has an unknown version", found=version, expected="v1 or v2"
        )
    return offsets if len(offsets) == count else ["\n".join(offsets)] * count


def _refuse_lost_logs(directory: Path, before: Iterable[str], found: Sequence[str]) -> None:
    """Refuse to continue without the log of a source, which would then read the same input again."""
    there = [log for name in found if (log := SourceLog.parse(name, b"")) is not None]
    summed_up = {log.source: log.number for log in needed_logs(there) if log.is_compacted}
    for name in sorted(set(before) - set(found)):
        log = SourceLog.parse(name, b"")
        if log is None or log.number > summed_up.get(log.source, -1):
            raise CorruptionError(
                "Spark's checkpoint directory has lost a log of a source",
                object_name=str(directory / name),
                action="make sure that nothing else removes files from this directory, or set "
                "spark_checkpoint to another one; restart the job",
            )


def out_of_step_error(newest: Manifest, batch: int, numbers: BatchNumbers) -> IncompatibleStateError:
    """Spark's directory is rebuilt to continue after the newest epoch, so no batch should come twice."""
    return IncompatibleStateError(
        "Spark delivered a batch whose epoch is already published: its rows would be skipped",
        object_name=f"epoch {numbers.epoch_of(batch)} of job {newest.job_id}",
        found=f"batch {batch}",
        expected=f"batch {numbers.batch_of(newest.epoch.next())}",
        action="make sure that nothing else writes to Spark's checkpoint directory, and restart the job",
    )
