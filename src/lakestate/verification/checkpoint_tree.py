"""The tree below the retained epochs: epoch record → manifest → subtask metadata → data files.

Each object is read once, no matter how many epochs refer to it. All references to a data file are
compared with each other; `data_files` checks the files themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

import xxhash

from lakestate.codec import decode_manifest
from lakestate.codec.engine_files import engine_file_damage
from lakestate.coordinator.engine.logs import join_pieces
from lakestate.coordinator.epoch_plan import decode_commit_parts
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange, key_range_of
from lakestate.protocol.metadata import (
    EngineLog,
    Manifest,
    NamedBytes,
    OperatorEntry,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    TableConfig,
    TableFiles,
)
from lakestate.protocol.paths import ObjectKind, parse_object_name
from lakestate.protocol.records import EpochRecord
from lakestate.protocol.values import Epoch, FileRef, Generation
from lakestate.verification.audit import Audit, Flaw
from lakestate.verification.report import Problem


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A data file as metadata names it, and the table it belongs to."""

    file: FileRef
    config: TableConfig
    operator_id: str


@dataclass(frozen=True, slots=True)
class _MetadataFacts:
    """What is kept of a metadata object after reading it."""

    operator_id: str
    subtask_index: int
    parallelism: int
    key_range: KeyRange
    epoch: Epoch
    generation: Generation
    size_bytes: int
    checksum: int
    summary: StateSummary
    commit_data: frozenset[tuple[str, int]]
    """Each table with commit data, and the hash of that data, which can be large."""


_Commits = Mapping[str, Mapping[int, frozenset[tuple[str, int]]]]
"""The tables with commit data and its hash, by operator or sink and by subtask."""


