"""Migrated rows in the run cache: shared within one start of a job, and with no other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakestate as ls
from lakestate.storage.parallel import run_sequentially

V1 = ls.KeyedTable("t", key="k bigint", value="euros bigint")


def in_cents(factor: int) -> ls.KeyedTable:
    def migrate(rows: pa.Table) -> pa.Table:
        return rows.append_column("cents", pc.multiply(rows["euros"], factor)).drop_columns(["euros"])

    steps = [ls.ArrowMigration(1, migrate)]
    return ls.KeyedTable("t", key="k bigint", value="cents bigint", version=2, migrations=steps)


def broken() -> ls.KeyedTable:
    def migrate(rows: pa.Table) -> pa.Table:
        raise AssertionError("migrated again")

    steps = [ls.ArrowMigration(1, migrate)]
    return ls.KeyedTable("t", key="k bigint", value="cents bigint", version=2, migrations=steps)


@pytest.fixture
def backend(tmp_path: Path) -> ls.ParquetBackend:
    """With an epoch in which three euros were stored."""
    backend = ls.ParquetBackend(f"memory://{tmp_path.name}", cache_dir=tmp_path)
    tables = ls.TableManager.load(ls.TaskInfo("job", "op"), [V1], backend, None)
    tables.keyed("t").put(pa.table({"k": [1], "euros": [3]}))
    backend.write_checkpoint_metadata("job", 1, [tables.checkpoint(1, 1, None, False)])
    return backend


def cents(table: ls.KeyedTable, backend: ls.ParquetBackend, generation: int) -> list[int]:
    """Read by a start of the job that has this generation."""
    task = ls.TaskInfo("job", "op", generation=generation)
    with run_sequentially():
        found = ls.TableManager.load(task, [table], backend, 1).keyed("t").get(pa.table({"k": [1]}))
    values: list[int] = found["cents"].to_pylist()
    return values


def test_without_a_claimed_generation_a_corrected_migration_is_used(backend: ls.ParquetBackend) -> None:
    assert cents(in_cents(10), backend, generation=1) == [30]
    assert cents(in_cents(100), backend, generation=1) == [300]


def test_a_start_that_claimed_its_generation_migrates_a_file_once(backend: ls.ParquetBackend) -> None:
    assert cents(in_cents(100), backend, generation=2) == [300]
    assert cents(broken(), backend, generation=2) == [300]


def test_the_next_start_uses_its_own_migration(backend: ls.ParquetBackend) -> None:
    assert cents(in_cents(10), backend, generation=2) == [30]
    assert cents(in_cents(100), backend, generation=3) == [300]
