"""One data file against its reference: every contradiction is found, and large files are read in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import FileRef, TimeRange
from lakestate.tables import data_files
from lakestate.tables.context import TableContext
from lakestate.tables.contract import Table
from lakestate.tables.data_files import ContradictionError
from lakestate.verification import Problem
from lakestate.verification.job import check_data_file

TABLES: dict[str, Table] = {
    "keyed": ls.KeyedTable("t", key="k bigint", value="n bigint"),
    "fine": ls.KeyedTable("t", key="k bigint, i bigint", value="n bigint", route_by=["k"]),
    "ttl": ls.KeyedTable("t", key="k bigint", value="n bigint", ttl="1 hour"),
    "time_key": ls.TimeKeyTable("t", key="k bigint", value="ts timestamp, n bigint", time="ts"),
    "global_keyed": ls.GlobalKeyedTable("t", key=int, value=int),
}


@pytest.fixture(params=TABLES)
def stored(request: pytest.FixtureRequest) -> Iterator[tuple[FileRef, TableConfig, TableContext]]:
    """A data file of each table type, of ten rows."""
    job = TableJob([TABLES[request.param]])
    rows = pa.table(
        {
            "k": range(10),
            "i": range(10),
            "n": range(10),
            "ts": pa.array(range(10), pa.timestamp("us", "UTC")),
        }
    )
    manager: Any = job.managers[0]
    if request.param == "global_keyed":
        for number in range(10):
            manager.global_keyed("t").insert(number, number)
    elif request.param == "time_key":
        manager.time_key("t").insert(rows)
    else:
        manager.keyed("t").put(rows)
    job.checkpoint()
    metadata = job.backend.load_operator_metadata("job", 1, "op")[0]
    context = TableContext(manager.task, job.backend.objects("job"), None, job.backend.ambient, None, 0)
    yield metadata.tables[0].files[0], metadata.configs[0], context
    job.close()


Stored = tuple[FileRef, TableConfig, TableContext]


def test_a_file_that_is_what_its_reference_says_is_right(stored: Stored) -> None:
    check_data_file(*stored)


def test_a_file_with_other_rows_than_its_reference_says_is_named(stored: Stored) -> None:
    file, config, context = stored
    wrong = [replace(file, row_count=11), replace(file, removed_count=1)]
    if file.keys is not None:
        wrong.append(replace(file, keys=replace(file.keys, first=file.keys.first - 1)))
    if file.times is not None:
        wrong.append(replace(file, times=TimeRange(0, 10)))
    for each in wrong:
        with pytest.raises(ls.CorruptionError, match=file.path):
            check_data_file(each, config, context)


def test_a_file_of_another_state_version_is_checked_as_far_as_that_goes(stored: Stored) -> None:
    file, config, context = stored
    newer = replace(config, state_version=2)
    check_data_file(file, newer, context)
    for each in (replace(file, state_version=3), replace(file, row_count=9)):
        with pytest.raises(ls.CorruptionError, match=file.path):
            check_data_file(each, newer, context)


def large_file(monkeypatch: pytest.MonkeyPatch) -> tuple[TableJob, FileRef, TableConfig, TableContext]:
    """A file of several row groups, of 1,000 rows."""
    monkeypatch.setattr("lakestate.tables.runs.parquet.ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(data_files, "STREAM_BYTES", 1000)
    job = TableJob([TABLES["keyed"]])
    job.managers[0].keyed("t").put(pa.table({"k": range(1000), "n": range(1000)}))
    job.checkpoint()
    metadata = job.backend.load_operator_metadata("job", 1, "op")[0]
    file = metadata.tables[0].files[0]
    assert len(file.blocks) == 10
    task = job.managers[0].task
    context = TableContext(task, job.backend.objects("job"), None, job.backend.ambient, None, 0)
    return job, file, metadata.configs[0], context


def test_a_large_file_is_read_a_row_group_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    job, file, config, context = large_file(monkeypatch)
    whole: list[object] = []
    monkeypatch.setattr(type(context.objects), "read_verified", lambda self, ref: whole.append(ref))
    check_data_file(file, config, context)
    check_data_file(file, replace(config, state_version=2), context)
    assert whole == []
    job.close()


@pytest.mark.parametrize("place", [0.01, 0.3, 0.5, 0.7, 0.99])
def test_a_flipped_bit_anywhere_in_a_large_file_is_found(
    monkeypatch: pytest.MonkeyPatch, place: float
) -> None:
    job, file, _, context = large_file(monkeypatch)
    store, path = context.objects.store, context.objects.store_path(file.path)
    data = bytearray(store.get(path).data)
    data[int(place * len(data))] ^= 1
    store.put(path, bytes(data))
    [finding] = ls.verify(job.backend, "job").findings
    assert (finding.problem, finding.epochs) == (Problem.CHECKSUM, (1,))
    store.put(path, bytes(data[:-1]))
    [finding] = ls.verify(job.backend, "job").findings
    assert finding.problem is Problem.SIZE
    job.close()


def test_a_contradiction_is_an_error_of_its_own_kind(stored: Stored) -> None:
    file, config, context = stored
    with pytest.raises(ContradictionError):
        check_data_file(replace(file, removed_count=1), config, context)