class CheckpointTree:
    """Everything that the retained epochs refer to."""

    def __init__(self, audit: Audit, threads: Executor) -> None:
        self._audit = audit
        self._threads = threads
        self._metadata: dict[str, _MetadataFacts | None] = {}
        self._pieces: dict[str, bytes | None] = {}
        """Pieces of the engine's logs that were read; None if one is damaged."""
        self._lock = threading.Lock()
        self.files: dict[str, ReferencedFile] = {}

    def read_epoch(self, record: EpochRecord) -> Manifest | None:
        """Read everything below an epoch's record except the data files."""
        audit, path = self._audit, record.manifest.path
        audit.add_epoch_dependency(audit.objects.paths.epoch_record(record.epoch), record.epoch)
        audit.add_epoch_dependency(path, record.epoch)
        data = audit.read_verified(record.manifest)
        if data is None:
            return None
        job, url = audit.objects.job_id, audit.objects.url_of(path)
        manifest = audit.try_read(path, lambda: decode_manifest(data, url, job))
        if manifest is None:
            return None
        for flaw in _manifest_flaws(manifest, record):
            audit.add_flaw(path, flaw)
        commits = audit.try_read(path, partial(_stated_commits, manifest, url))
        self._check_engine_files(path, manifest)
        entries = [(operator, entry) for operator in manifest.operators for entry in operator.subtasks]
        for _ in self._threads.map(lambda item: self._read_entry(path, manifest, commits, *item), entries):
            pass
        return manifest

    def _check_engine_files(self, path: str, manifest: Manifest) -> None:
        """Check what the engine would be given to continue. A log whose pieces are damaged is not checked."""
        logs = [self._read_log(log, manifest.epoch) for log in manifest.engine_logs]
        whole = [log for log in logs if log is not None]
        if len(whole) < len(logs):
            return
        damage = engine_file_damage([*manifest.engine_files, *whole], manifest.epoch)
        if damage is not None:
            found = f"{damage.object_name}: {damage.found}"
            self._audit.add_flaw(path, _contradiction(found, damage.expected or ""))

    def _read_log(self, log: EngineLog, epoch: Epoch) -> NamedBytes | None:
        pieces = []
        for piece in log.pieces:
            self._audit.add_epoch_dependency(piece.path, epoch)
            if piece.path not in self._pieces:
                self._pieces[piece.path] = self._audit.read_verified(piece)
            pieces.append(self._pieces[piece.path])
        found = [data for data in pieces if data is not None]
        return NamedBytes(log.name, join_pieces(found)) if len(found) == len(pieces) else None

    def _read_entry(
        self,
        manifest_path: str,
        manifest: Manifest,
        commits: _Commits | None,
        operator: OperatorEntry,
        entry: SubtaskEntry,
    ) -> None:
        path, audit = entry.metadata.path, self._audit
        audit.add_epoch_dependency(path, manifest.epoch)
        with self._lock:
            is_known = path in self._metadata
        if not is_known:
            # Epochs are read one after another and name each object once: no other thread reads this one.
            known = self._read_metadata(entry)
            with self._lock:
                self._metadata[path] = known
        known = self._metadata[path]
        if known is not None:
            for flaw in _entry_flaws(known, manifest, operator, entry):
                audit.add_flaw(manifest_path, flaw)
            for flaw in _commit_flaws(known, commits, operator.operator_id, entry):
                audit.add_flaw(manifest_path, flaw)

    def _read_metadata(self, entry: SubtaskEntry) -> _MetadataFacts | None:
        audit, ref = self._audit, entry.metadata
        data = audit.read_verified(ref)
        if data is None:
            return None
        metadata = audit.try_read(ref.path, lambda: audit.objects.decode_subtask(entry, data))
        if metadata is None:
            return None
        for flaw in audit.try_read(ref.path, lambda: list(_metadata_flaws(metadata))) or ():
            audit.add_flaw(ref.path, flaw)
        for table in metadata.tables:
            config = metadata.config(table.table)
            if config is None:
                continue
            for file in table.files:
                self._add_file(ref.path, ReferencedFile(_whole(file), config, metadata.operator_id))
        files = [file for table in metadata.tables for file in table.files]
        return _MetadataFacts(
            metadata.operator_id,
            metadata.subtask_index,
            metadata.parallelism,
            metadata.key_range,
            metadata.epoch,
            metadata.generation,
            ref.size_bytes,
            ref.checksum,
            StateSummary(
                len(files), sum(file.row_count for file in files), sum(file.size_bytes for file in files)
            ),
            frozenset(
                (table.table, xxhash.xxh3_64_intdigest(table.commit_data))
                for table in metadata.tables
                if table.commit_data is not None
            ),
        )

    def _add_file(self, user: str, named: ReferencedFile) -> None:
        path = named.file.path
        self._audit.add_object_dependency(path, user)
        with self._lock:
            known = self.files.setdefault(path, named)
            if named.config.state_version == named.file.state_version:
                # The declaration that the file was written under describes it best.
                self.files[path] = replace(known, config=named.config)
        if known.file != named.file:
            found = f"{path} as {_description(named.file)}"
            self._audit.add_flaw(user, Flaw(Problem.CONTRADICTION, found, _description(known.file)))


def _whole(file: FileRef) -> FileRef:
    """A reference without the fields that differ from holder to holder."""
    return replace(file, valid_keys=ALL_KEYS, valid_from_us=None, unknown_fields=b"")


def _description(file: FileRef) -> str:
    return f"{file.size_bytes} bytes, xxh3 {file.checksum:016x}, {file.row_count} rows of epoch {file.epoch}"


def _manifest_flaws(manifest: Manifest, record: EpochRecord) -> Iterator[Flaw]:
    found = f"epoch {manifest.epoch} of generation {manifest.generation}"
    expected = f"epoch {record.epoch} of generation {record.generation}"
    if found != expected:
        yield Flaw(Problem.MISPLACED, found, expected)
    if manifest.parent is not None and manifest.parent >= manifest.epoch:
        yield _contradiction(f"parent {manifest.parent}", f"an epoch before {manifest.epoch}")
    names = [operator.operator_id for operator in manifest.operators]
    if len(set(names)) != len(names):
        yield _contradiction(f"operators {sorted(names)}", "each operator once")
    for operator in manifest.operators:
        indices = [entry.subtask_index for entry in operator.subtasks]
        if indices != list(range(operator.parallelism)):
            expected = f"each of {operator.parallelism} subtasks once"
            yield _contradiction(f"subtasks {indices} of {operator.operator_id}", expected)


