"""Decimals in tables that are kept by key: deltalake makes doubles of them for the bounds of files."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.delta.sink import DeltaSink
from lakestate.testing.sink_harness import SinkHarness

WIDE, EXACT = pa.decimal128(18, 2), pa.decimal128(15, 2)


def refusal(sink: DeltaSink, rows: pa.Schema) -> str:
    upserts = sink.for_stream(StreamKind(RowKind.UPSERT, tuple(sink.key)), "sink out")
    for act in (upserts.dry_run, upserts.check):
        with pytest.raises(InvalidInputError) as refused:
            act(rows)
    return str(refused.value)


def test_a_key_that_bounds_would_round_is_refused_before_a_table_is_created(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "totals"), key=["price"])
    rows = pa.schema([("price", WIDE), ("n", pa.int64())])
    assert "price; found decimal128(18, 2); expected" in refusal(sink, rows)
    assert not (tmp_path / "totals").exists()
    DeltaTable.create(tmp_path / "totals", rows)
    narrower = pa.schema([("price", EXACT), ("n", pa.int64())])
    assert "decimal of at most 15 digits" in refusal(sink, narrower)
    assert DeltaTable(tmp_path / "totals").version() == 0


def test_partitions_that_nobody_could_read_are_refused(tmp_path: Path) -> None:
    rows = pa.schema([("user", pa.string()), ("step", EXACT), ("n", pa.int64())])
    sink = DeltaSink(str(tmp_path / "totals"), key=["user"], partition_by=["step"])
    assert "in partitions of this type: step; found decimal128(15, 2)" in refusal(sink, rows)
    assert not (tmp_path / "totals").exists()
    DeltaTable.create(tmp_path / "totals", rows, partition_by=["step"])
    assert "in partitions of this type: step" in refusal(
        DeltaSink(str(tmp_path / "totals"), key=["user"]), rows
    )


def test_rows_are_found_by_decimals_of_15_digits(tmp_path: Path) -> None:
    rows = pa.schema([("price", EXACT), ("n", pa.int64())])
    job = SinkHarness(DeltaSink(str(tmp_path), key=["price"]), rows)
    prices = [
        Decimal(f"{sign}987654321098{last}.{cents}") for sign in "-+" for last in "13" for cents in (1, 99)
    ]
    for n in (1, 2):
        for price in prices:
            job.epoch([{"price": price, "n": n}])
    found = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert sorted((row["price"], row["n"]) for row in found) == sorted((price, 2) for price in prices)


@pytest.mark.parametrize("is_nested", [False, True])
def test_files_have_no_bounds_of_decimals_that_would_be_rounded(tmp_path: Path, is_nested: bool) -> None:
    value = pa.struct([("wide", WIDE)]) if is_nested else WIDE
    rows = pa.schema([("user", pa.string()), ("spend", value), ("cents", EXACT)])
    spend = Decimal("-1234567890123456.78")
    row = {"user": "ada", "spend": {"wide": spend} if is_nested else spend, "cents": Decimal("-0.50")}
    SinkHarness(DeltaSink(str(tmp_path), key=["user"]), rows).epoch([row])
    assert DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [row]
    log = (tmp_path / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    (statistics,) = [json.loads(add["add"]["stats"]) for add in map(json.loads, log) if "add" in add]
    assert statistics["numRecords"] == 1
    assert statistics["minValues"] == {"user": "ada", "cents": -0.5}
