"""Files built over many epochs, each in a new process, as three independent readers see them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.fuzzing.thrift_compact import CompactReader
from tests.support.repository import ROOT
from tests.support.sinks.sink_step import SCHEMA, rows_of

from lakestate.sinks.formats.parquet.segment import COMPRESSIONS

EPOCHS = 5

# Field numbers of the Parquet format.
ROW_GROUPS, COLUMNS, COLUMN_METADATA, DATA_PAGE_OFFSET = 4, 1, 3, 9
OFFSET_INDEX_OFFSET, OFFSET_INDEX_LENGTH, PAGE_LOCATIONS = 4, 5, 1
OFFSET, COMPRESSED_SIZE, PAGE_TYPE, COMPRESSED_BYTES, DATA_PAGES = 1, 2, 1, 3, (0, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("readback")
    for epoch in range(EPOCHS):
        then = "end" if epoch == EPOCHS - 1 else "continue"
        command = [sys.executable, "-m", "tests.support.sinks.sink_step", str(root), str(epoch), then]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=120)
    return root


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    table = pa.Table.from_batches([rows_of(epoch) for epoch in range(EPOCHS)])
    return plain(table.to_pylist())


def plain(value: Any) -> Any:
    """Values as all readers agree on them: a map is a list of its keys and values."""
    match value:
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case tuple():
            return {"key": value[0], "value": value[1]}
        case _:
            return value


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_pyarrow_reads_what_was_written(folder: Path, compression: str) -> None:
    found = pq.read_table(folder / f"{compression}.parquet")
    assert found.schema.equals(SCHEMA)
    assert found.equals(pa.Table.from_batches([rows_of(epoch) for epoch in range(EPOCHS)]))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_duckdb_reads_what_was_written(
    folder: Path, compression: str, expected: list[dict[str, Any]]
) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(f"FROM '{folder}/{compression}.parquet' ORDER BY row").to_arrow_table()
        assert plain(found.cast(_with_utc(found.schema)).to_pylist()) == expected
        one = connection.sql(f"SELECT text FROM '{folder}/{compression}.parquet' WHERE row = 444").fetchall()
    assert one == [(expected[444]["text"],)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_polars_reads_what_was_written(
    folder: Path, compression: str, expected: list[dict[str, Any]]
) -> None:
    file = folder / f"{compression}.parquet"
    assert plain(pl.read_parquet(file).to_arrow().to_pylist()) == expected
    one = pl.scan_parquet(file).filter(pl.col("row") == 444).select("text").collect()
    assert one["text"].to_list() == [expected[444]["text"]]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_one_file_has_row_groups_of_several_epochs_with_page_indexes(folder: Path, compression: str) -> None:
    metadata = pq.read_metadata(folder / f"{compression}.parquet")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [300, 300, 150]
    for number, group in enumerate(groups):
        row = group.column(0)
        assert (row.statistics.min, row.statistics.max) == (number * 300, min(number * 300 + 299, 749))
        columns = [group.column(each) for each in range(metadata.num_columns)]
        assert all(column.has_offset_index for column in columns)
        assert row.has_column_index


def test_nothing_but_the_files_is_visible(folder: Path) -> None:
    visible = sorted(file.name for file in folder.iterdir() if file.suffix != ".record")
    assert visible == [".lakestate", *sorted(f"{each}.parquet" for each in COMPRESSIONS)]


def _with_utc(schema: pa.Schema) -> pa.Schema:
    number = schema.get_field_index("time")
    return schema.set(number, pa.field("time", pa.timestamp("us", "UTC")))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_page_indexes_lead_to_the_pages(folder: Path, compression: str) -> None:
    data = (folder / f"{compression}.parquet").read_bytes()
    footer = CompactReader(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little")).struct()
    chunks = [chunk for group in footer[ROW_GROUPS] for chunk in group[COLUMNS]]
    assert len(chunks) == 3 * len(pq.read_metadata(folder / f"{compression}.parquet").schema)
    for chunk in chunks:
        index = CompactReader(data, chunk[OFFSET_INDEX_OFFSET])
        locations = index.struct()[PAGE_LOCATIONS]
        assert index.position == chunk[OFFSET_INDEX_OFFSET] + chunk[OFFSET_INDEX_LENGTH]
        assert locations[0][OFFSET] == chunk[COLUMN_METADATA][DATA_PAGE_OFFSET]
        for location in locations:
            page = CompactReader(data, location[OFFSET])
            header = page.struct()
            header_bytes = page.position - location[OFFSET]
            assert header[PAGE_TYPE] in DATA_PAGES
            assert header_bytes + header[COMPRESSED_BYTES] == location[COMPRESSED_SIZE]