def _entry_flaws(
    known: _MetadataFacts, manifest: Manifest, operator: OperatorEntry, entry: SubtaskEntry
) -> Iterator[Flaw]:
    """Where a manifest and a metadata object that it names disagree."""
    stated = (operator.operator_id, entry.subtask_index, operator.parallelism, entry.key_range)
    found = (known.operator_id, known.subtask_index, known.parallelism, known.key_range)
    if stated != found:
        yield _contradiction(f"{entry.metadata.path} as that of {stated}", str(found))
    if known.epoch > manifest.epoch or known.generation > manifest.generation:
        found_in = f"{entry.metadata.path} of epoch {known.epoch}, generation {known.generation}"
        yield _contradiction(found_in, f"at most epoch {manifest.epoch}, generation {manifest.generation}")
    if (known.size_bytes, known.checksum) != (entry.metadata.size_bytes, entry.metadata.checksum):
        yield _contradiction(f"another size or checksum of {entry.metadata.path}", "that of earlier epochs")
    summary = replace(entry.summary, bytes_written=0)
    if summary != known.summary:
        yield _contradiction(f"{entry.metadata.path} summed up as {summary}", str(known.summary))


def _stated_commits(manifest: Manifest, url: str) -> _Commits:
    """What a manifest says is to be committed. Sinks of development versions did not say by which subtask."""
    found: dict[str, dict[int, frozenset[tuple[str, int]]]] = {}
    for sink in manifest.sinks:
        by_subtask = found.setdefault(sink.sink_id, {})
        for part in decode_commit_parts(sink.data, url):
            stated = (part.table, xxhash.xxh3_64_intdigest(part.data))
            by_subtask[part.subtask_index] = by_subtask.get(part.subtask_index, frozenset()) | {stated}
    return {
        name: by_subtask
        for name, by_subtask in found.items()
        if not any(table == "" for stated in by_subtask.values() for table, _ in stated)
    }


def _commit_flaws(
    known: _MetadataFacts, commits: _Commits | None, operator_id: str, entry: SubtaskEntry
) -> Iterator[Flaw]:
    """Where the commit data of a subtask is not what the manifest will commit for it."""
    if commits is None:
        return
    stated = commits.get(operator_id, {}).get(entry.subtask_index, frozenset())
    if stated != known.commit_data:
        tables = ", ".join(sorted({table for table, _ in stated ^ known.commit_data}))
        yield _contradiction(
            f"other commit data of {operator_id}, subtask {entry.subtask_index}, tables {tables}",
            f"that of {entry.metadata.path}",
        )


def _metadata_flaws(metadata: SubtaskMetadata) -> Iterator[Flaw]:
    if metadata.key_range != key_range_of(metadata.subtask_index, metadata.parallelism):
        yield _contradiction(f"{metadata.key_range}", f"that of subtask {metadata.subtask_index}")
    for table in metadata.tables:
        config = metadata.config(table.table)
        if config is None or config.table_type != table.table_type:
            yield _contradiction(f"files of table {table.table}", "a declared table of this type")
            continue
        for file in table.files:
            yield from _file_flaws(file, table, config, metadata)


def _file_flaws(
    file: FileRef, table: TableFiles, config: TableConfig, metadata: SubtaskMetadata
) -> Iterator[Flaw]:
    name = parse_object_name(file.path)
    folder = f"/operator-{metadata.operator_id}/{table.table}-"
    if name.kind is not ObjectKind.DATA or folder not in file.path:
        yield _contradiction(f"the file {file.path}", f"one of …{folder}…")
    # A merged file is named after the epoch that swapped it in; its rows may be of an earlier one.
    elif not file.epoch <= (name.epoch or 0) <= metadata.epoch:
        yield _contradiction(f"{file.path} of epoch {file.epoch}", f"at most epoch {metadata.epoch}")
    if file.state_version > config.state_version:
        yield _contradiction(
            f"{file.path} of version {file.state_version}", f"at most {config.state_version}"
        )
    if not table.table_type.is_replicated and not metadata.key_range.contains(file.valid_keys):
        yield _contradiction(f"{file.valid_keys} of {file.path}", f"keys in {metadata.key_range}")
    if file.blocks and sum(block.row_count for block in file.blocks) != file.row_count:
        yield _contradiction(f"row groups of {file.path}", f"{file.row_count} rows in all")


def _contradiction(found: str, expected: str) -> Flaw:
    return Flaw(Problem.CONTRADICTION, found, expected)
