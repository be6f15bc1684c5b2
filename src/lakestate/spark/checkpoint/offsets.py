"""Spark's checkpoint directory as a cache: kept in the manifest, rebuilt from it at every start.

Spark writes `commits/N` only after the epoch of batch N is published, so that file is written here
in its place. Nothing else than these few small files is needed to go on at batch N + 1.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import NamedBytes
from lakestate.protocol.values import Epoch

METADATA = "metadata"
COMMITTED_BATCH = b'v1\n{"nextBatchWatermarkMs":0}'
"""What Spark writes when a batch without its own state is done."""

_COMPACTED = re.compile(r"(\d+)\.compact")


def read_engine_files(
    directory: Path, epoch: Epoch, before: Sequence[NamedBytes] = ()
) -> tuple[NamedBytes, ...]:
    """What Spark needs to go on after this epoch, read from its checkpoint directory.

    Called while the batch of the epoch runs: its offsets are written, its commit is not. `before`
    is what the epoch before this one kept.
    """
    _refuse_state_of_spark(directory)
    batch = epoch.batch_id
    names = [METADATA, f"offsets/{batch - 1}", f"offsets/{batch}", f"commits/{batch - 1}"]
    files = [NamedBytes(name, path.read_bytes()) for name in names if (path := directory / name).is_file()]
    if not has_offsets(files, epoch):
        raise CorruptionError(
            "Spark's checkpoint directory has no offsets of the running batch",
            object_name=str(directory / f"offsets/{batch}"),
            action="let nothing else write to this directory; restart the job",
        )
    files.append(NamedBytes(f"commits/{batch}", COMMITTED_BATCH))
    logs = tuple(_source_logs(directory))
    _refuse_lost_logs(directory, before, logs)
    return (*files, *logs)


def has_offsets(files: Sequence[NamedBytes], epoch: Epoch) -> bool:
    """Whether these files tell how far this epoch has read."""
    return any(file.name == f"offsets/{epoch.batch_id}" for file in files)


def _refuse_state_of_spark(directory: Path) -> None:
    """State that Spark keeps itself is not in the manifest: a restart would go on without it."""
    if (directory / "state").exists():
        raise InvalidInputError(
            "a source of the pipeline has state that Spark keeps",
            object_name=str(directory / "state"),
            expected="a streaming DataFrame without aggregation, dropDuplicates or join of two streams",
            action="do that in an operator, or over each batch in a transform",
        )


def engine_files_without_batch(files: Sequence[NamedBytes], epoch: Epoch) -> tuple[NamedBytes, ...]:
    """The files for an epoch without a batch of Spark's: it has read nothing more than its parent.

    Spark does the same when it runs a batch without new data.
    """
    before, batch = epoch.batch_id - 1, epoch.batch_id
    found = {file.name: file.data for file in files}
    if f"offsets/{before}" not in found:
        return tuple(files)
    found[f"offsets/{batch}"] = found[f"offsets/{before}"]
    found[f"commits/{batch}"] = COMMITTED_BATCH
    for folder in ("offsets", "commits"):
        found.pop(f"{folder}/{before - 1}", None)
    return tuple(NamedBytes(name, data) for name, data in found.items())


def rebuild_directory(directory: Path, files: Sequence[NamedBytes]) -> None:
    """Make the directory hold exactly these files. What was there is a cache, and may be older."""
    _clear_directory(directory)
    for file in files:
        path = directory / file.name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as cause:
            raise CorruptionError(
                "a file of Spark's has the name of a directory of another",
                object_name=f"{file.name} in the manifest",
                action="open an older epoch",
            ) from cause


def _clear_directory(directory: Path) -> None:
    """The folder itself stays: another in its place would not have the lock that keeps it alive."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in list(directory.iterdir()):
        if path.is_dir() and not path.is_symlink():
            # Spark may still be purging old logs of its own: what vanishes under us is no error.
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    left = next(directory.iterdir(), None)
    if left is not None:
        raise InvalidInputError(
            "Spark's checkpoint directory cannot be emptied",
            object_name=str(left),
            action="let nothing else write to this directory; restart the job",
        )


def source_offsets(files: Sequence[NamedBytes], epoch: Epoch, count: int) -> list[str]:
    """How far each source was read, as Spark writes it, in the order of the sources."""
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
            expected="lines of text: a version, the batch, and one line for each source",
        ) from cause
    if version not in ("v1", "v2"):
        raise IncompatibleStateError("Spark's offset log is of an unknown version", found=version)
    return offsets if len(offsets) == count else ["\n".join(offsets)] * count


def _source_logs(directory: Path) -> Iterator[NamedBytes]:
    """The logs that sources keep of what they have seen, without what a later file sums up."""
    for log in sorted((directory / "sources").glob("*")):
        files = {path.name: path for path in log.iterdir() if path.is_file() and _is_log(path.name)}
        summed_up = _last_compacted_number(files)
        for name, path in sorted(files.items()):
            if not name.isdigit() or int(name) > summed_up:
                yield NamedBytes(f"sources/{log.name}/{name}", path.read_bytes())


def _refuse_lost_logs(directory: Path, before: Sequence[NamedBytes], logs: Sequence[NamedBytes]) -> None:
    """A source that has lost its log would read again what it has read."""
    found = {file.name for file in logs}
    for file in before:
        folder, _, name = file.name.rpartition("/")
        if not folder.startswith("sources/") or file.name in found:
            continue
        number = name.removesuffix(".compact")
        summed_up = _last_compacted_number(
            each.rpartition("/")[2] for each in found if each.startswith(f"{folder}/")
        )
        if not number.isdigit() or int(number) > summed_up:
            raise CorruptionError(
                "Spark's checkpoint directory has lost a log of a source",
                object_name=str(directory / file.name),
                action="let nothing else clear this directory away, or give another one as "
                "spark_checkpoint; restart the job",
            )


def _last_compacted_number(names: Iterable[str]) -> int:
    """The number of the last log that sums up those before it."""
    return max((int(match[1]) for name in names if (match := _COMPACTED.fullmatch(name))), default=-1)


def _is_log(name: str) -> bool:
    # Hadoop's checksums and half-written files begin with a dot.
    return not name.startswith(".") and not name.endswith(".tmp")
