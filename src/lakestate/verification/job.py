"""`verify`: read everything that a job's retained epochs need, and report what is wrong with it.

Nothing is written, not even to the run cache. The job may be running: what retention deletes
meanwhile is not damage, so the boundary is read again before anything is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor

from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.errors import InvalidInputError, LakestateError, NotFoundError
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.metadata import Manifest, TableConfig
from lakestate.protocol.paths import BOUNDARY, ObjectKind, parse_object_name
from lakestate.protocol.values import Epoch, FileRef, TaskInfo
from lakestate.sinks.sink import Sink
from lakestate.storage.parallel import InlineExecutor, is_sequential
from lakestate.tables.context import TableContext
from lakestate.tables.registry import table_of
from lakestate.verification.audit import STATE_ERRORS, Audit, flaw_of
from lakestate.verification.checkpoint_tree import CheckpointTree, ReferencedFile
from lakestate.verification.records import Records, check_records, read_records
from lakestate.verification.report import (
    DanglingOutput,
    DanglingStatus,
    EpochVerdict,
    Finding,
    Orphan,
    OrphanDeletion,
    Problem,
    VerificationReport,
)
from lakestate.verification.sink_output import SinkOutput

THREADS_DEFAULT = 8
_SINK_ATTEMPTS = 3
"""A running job may publish while its unfinished output is checked; then the output is checked again."""


def verify(
    backend: StateBackend,
    job_id: str,
    *,
    sinks: Mapping[str, Sink] | None = None,
    threads: int = THREADS_DEFAULT,
) -> VerificationReport:
    """Verify a whole job: existence, size, checksum, content and cross-references of everything.

    With the job's `sinks`, by id, their unfinished output is verified as well. Up to `threads` files
    are read at a time, large ones by row group. Raises NotFoundError if there is no such job, and
    StorageUnavailableError if the store does not answer.

    >>> import lakestate as ls
    >>> backend = ls.ParquetBackend("memory://docs-verify")
    >>> task = ls.TaskInfo(job_id="job", operator_id="op")
    >>> tables = ls.TableManager.load(task, [ls.GlobalKeyedTable("t", key=str, value=int)], backend, None)
    >>> tables.global_keyed("t").insert("total", 42)
    >>> done = tables.checkpoint(epoch=1, min_epoch=1, watermark=None, then_stop=False)
    >>> record = backend.write_checkpoint_metadata("job", 1, [done])
    >>> report = ls.verify(backend, "job")
    >>> report.is_clean, report.restorable
    (True, (Epoch(1),))
    """
    if threads < 1:
        raise InvalidInputError("verification needs at least one thread", found=threads)
    with _threads(threads) as pool:
        return _Verification(backend.without_cache(), job_id, dict(sinks or {}), pool).report()


def _threads(count: int) -> Executor:
    if is_sequential():
        return InlineExecutor()
    return ThreadPoolExecutor(count, thread_name_prefix="lakestate-verify")


class _Verification:
    """One verification of one job."""

    def __init__(self, backend: StateBackend, job_id: str, sinks: dict[str, Sink], pool: Executor) -> None:
        self._backend = backend
        self._objects = backend.objects(job_id)
        self._sinks = sinks
        self._pool = pool
        self._audit = Audit(self._objects)
        self._tree = CheckpointTree(self._audit, pool)
        self._manifests: dict[Epoch, Manifest] = {}

    def report(self) -> VerificationReport:
        # Listed first, so that an object that is written and referred to later does not count as an orphan.
        listed = self._list_objects()
        if not listed:
            raise NotFoundError("no such job", object_name=self._objects.url_of(""))
        records = read_records(self._audit, listed)
        for epoch, record in records.epochs.items():
            manifest = self._tree.read_epoch(record)
            if manifest is not None:
                self._manifests[epoch] = manifest
        list(self._pool.map(self._check_file, self._tree.files.values()))
        check_records(self._audit, records, self._manifests, listed)
        output, dangling = self._check_output(records)
        self._ignore_deleted_tags()
        retained = self._retained_now(records)
        kept = frozenset(retained)
        self._audit.drop_flaws_of_collected(kept)
        findings = tuple(self._audit.findings(kept))
        return VerificationReport(
            url=f"{self._objects.store.url}/{self._objects.job_id}",
            findings=(*findings, *output),
            orphans=tuple(self._orphans(listed, records)),
            dangling=tuple(dangling),
            epochs=tuple(_verdict(epoch, findings, records) for epoch in retained),
            checked=dict(self._audit.checked),
            bytes_read=self._audit.bytes_read,
        )

    def _list_objects(self) -> dict[str, int]:
        prefix = self._objects.store_path("")
        return {info.path.removeprefix(prefix): info.size_bytes for info in self._objects.store.list(prefix)}

    def _check_file(self, named: ReferencedFile) -> None:
        audit, file = self._audit, named.file
        task = TaskInfo(self._objects.job_id, named.operator_id)
        context = TableContext(task, self._objects, None, self._backend.ambient, None, 0)
        try:
            check_data_file(file, named.config, context)
            audit.count_read(file.path, file.size_bytes)
        except STATE_ERRORS as error:
            # The bytes show whether it is the size, the checksum or the content.
            if audit.read_verified(file.object_ref) is not None:
                audit.add_flaw(file.path, flaw_of(error))

    def _check_output(self, records: Records) -> tuple[list[Finding], list[DanglingOutput]]:
        findings: list[Finding] = []
        dangling: list[DanglingOutput] = []
        try:
            dangling += self._dangling_state_uploads()
        except STATE_ERRORS as error:
            findings.append(_unreadable(error, self._objects.store.url))
        for sink_id, sink in sorted(self._sinks.items()):
            found, unused = self._check_sink(sink_id, sink, records)
            findings += found
            dangling += unused
        return findings, dangling

    def _check_sink(
        self, sink_id: str, sink: Sink, records: Records
    ) -> tuple[list[Finding], list[DanglingOutput]]:
        """Check a sink's output until nothing was published meanwhile, or nothing is wrong."""
        found: tuple[list[Finding], list[DanglingOutput]] = [], []
        newest = records.newest
        for _ in range(_SINK_ATTEMPTS):
            if newest is None:
                return found
            found = self._sink_output(sink_id, sink, newest)
            epochs = self._objects.list_epochs()
            if not found[0] or not epochs or epochs[-1] == newest:
                return found
            newest = epochs[-1]
        # The job publishes faster than this check runs, so it has what it needs.
        return [], found[1]

    def _sink_output(
        self, sink_id: str, sink: Sink, epoch: Epoch
    ) -> tuple[list[Finding], list[DanglingOutput]]:
        files = sink.file_sink()
        if files is None:
            return [], []
        try:
            record = self._objects.read_epoch(epoch)
            if record is None:
                return [], []
            manifest = self._objects.read_manifest(record)
            self._check_is_sink(manifest, sink_id)
            pre_commits = [
                data
                for pre_commit in manifest.sinks
                if pre_commit.sink_id == sink_id
                for data in decode_pre_commits(pre_commit.data, record.manifest.path)
            ]
            is_committed = self._objects.is_marked_committed(epoch)
            task = TaskInfo(self._objects.job_id, sink_id, state_id=manifest.state_id)
            output = SinkOutput.load(
                task, files, self._backend, epoch, pre_commits, is_committed=is_committed
            )
        except STATE_ERRORS as error:
            if isinstance(error, _NoSuchSinkError):
                raise
            # A damaged object of the job is reported already.
            return ([_unreadable(error, files.url)] if self._audit.is_clean else []), []
        try:
            findings = list(output.findings())
            return findings, list(output.dangling_output())
        except STATE_ERRORS as error:
            return [_unreadable(error, files.url)], []

    def _check_is_sink(self, manifest: Manifest, sink_id: str) -> None:
        if manifest.operator(sink_id) is None:
            raise _NoSuchSinkError(
                f"epoch {manifest.epoch} of job {manifest.job_id} has no such sink",
                object_name=sink_id,
                found=", ".join(known.operator_id for known in manifest.operators) or "no operator",
                action="pass the sinks by the ids they have in the job",
            )

    def _dangling_state_uploads(self) -> Iterable[DanglingOutput]:
        store = self._objects.store
        for found in store.uploads.list_dangling(self._objects.store_path("")):
            name, status = f"{store.url}/{found.upload.path}", DanglingStatus.NOT_USED
            yield DanglingOutput(name, found.upload.token, status, started_ms=found.started_ms)

    def _ignore_deleted_tags(self) -> None:
        """Ignore flaws of tags that are gone: they were withdrawn, because their epoch was too old."""
        for path in self._audit.flawed_paths(ObjectKind.TAG):
            try:
                self._objects.store.head(self._objects.store_path(path))
            except NotFoundError:
                self._audit.clear_flaws(path)

    def _retained_now(self, records: Records) -> tuple[Epoch, ...]:
        """The epochs that are retained now. Retention may have run since the verification began."""
        epochs = {*records.retained, *self._epochs_without_record(records)}
        if records.is_everything_retained:
            return tuple(sorted(epochs))
        boundary = self._objects.read_boundary()
        if boundary is None or boundary.record == records.boundary:
            return tuple(sorted(epochs))
        self._audit.clear_flaws(BOUNDARY)
        tagged = {tag.epoch for tag in self._objects.read_tags()}
        return tuple(sorted(each for each in epochs if each >= boundary.record.oldest or each in tagged))

    def _epochs_without_record(self, records: Records) -> list[Epoch]:
        """Epochs that should have a record and have none."""
        names = map(parse_object_name, self._audit.flawed_paths(ObjectKind.EPOCH_RECORD))
        return [name.epoch for name in names if name.epoch and name.epoch not in records.published]

    def _orphans(self, listed: Mapping[str, int], records: Records) -> Iterable[Orphan]:
        needed, unknown = self._audit.referenced_paths(), self._audit.may_hide_references()
        for path, size_bytes in sorted(listed.items()):
            name = parse_object_name(path)
            if path in needed or name.kind in _NEVER_ORPHANS:
                continue
            if name.kind is ObjectKind.COMMITTED and name.epoch in records.epochs:
                continue
            if name.kind is ObjectKind.FOREIGN:
                deletion = OrphanDeletion.NEVER
            elif unknown:
                deletion = OrphanDeletion.UNKNOWN
            else:
                is_past = records.boundary is not None and name.epoch and name.epoch < records.oldest
                deletion = OrphanDeletion.NEXT_RETENTION if is_past else OrphanDeletion.LATER
            yield Orphan(self._objects.url_of(path), name.kind.value, size_bytes, deletion, name.epoch)


def check_data_file(file: FileRef, config: TableConfig, context: TableContext) -> None:
    """Raise if a data file does not match its reference and its table. The run cache is not used."""
    table_of(config).check_file(file, context)


class _NoSuchSinkError(InvalidInputError):
    """The caller names a sink that the job does not have."""


def _unreadable(error: LakestateError, otherwise: str) -> Finding:
    name = error.object_name or otherwise
    return Finding(name, "unfinished output", Problem.UNREADABLE, error.summary, error.expected or "")


_NEVER_ORPHANS = frozenset((ObjectKind.FENCE, ObjectKind.BOUNDARY, ObjectKind.TAG, ObjectKind.SET_ASIDE))


def _verdict(epoch: Epoch, findings: Iterable[Finding], records: Records) -> EpochVerdict:
    reasons = tuple(
        f"{finding.kind} {finding.problem.value}: {finding.object_name}"
        for finding in findings
        if epoch in finding.epochs
    )
    return EpochVerdict(epoch, reasons, records.tags_of(epoch), epoch in records.committed)
