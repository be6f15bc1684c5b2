"""A dry run finds everything that would keep a table from being restored, and touches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.older_files import Row, file_rows

from lakestate.ambient import SystemAmbient
from lakestate.codec import encode_subtask
from lakestate.errors import NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.protocol.key_ranges import ALL_KEYS
from lakestate.protocol.metadata import Manifest, OperatorEntry, SubtaskEntry, SubtaskMetadata, TableFiles
from lakestate.protocol.values import Epoch, FileRef, Generation, TaskInfo
from lakestate.storage import open_store
from lakestate.tables.context import TableContext
from lakestate.tables.contract import Table
from lakestate.tables.dry_run import DryRunProblem, DryRunReport, dry_run
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.migration.migrations import ColumnChanges, RowMigration, count_migrated_rows
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.files import write_run
from lakestate.tables.runs.merge import sort_keep_all
from lakestate.tables.runs.run import Run

OPERATOR = "op"


class Checkpoint:
    """One epoch of one operator, written table by table."""

    def __init__(self, folder: Path) -> None:
        self.objects = JobObjects(open_store(f"file://{folder}"), "job")
        task = TaskInfo("job", OPERATOR)
        self._context = TableContext(task, self.objects, None, SystemAmbient(), None, 0)
        self._entries: list[SubtaskEntry] = []

    def file(self, table: KeyedTable, rows: Sequence[Row]) -> FileRef:
        run = sort_keep_all(Run(file_rows(table.layout, rows), table.layout))
        return write_run(run, self._context, Epoch(1))

    def subtask(self, table: KeyedTable, *files: FileRef) -> str:
        """Add a subtask with one table. Answers the name of its metadata object."""
        index = len(self._entries)
        metadata = SubtaskMetadata(
            job_id="job",
            operator_id=OPERATOR,
            subtask_index=index,
            parallelism=index + 1,
            epoch=Epoch(1),
            generation=Generation(1),
            attempt="a",
            key_range=ALL_KEYS,
            started_ms=0,
            finished_ms=0,
            configs=(table.config,),
            tables=(TableFiles(table.name, table.table_type, files),),
        )
        paths = self.objects.paths
        ref = self.objects.create_new(
            lambda attempt: paths.subtask_metadata(Epoch(1), OPERATOR, index, attempt),
            encode_subtask(metadata),
            "a",
        )
        self._entries.append(SubtaskEntry(index, ALL_KEYS, ref))
        return self.objects.url_of(ref.path)

    def tried(self, *tables: Table, operator_id: str = OPERATOR, **options: Any) -> DryRunReport:
        """The report of a dry run, after it was seen that no object changed."""
        operator = OperatorEntry(OPERATOR, len(self._entries), tuple(self._entries))
        manifest = Manifest("job", Epoch(1), Generation(1), None, 0, 0, Epoch(1), operators=(operator,))
        before = self._everything()
        report = dry_run(tables, manifest, operator_id, self.objects, **options)
        assert self._everything() == before
        return report

    def damage(self, file: FileRef) -> str:
        self.objects.store.put(self.objects.store_path(file.path), b"x" * file.size_bytes)
        return self.objects.url_of(file.path)

    def _everything(self) -> dict[str, bytes]:
        store = self.objects.store
        return {info.path: bytes(store.get(info.path).data) for info in store.list("job/")}


class Checked(KeyedTable):
    """A table of runs that a dry run can try."""

    def check_rows(self, rows: pa.Table, identity: CheckpointParquetMetadata, shown: str) -> int:
        return count_migrated_rows(self.layout, self._migrations, rows, identity, shown)


def users(version: int, value: str, *migrations: Any) -> Checked:
    return Checked("users", key="user string", value=value, version=version, migrations=migrations)


V1 = users(1, "n int")
V2 = users(2, "n bigint", ColumnChanges(1, widen={"n": "bigint"}))
ADA, BOB = {"user": "ada", "n": 1}, {"user": "bob", "n": 0}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_files_of_older_versions_are_migrated_each_once(checkpoint: Checkpoint) -> None:
    old, new = checkpoint.file(V1, [ADA, BOB]), checkpoint.file(V2, [ADA])
    checkpoint.subtask(V2, new, old)
    checkpoint.subtask(V2, old)
    assert checkpoint.tried(V2) == DryRunReport(checked_files=1, migrated_rows=2)


def test_state_of_the_declared_version_is_not_read(checkpoint: Checkpoint) -> None:
    file = checkpoint.file(V2, [ADA])
    checkpoint.subtask(V2, file)
    checkpoint.damage(file)
    assert checkpoint.tried(V2) == DryRunReport()


def test_a_table_that_is_new_is_no_problem(checkpoint: Checkpoint) -> None:
    checkpoint.subtask(V1)
    assert checkpoint.tried(V1, KeyedTable("others", key="k int", value="v int")).is_clean


def test_every_file_that_fails_is_listed(checkpoint: Checkpoint) -> None:
    failing, fine = checkpoint.file(V1, [ADA, BOB]), checkpoint.file(V1, [ADA])
    damaged = checkpoint.file(V1, [ADA])
    checkpoint.subtask(V1, failing, fine, damaged)
    shown = checkpoint.damage(damaged)
    inverse = RowMigration(1, lambda row: {"user": row["user"], "share": 1 / row["n"]})
    report = checkpoint.tried(users(2, "share double", inverse))
    assert (report.checked_files, report.migrated_rows) == (3, 1)
    assert [(problem.table, problem.object_name) for problem in report.problems] == [
        ("users", checkpoint.objects.url_of(failing.path)),
        ("users", shown),
    ]
    assert "ZeroDivisionError" in report.problems[0].reason
    assert "does not match its checksum" in report.problems[1].reason


def test_a_file_that_is_older_than_its_declaration_needs_its_own_chain(checkpoint: Checkpoint) -> None:
    checkpoint.subtask(V2, checkpoint.file(V1, [ADA]))
    report = checkpoint.tried(users(3, "n double", ColumnChanges(2, widen={"n": "double"})))
    assert report.migrated_rows == 0
    assert "declare a migration from version 1" in report.problems[0].reason


def test_a_declaration_that_does_not_fit_is_listed_with_every_reason(checkpoint: Checkpoint) -> None:
    name = checkpoint.subtask(V2, checkpoint.file(V2, [ADA]))
    checkpoint.subtask(V2)
    other = KeyedTable("users", key="user int", value="n bigint")
    assert checkpoint.tried(other).problems == (
        DryRunProblem("users", name, "key is (user string), declared (user int)"),
        DryRunProblem(
            "users", name, "stored with state version 2, newer than the declared 1: run the newer code"
        ),
    )


def test_a_stored_table_must_be_declared_or_dropped(checkpoint: Checkpoint) -> None:
    name = checkpoint.subtask(V1)
    assert checkpoint.tried().problems == (DryRunProblem("users", name, "stored, but no longer declared"),)
    assert checkpoint.tried(drop=["users"]).is_clean


def test_metadata_that_cannot_be_read_is_listed_beside_the_rest(checkpoint: Checkpoint) -> None:
    lost = checkpoint.subtask(V1)
    checkpoint.subtask(V1, checkpoint.file(V1, [ADA]))
    store = checkpoint.objects.store
    store.delete_many([lost.removeprefix(f"{store.url}/")])
    report = checkpoint.tried(V2)
    assert (report.checked_files, report.migrated_rows) == (1, 1)
    assert [(problem.table, problem.object_name) for problem in report.problems] == [(None, lost)]
    assert "a referenced object is missing" in report.problems[0].reason


def test_a_file_of_another_table_is_listed(checkpoint: Checkpoint) -> None:
    other = KeyedTable("others", key="user string", value="n int")
    file = checkpoint.file(other, [ADA])
    checkpoint.subtask(V1, file)
    assert "data file of another table" in checkpoint.tried(V2).problems[0].reason


def test_an_operator_that_is_not_in_the_epoch_is_an_error(checkpoint: Checkpoint) -> None:
    with pytest.raises(NotFoundError, match="has no such operator: typo; found op"):
        checkpoint.tried(V1, operator_id="typo")
