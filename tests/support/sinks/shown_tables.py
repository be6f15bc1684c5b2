"""Tables whose sinks show the rows of open files, and what a test looks at in them, whatever their format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.support.sinks.delta_job import DeltaFolder
from tests.support.sinks.iceberg_job import Warehouse
from tests.support.sinks.sink_job import Rows, SinkJob

from lakestate.sinks import Roll
from lakestate.testing.faults import SimulatedCrash
from lakestate.testing.stepping import SteppingAmbient

AT_ONCE = Roll(interval=None, visible="0 seconds")
"""Every epoch shows its rows, and only the end of the job finishes files."""
LATER = Roll(interval=None)
"""Rows are visible when a file is finished."""

Commit = Callable[[], Any]
Instead = Callable[[Commit], Any]
"""What happens instead of a commit; it gets the commit itself."""


class HandClock(SteppingAmbient):
    """Stands still until a test moves it."""

    time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


class ShownTable(Protocol):
    """A table in a folder."""

    root: Path

    def sink(self, **settings: Any) -> Any: ...

    def job(self, rows: Rows | None = None, **settings: Any) -> SinkJob: ...

    def rows(self) -> list[int]:
        """The numbers of all rows, sorted."""
        ...

    def epochs(self) -> list[str]:
        """The epochs of all versions, in order."""
        ...

    def rows_at_every_version(self) -> list[list[int]]:
        """What readers of each version see."""
        ...

    def appended_rows(self) -> list[int]:
        """What somebody has read who reads only the files that bring rows, commit by commit."""
        ...

    def operations(self) -> list[str]:
        """What each version did: append, replace, or something of somebody else."""
        ...

    def countries(self) -> list[str | None]:
        """The partition of each file, of a table that has partitions by country."""
        ...

    def file_count(self) -> int: ...

    def compact(self, country: str | None = None) -> None:
        """Somebody merges the files of the table, or of a country, into one."""
        ...

    def delete_country(self, country: str) -> None:
        """Somebody deletes rows."""
        ...

    def act_instead_of_commits(self, instead: list[Instead | None], patch: pytest.MonkeyPatch) -> None:
        """Take what is to happen from a list at each commit; None lets one pass."""
        ...


class ShownIceberg(Warehouse):
    """An Iceberg table."""

    def rows_at_every_version(self) -> list[list[int]]:
        return [self.rows(snapshot_id=each.snapshot_id) for each in self.table().metadata.snapshots]

    def appended_rows(self) -> list[int]:
        table, found = self.table(), []
        for snapshot in table.metadata.snapshots:
            if snapshot.summary.operation.value != "append":
                continue
            added = [
                entry.data_file.file_path
                for manifest in snapshot.manifests(table.io)
                if manifest.added_snapshot_id == snapshot.snapshot_id
                for entry in manifest.fetch_manifest_entry(table.io)
                if entry.snapshot_id == snapshot.snapshot_id
            ]
            for path in added:
                found += pq.read_table(path.removeprefix("file://"))["row"].to_pylist()
        return sorted(found)

    def operations(self) -> list[str]:
        return [each.summary.operation.value for each in self.table().metadata.snapshots]

    def countries(self) -> list[str | None]:
        return [task.file.partition[0] for task in self.table().scan().plan_files()]

    def file_count(self) -> int:
        return len(list(self.table().scan().plan_files()))

    def compact(self, country: str | None = None) -> None:
        table = self.table()
        scan = table.scan() if country is None else table.scan(row_filter=f"country = '{country}'")
        files, rows = [task.file for task in scan.plan_files()], scan.to_arrow()
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            for file in files:
                snapshot.delete_data_file(file)
            for file in _written_files(table, rows):
                snapshot.append_data_file(file)

    def delete_country(self, country: str) -> None:
        self.table().delete(f"country = '{country}'")

    def act_instead_of_commits(self, instead: list[Instead | None], patch: pytest.MonkeyPatch) -> None:
        catalog = self.catalog.load()
        commit_table = catalog.commit_table

        def commit(*args: Any) -> Any:
            act = instead.pop(0) if instead else None
            return commit_table(*args) if act is None else act(lambda: commit_table(*args))

        patch.setattr(catalog, "commit_table", commit)


class ShownDelta(DeltaFolder):
    """A Delta table."""

    def rows_at_every_version(self) -> list[list[int]]:
        tables = (DeltaTable(self.root, version=each) for each in range(1, self.table().version() + 1))
        return [sorted(each.to_pyarrow_table(columns=["row"])["row"].to_pylist()) for each in tables]

    def appended_rows(self) -> list[int]:
        added = (each["path"] for each in self.actions("add") if each["dataChange"])
        return sorted(
            row
            for path in added
            for row in pq.read_table(self.root / path, partitioning=None)["row"].to_pylist()
        )

    def operations(self) -> list[str]:
        return [_operation(self, each) for each in range(1, self.table().version() + 1)]

    def countries(self) -> list[str | None]:
        files = pa.table(self.table().get_add_actions(flatten=True))
        return list(files["partition.country"].to_pylist())

    def file_count(self) -> int:
        return len(self.table().file_uris())

    def compact(self, country: str | None = None) -> None:
        self.table().optimize.compact(None if country is None else [("country", "=", country)])

    def delete_country(self, country: str) -> None:
        self.table().delete(f"country = '{country}'")

    def act_instead_of_commits(self, instead: list[Instead | None], patch: pytest.MonkeyPatch) -> None:
        commit_files = DeltaTable.create_write_transaction

        def commit(table: DeltaTable, *args: Any, **settings: Any) -> Any:
            act = instead.pop(0) if instead else None
            if act is None:
                return commit_files(table, *args, **settings)
            return act(lambda: commit_files(table, *args, **settings))

        patch.setattr(DeltaTable, "create_write_transaction", commit)


def lose_the_answer(commit: Commit) -> None:
    """The commit succeeds, and the driver ends before it knows."""
    commit()
    raise SimulatedCrash("driver")


def fail_before(commit: Commit) -> None:
    """The driver ends before the commit."""
    raise SimulatedCrash("driver")


def _operation(folder: DeltaFolder, version: int) -> str:
    """What a version did, from its actions: a file that takes the place of others changes no data."""
    actions = folder.actions_of(version)
    changes = {each[kind]["dataChange"] for each in actions for kind in ("add", "remove") if kind in each}
    has_removed = any("remove" in each for each in actions)
    if changes == {False} and has_removed:
        return "replace"
    return "append" if changes == {True} and not has_removed else "record" if not changes else "overwrite"


def _written_files(table: Any, rows: pa.Table) -> list[Any]:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    return list(_dataframe_to_data_files(table_metadata=table.metadata, df=rows, io=table.io))
