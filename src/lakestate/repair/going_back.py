"""`go_back`: continue a job from an earlier epoch, by publishing that epoch's state as the next one.

Nothing is rewritten. The new epoch follows the newest one, so that fencing, commits, retention and tables
that count epochs hold as always; its manifest refers to the objects of the earlier epoch, offsets included.
A damaged newest epoch stays where it is: the new one has the number after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lakestate.coordinator.commit import Committers, OnCommits, OperatorCommitter, commit_epoch
from lakestate.coordinator.epoch_plan import encode_commit_parts
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.coordinator.publish import publish_epoch, require_published
from lakestate.coordinator.recover import (
    NewestEpochs,
    observe_newest,
    refuse_outdated_claim,
    require_same_state,
)
from lakestate.errors import (
    CorruptionError,
    NotFoundError,
    VisibleOutputError,
)
from lakestate.job.objects import JobObjects
from lakestate.job.published_epochs import open_epoch
from lakestate.protocol.metadata import (
    CommitPart,
    Manifest,
    OperatorEntry,
    SinkPreCommit,
    SubtaskEntry,
    WentBack,
)
from lakestate.protocol.publication import Published, Superseded, replay_permit
from lakestate.protocol.records import EpochRecord, GenerationRecord
from lakestate.protocol.values import Epoch
from lakestate.repair.engine_position import engine_files_at, refuse_data_source
from lakestate.repair.later_output import LaterOutput, keeps_open_files, later_output, readable_epochs
from lakestate.repair.lineage import is_continued, require_open_files_kept
from lakestate.repair.open_files import OpenFilesAgain, OpenSince, drop_commit_data
from lakestate.repair.pre_commits import committed_subtasks
from lakestate.runtime.sink_step import sink_committer
from lakestate.sinks.sink import Sink

_log = logging.getLogger("lakestate.repair")
_Written = Mapping[str, Mapping[int, tuple[SubtaskEntry, CommitPart]]]
"""Subtasks of sinks with what they keep open, by sink and index."""


@dataclass(frozen=True, slots=True)
class GoneBack:
    """A job that continues from an earlier epoch."""

    to: Epoch
    epoch: Epoch
    """The epoch that was published with the state of `to`; the job continues after it."""
    output: LaterOutput
    """What stays visible, and is written again."""
    finished_files: tuple[str, ...] = ()
    """Files that were open in the epoch `to` and have been finished since: they are not continued."""


def go_back(
    backend: ParquetBackend,
    job_id: str,
    to: Epoch | int | str,
    *,
    sinks: Mapping[str, Sink] | None = None,
    on_commit: OnCommits | None = None,
    committers: Committers | None = None,
    accept_visible_output: bool = False,
) -> GoneBack:
    """Make a job continue from an earlier epoch, given by its number or by the name of a tag.

    Output that became visible after it stays visible, and its rows are written again. If there is any,
    VisibleOutputError says which, unless you pass `accept_visible_output`. A running driver is fenced, and
    only then. The `sinks` of the job are needed, by id, and `on_commit` of operators that have one.

    Going back to the same epoch again does nothing, so that it can be repeated after a failure: to go back
    once more, name the epoch that it was published as.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-back", cache_bytes=0)
    >>> task = ls.TaskInfo(job_id="job", operator_id="op")
    >>> tables = ls.TableManager.load(task, [ls.GlobalKeyedTable("t", key=str, value=int)], backend, None)
    >>> for epoch in (1, 2):
    ...     tables.global_keyed("t").insert("total", epoch)
    ...     done = tables.checkpoint(epoch=epoch, min_epoch=1, watermark=None, then_stop=False)
    ...     record = backend.write_checkpoint_metadata("job", epoch, [done])
    >>> go_back(backend, "job", 1, accept_visible_output=True).epoch
    Epoch(3)
    >>> ls.read_state("memory://docs-back", "job", "op", "t").to_pylist()
    [{'key': 'total', 'value': 1}]
    """
    if committers is None:
        committers = _committers_of(sinks or {}, on_commit or {})
    job = backend.objects(job_id)
    work = _GoingBack(backend, job, resolve_epoch(job, to), dict(sinks or {}), committers)
    # Before the job is claimed: a refusal must not stop the driver that is running.
    if (done := work.done_already(observe_newest(job))) is not None:
        return done
    work.check(observe_newest(job), accept_visible_output=accept_visible_output)
    return work.run(backend.claim(job_id), accept_visible_output=accept_visible_output)


def preview_going_back(
    backend: ParquetBackend,
    job_id: str,
    to: Epoch | int | str,
    *,
    sinks: Mapping[str, Sink] | None = None,
    on_commit: OnCommits | None = None,
    committers: Committers | None = None,
) -> LaterOutput:
    """What would stay visible, and be written again, if the job went back to an epoch.

    Refused for the reasons for which `go_back` refuses, but not because of what is visible. Nothing is
    claimed or changed.
    """
    if committers is None:
        committers = _committers_of(sinks or {}, on_commit or {})
    job = backend.objects(job_id)
    work = _GoingBack(backend, job, resolve_epoch(job, to), dict(sinks or {}), committers)
    newest = observe_newest(job)
    if (done := work.done_already(newest)) is not None:
        return done.output
    return work.check(newest, accept_visible_output=True)[1]


def _committers_of(sinks: Mapping[str, Sink], on_commit: OnCommits) -> Committers:
    return {sink_id: sink_committer(sink) for sink_id, sink in sinks.items()} | {
        name: OperatorCommitter(each) for name, each in on_commit.items()
    }


def resolve_epoch(job: JobObjects, to: Epoch | int | str) -> Epoch:
    """The epoch of a number, or of a tag."""
    if not isinstance(to, str):
        return Epoch(to)
    tag = job.read_tag(job.paths.tag(to))
    if tag is None:
        raise NotFoundError(
            "no such tag",
            object_name=job.url_of(job.paths.tag(to)),
            found=", ".join(sorted(each.name for each in job.read_tags())) or "no tag",
            action="name one of those, or an epoch by its number",
        )
    return tag.epoch


def open_epoch_to_continue(job: JobObjects, to: Epoch | int | str) -> Manifest:
    """The epoch that a job would continue from: the named one, or the newest if it went back there before."""
    epoch = resolve_epoch(job, to)
    gone = _newest_after_going_back(observe_newest(job), epoch)
    return open_epoch(job, epoch)[1] if gone is None else gone


def _newest_after_going_back(newest: NewestEpochs, to: Epoch) -> Manifest | None:
    """The newest epoch, if it is intact and the job has gone back to the named epoch before."""
    intact = newest.intact
    if intact is None or newest.last != intact.epoch or intact.went_back is None:
        return None
    return intact if intact.went_back.to == to else None


class _GoingBack:
    """One job on its way back."""

    def __init__(
        self,
        backend: ParquetBackend,
        job: JobObjects,
        to: Epoch,
        sinks: Mapping[str, Sink],
        committers: Committers,
    ) -> None:
        self._backend = backend
        self._job = job
        self._to = to
        self._sinks = sinks
        self._committers = committers

    def done_already(self, newest: NewestEpochs) -> GoneBack | None:
        """What an earlier call did, or that there is nothing to do; None if the way is still to go."""
        if newest.intact is not None and newest.intact.epoch == newest.last == self._to:
            return GoneBack(self._to, self._to, LaterOutput(self._job.job_id, self._to, self._to))
        intact = _newest_after_going_back(newest, self._to)
        if intact is None or intact.went_back is None:
            return None
        epoch = intact.went_back.epoch
        _log.warning(
            "job %s has gone back to epoch %s already, as epoch %s, and continues after epoch %s; to go back "
            "once more, name epoch %s",
            *(self._job.job_id, self._to, epoch, intact.epoch, epoch),
        )
        return GoneBack(self._to, epoch, LaterOutput(self._job.job_id, self._to, intact.epoch))

    def check(self, newest: NewestEpochs, *, accept_visible_output: bool) -> tuple[Manifest, LaterOutput]:
        """The epoch, and what became visible after it, if the job can go back to it and that is accepted."""
        source = open_epoch(self._job, self._to)[1]
        refuse_data_source(source, "go back")
        later = readable_epochs(self._job, after=self._to)
        if newest.intact is not None and not is_continued(self._to, newest.intact, self._read):
            file_sinks = [name for name, sink in self._sinks.items() if keeps_open_files(sink)]
            require_open_files_kept(source, later, file_sinks)
        output = later_output(source, later, newest, self._sinks, self._committers)
        if not accept_visible_output:
            _require_nothing_visible(output)
        return source, output

    def run(self, claim: GenerationRecord, *, accept_visible_output: bool) -> GoneBack:
        """Go back under a claim. A driver that was fenced may publish one last epoch: then look again."""
        while True:
            newest = observe_newest(self._job)
            if (done := self.done_already(newest)) is not None:
                return done
            refuse_outdated_claim(self._job, claim, newest)
            not_committed = self._commit_newest(newest, claim)
            source, output = self.check(newest, accept_visible_output=accept_visible_output)
            output = replace(output, not_committed=not_committed)
            if not accept_visible_output:
                _require_nothing_visible(output)
            require_same_state(self._job, claim, source)
            manifest, finished = self._manifest(source, newest, claim)
            outcome = publish_epoch(self._job, claim, manifest, self._backend.ambient)
            if isinstance(outcome, Superseded):
                continue
            permit = require_published(outcome, self._job, manifest.epoch)
            assert isinstance(outcome, Published)
            _log.warning("job %s goes back to epoch %s: %s", self._job.job_id, self._to, output)
            commit_epoch(self._job, claim, permit, manifest, self._committers)
            return GoneBack(self._to, manifest.epoch, output, tuple(finished))

    def _commit_newest(self, newest: NewestEpochs, claim: GenerationRecord) -> str | None:
        """Complete an interrupted commit, as every start does, so that each epoch is committed or known.

        If it never can be, because what it needs is gone, the reason is part of what a person accepts.
        """
        first = newest.observed[0]
        if newest.intact is None or first.damage is not None or first.committed:
            return None
        assert isinstance(first.record, EpochRecord)
        try:
            commit_epoch(self._job, claim, replay_permit(first.record), newest.intact, self._committers)
        except (CorruptionError, NotFoundError) as lost:
            return str(lost)
        return None

    def _read(self, epoch: Epoch) -> Manifest | None:
        try:
            return open_epoch(self._job, epoch)[1]
        except (CorruptionError, NotFoundError):
            return None

    def _manifest(
        self, source: Manifest, newest: NewestEpochs, claim: GenerationRecord
    ) -> tuple[Manifest, list[str]]:
        """The manifest that continues from an earlier one, and the files that it no longer keeps open."""
        assert newest.last is not None
        epoch = self._next_free_epoch(newest.last)
        now_ms = self._backend.ambient.now_ms()
        written, finished = self._rewrite_sinks(source, newest, claim, epoch)
        operators = tuple(
            self._operator(entry, written.get(entry.operator_id, {}), source, claim, epoch)
            for entry in source.operators
        )
        manifest = replace(
            source,
            epoch=epoch,
            generation=claim.generation,
            parent=source.epoch if newest.intact is None else newest.intact.epoch,
            started_ms=now_ms,
            finished_ms=max(now_ms, source.finished_ms),
            operators=operators,
            sinks=tuple(_pre_commits(written)),
            engine_files=engine_files_at(source, epoch),
            went_back=WentBack(self._to, epoch),
            # Whether the job writes its output is not part of the state that it goes back to.
            forked_from=source.forked_from if newest.intact is None else newest.intact.forked_from,
        )
        return manifest, finished

    def _next_free_epoch(self, last: Epoch) -> Epoch:
        epoch = last.next()
        while self._job.is_marked_committed(epoch):
            epoch = epoch.next()
        return epoch

    def _rewrite_sinks(
        self, source: Manifest, newest: NewestEpochs, claim: GenerationRecord, epoch: Epoch
    ) -> tuple[_Written, list[str]]:
        written: dict[str, dict[int, tuple[SubtaskEntry, CommitPart]]] = {}
        finished: list[str] = []
        intact = source if newest.intact is None else newest.intact
        later = readable_epochs(self._job, after=self._to)
        not_committed = [each for each in later if not self._job.is_marked_committed(each.epoch)]
        for sink_id, sink in self._sinks.items():
            if source.is_muted or source.operator(sink_id) is None or not keeps_open_files(sink):
                continue
            is_damaged_later = newest.last != intact.epoch
            still_open = OpenSince.of(sink, sink_id, intact, not_committed, is_damaged_later=is_damaged_later)
            again = OpenFilesAgain(sink, sink_id, self._backend, claim, source, epoch, still_open)
            written[sink_id], closed = again.write()
            finished += closed
        return written, finished

    def _operator(
        self,
        entry: OperatorEntry,
        written: Mapping[int, tuple[SubtaskEntry, CommitPart]],
        source: Manifest,
        claim: GenerationRecord,
        epoch: Epoch,
    ) -> OperatorEntry:
        """An operator as it was, without what it left to commit: that was committed with its own epoch."""
        committed = committed_subtasks(entry, source)
        subtasks = []
        for each in entry.subtasks:
            if each.subtask_index in written:
                each = written[each.subtask_index][0]
            elif each.subtask_index in committed:
                each = drop_commit_data(each, self._backend, claim, epoch)
            subtasks.append(each)
        return replace(entry, subtasks=tuple(subtasks))


def _pre_commits(written: _Written) -> Iterator[SinkPreCommit]:
    for sink_id, subtasks in written.items():
        yield SinkPreCommit(sink_id, encode_commit_parts([subtasks[index][1] for index in sorted(subtasks)]))


def _require_nothing_visible(output: LaterOutput) -> None:
    if output.is_empty:
        return
    refused = VisibleOutputError(
        f"output of epochs after {output.epoch} is visible, and would be written again",
        object_name=f"job {output.job_id}",
        found=str(output),
        action="remove it if readers must not see it twice, then accept what is left with "
        "accept_visible_output=True; nothing was changed",
    )
    refused.output = output
    raise refused
