"""The output of `format("lakestate")` has one owner."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")

from tests.unit.spark.data_source.test_query import query, rows

import lakestate as ls
from lakestate.errors import InvalidInputError
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.output_owner import OutputClaim, OutputOwner


def test_a_query_with_a_copy_of_the_state_is_refused_until_it_takes_over(tmp_path: Path) -> None:
    first = query(tmp_path / "first", path=str(tmp_path / "out"), jobId="rows")
    first.run(0, [rows(0)])
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    copy = query(tmp_path / "copy", path=str(tmp_path / "out"), jobId="rows")
    before = sorted(path.name for path in (tmp_path / "out").rglob("*"))
    for refused in (copy.planned, lambda: ls.finish_files(**copy.options)):
        with pytest.raises(InvalidInputError, match="another job that has a copy of this state"):
            refused()
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == before
    ls.take_over_output(**copy.options)
    copy.run(1, [rows(1)])
    assert len(ls.finish_files(**copy.options)) == 1
    found = ds.dataset(tmp_path / "out", format="parquet").to_table()["n"].to_pylist()
    assert sorted(found) == [0, 1]


def test_a_process_claims_the_output_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, claimed = query(tmp_path), []
    real = FileSink.claim_output

    def claim_output(sink: FileSink, owner: OutputOwner, claim: OutputClaim) -> None:
        claimed.append(owner.sink_id)
        real(sink, owner, claim)

    monkeypatch.setattr(FileSink, "claim_output", claim_output)
    for batch in range(3):
        written.run(batch, [rows(batch)])
    assert claimed == ["out"]
