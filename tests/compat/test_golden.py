"""Checkpoints of every format version that was ever released are read by this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.golden import rows_of_epoch, tables

import lakestate as ls
from lakestate.tables.manager import TableManager
from lakestate.tables.parquet_metadata import DATA_FORMAT

VERSIONS = sorted(path for path in Path(__file__).parent.glob("v*") if path.is_dir())


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> ls.ParquetBackend:
    shutil.copytree(request.param, tmp_path / "store")
    return ls.ParquetBackend(f"file://{tmp_path / 'store'}", cache_dir=tmp_path / "cache")


def restored(backend: ls.ParquetBackend, epoch: int, parallelism: int) -> list[TableManager]:
    tasks = [ls.TaskInfo("golden", "op", index, parallelism) for index in range(parallelism)]
    return [TableManager.load(task, tables(), backend, restore_from=epoch) for task in tasks]


def sorted_rows(batches: list[pa.RecordBatch | pa.Table]) -> list[str]:
    return sorted(str(row) for batch in batches for row in batch.to_pylist())


def test_there_is_a_golden_checkpoint_of_the_current_format() -> None:
    assert VERSIONS[-1].name == f"v{DATA_FORMAT}"


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_every_table_of_a_golden_epoch_is_what_was_written(
    golden: ls.ParquetBackend, epoch: int, parallelism: int
) -> None:
    managers = restored(golden, epoch, parallelism)
    totals = rows_of_epoch(epoch)["totals"]
    if epoch == 3:
        totals = totals.filter([user != "grace" for user in totals.column("user").to_pylist()])
    items = pa.concat_tables([rows_of_epoch(number)["items"] for number in range(1, epoch + 1)])
    events = pa.concat_tables([rows_of_epoch(number)["events"] for number in range(1, epoch + 1)])
    assert sorted_rows([b for m in managers for b in m.keyed("totals").scan()]) == sorted_rows([totals])
    assert sorted_rows([b for m in managers for b in m.keyed("items").scan()]) == sorted_rows([items])
    stored = [m.time_key("events").rows_between(None, None) for m in managers]
    assert sorted_rows(stored) == sorted_rows([events])
    for manager in managers:
        offsets = dict(manager.global_keyed("offsets").items())
        expected = {"part-0": (epoch, ["x"] * epoch)}
        expected |= {"part-1": (epoch, ["x"] * epoch)} if epoch < 3 else {}
        expected |= {"shared": (1, [])} if epoch > 1 else {}
        assert offsets == expected


def test_a_golden_job_continues(golden: ls.ParquetBackend) -> None:
    managers = restored(golden, 3, 3)
    done = [manager.checkpoint(4, 1, None, False) for manager in managers]
    assert golden.write_checkpoint_metadata("golden", 4, done).epoch == 4


def test_a_golden_data_file_is_plain_parquet(golden: ls.ParquetBackend) -> None:
    metadata = golden.load_operator_metadata("golden", 1, "op")[0]
    path = next(table for table in metadata.tables if table.table == "items").files[0].path
    data = golden.objects("golden").store.get(f"golden/{path}").data
    names = pq.read_table(pa.BufferReader(data)).schema.names
    assert names == ["user", "item", "ok", "raw", "__removed"]
