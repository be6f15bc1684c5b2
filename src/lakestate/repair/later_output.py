"""`LaterOutput`: what a job has made visible after an epoch, as far as its manifests say.

All of it stays visible when the job goes back to the epoch, and its rows are written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.coordinator.recover import NewestEpochs
from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.observability.file_events import FileEvent
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.open_files import OPEN_FILES
from lakestate.sinks.sink import Sink


@dataclass(frozen=True, slots=True)
class OtherCommit:
    """A commit of something else than files: by `on_commit` of an operator, or by another kind of sink."""

    name: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class LaterOutput:
    """What became visible after an epoch."""

    job_id: str
    epoch: Epoch
    """The epoch to go back to."""
    newest: Epoch
    """The newest epoch that there is a trace of."""
    files: tuple[FileEvent, ...] = ()
    """Output files, as they were committed. Those that were opened earlier also hold earlier rows."""
    commits: tuple[OtherCommit, ...] = ()
    unknown: tuple[tuple[Epoch, Epoch], ...] = ()
    """First and last of epochs whose output is not known: their manifests are gone or damaged."""
    not_committed: str | None = None
    """Why the output of the newest epoch cannot be committed; part of it may be visible."""

    @property
    def is_empty(self) -> bool:
        """True if nothing can have become visible."""
        return not (self.files or self.commits or self.unknown or self.not_committed)

    def __str__(self) -> str:
        return "; ".join(self._statements()) or "no output is visible"

    def _statements(self) -> Iterator[str]:
        by_sink = sorted(self.files, key=lambda file: file.sink_id)
        for sink_id, group in groupby(by_sink, key=lambda file: file.sink_id):
            found = list(group)
            epochs = _span(min(file.epoch for file in found), max(file.epoch for file in found))
            rows, size = sum(file.rows for file in found), sum(file.size_bytes for file in found)
            shown = ", ".join(file.path for file in found[:3]) + (", …" if len(found) > 3 else "")
            files = "1 file" if len(found) == 1 else f"{len(found)} files"
            yield f"sink {sink_id}: {files}, {rows:,} rows, {size:,} bytes of {epochs} ({shown})"
        for name in sorted({commit.name for commit in self.commits}):
            epochs = ", ".join(str(commit.epoch) for commit in self.commits if commit.name == name)
            yield f"{name}: commits of epochs {epochs}"
        for first, last in self.unknown:
            yield f"not known of {_span(first, last)}"
        if self.not_committed:
            yield f"epoch {self.newest} cannot be committed, and may be visible in part: {self.not_committed}"


def later_output(
    source: Manifest,
    later: Sequence[Manifest],
    newest: NewestEpochs,
    sinks: Mapping[str, Sink],
    operators: Iterable[str] = (),
) -> LaterOutput:
    """What the epochs after `source` made visible. `operators` are those that have `on_commit`."""
    assert newest.last is not None, "an epoch that can be gone back to is published"
    job_id, epoch = source.job_id, source.epoch
    known = {manifest.epoch: manifest for manifest in later}
    files: list[FileEvent] = []
    commits: list[OtherCommit] = []
    for number, manifest in sorted(known.items()):
        if manifest.is_muted:
            continue
        _check_known(manifest, {*sinks, *operators})
        for pre_commit in manifest.sinks:
            sink = sinks.get(pre_commit.sink_id)
            if sink is None or not keeps_open_files(sink):
                commits.append(OtherCommit(pre_commit.sink_id, number))
            else:
                parts = decode_pre_commits(pre_commit.data, f"manifest of epoch {number}")
                files += sink.committed_files(job_id, pre_commit.sink_id, number, parts)
    missing = [Epoch(each) for each in range(epoch + 1, newest.last + 1) if each not in known]
    return LaterOutput(job_id, epoch, newest.last, tuple(files), tuple(commits), tuple(_spans(missing)))


def keeps_open_files(sink: Sink) -> bool:
    """Whether a sink writes files that stay open across epochs, as all ready sinks do."""
    return any(table.name == OPEN_FILES for table in sink.tables())


def readable_epochs(job: JobObjects, *, after: Epoch) -> list[Manifest]:
    """The later epochs whose manifests can be read, in order."""
    found: list[Manifest] = []
    for epoch in job.list_epochs():
        if epoch > after:
            with suppress(CorruptionError):
                record = job.read_epoch(epoch)
                if record is not None:
                    found.append(job.read_manifest(record))
    return found


def _check_known(manifest: Manifest, known: set[str]) -> None:
    unknown = sorted({each.sink_id for each in manifest.sinks} - known)
    if unknown:
        raise InvalidInputError(
            f"epoch {manifest.epoch} has output of sinks or operators that are not given",
            object_name=f"job {manifest.job_id}",
            found=", ".join(unknown),
            expected=", ".join(sorted(known)) or "none",
            action="start the pipeline with them, or pass them as sinks={id: sink} and on_commit={id: call}",
        )


def _spans(epochs: Sequence[Epoch]) -> Iterator[tuple[Epoch, Epoch]]:
    """Epochs in order as first and last of those without a gap."""
    for _, group in groupby(enumerate(epochs), key=lambda item: item[1] - item[0]):
        found = [epoch for _, epoch in group]
        yield found[0], found[-1]


def _span(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"
