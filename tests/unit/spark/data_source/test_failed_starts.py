"""Starts of a query that fail again and again before they commit a batch, and drivers taken for dead."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.unit.spark.data_source.test_query import finished, query, rows

import lakestate as ls


def test_fifty_starts_that_fail_in_one_batch_cost_no_more_than_one(tmp_path: Path) -> None:
    written = query(tmp_path, keptRowSize="0")
    for batch in range(10):
        written.run(batch, [rows(*range(batch * 1000, batch * 1000 + 1000))])
    [file] = written.hidden_files()
    found = []
    for number in range(50):
        again = written.restarted(f"run-{number}")
        again.written(again.planned(), 10, 0, rows(*range(10_000, 11_000)))
        found.append(sum(file.stat().st_size for file in again.hidden_files()))
    assert max(found) < 2.5 * file.stat().st_size
    written.restarted("last").run(10, [rows(*range(10_000, 11_000))])
    assert finished(written) == list(range(11_000))


def test_a_driver_whose_files_were_taken_for_dead_cannot_commit_them(tmp_path: Path) -> None:
    zombie = query(tmp_path, keptRowSize="0")
    zombie.run(0, [rows(0)])
    # The first one appends to the file that is open, the second one copies it.
    zombie.written(zombie.planned(), 1, 0, rows(1))
    message = zombie.written(zombie.planned(), 1, 0, rows(1))
    assert len(zombie.hidden_files()) == 2
    successor = zombie.restarted("run-1")
    planned = successor.planned()
    assert len(zombie.hidden_files()) == 1
    with pytest.raises(ls.ConflictError, match="another driver has claimed the job since this batch was pl"):
        zombie.commit([message], 1)
    # The zombie has not disturbed it.
    successor.commit([successor.written(planned, 1, 0, rows(1))], 1)
    assert finished(successor) == [0, 1]
