"""Every setting of a compaction policy changes what is merged, for a pipeline and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.coordinator.job_driver import DriverSettings
from lakestate.testing import OperatorHarness

pytestmark = pytest.mark.usefixtures("separate_runs")

POLICY = ls.CompactionPolicy(files_min=3, files_max=50)


def shared_entries(policy: ls.CompactionPolicy, epochs: int) -> int:
    """How many files a shared table of four subtasks has after some epochs and a merge."""
    job = TableJob([ls.GlobalKeyedTable("g", key=int, value=int)], parallelism=4)
    for epoch in range(epochs):
        for index, manager in enumerate(job.managers):
            manager.global_keyed("g").insert(index, epoch)
        job.checkpoint()
    job.compact(policy)
    job.restart()
    job.checkpoint()
    found = [manager.global_keyed("g").get_all() for manager in job.managers]
    files = {file.path for manager in job.managers for file in manager._files["g"].files}
    job.close()
    assert found == [dict.fromkeys(range(4), epochs - 1)] * 4
    return len(files)


def test_what_one_epoch_wrote_is_merged_once_enough_epochs_have_followed() -> None:
    assert [shared_entries(POLICY, epochs) for epochs in (1, 2, 3)] == [1, 1, 1]
    patient = replace(POLICY, epochs_min=3)
    assert [shared_entries(patient, epochs) for epochs in (1, 2, 3)] == [4, 8, 1]


def run_files(policy: ls.CompactionPolicy, rows: list[int]) -> int:
    """How many files a table has after an epoch for each number of rows, and a merge."""
    job = TableJob([ls.KeyedTable("t", key="k bigint", value="n bigint")])
    for count in rows:
        keys = pa.array([number * 0x9E3779B97F4A7C15 % 2**63 for number in range(count)])
        job.managers[0].keyed("t").put(pa.table({"k": keys, "n": keys}))
        job.checkpoint()
    job.compact(policy)
    job.restart()
    job.checkpoint()
    files = len(job.managers[0]._files["t"].files)
    job.close()
    return files


@pytest.mark.parametrize(
    ("change", "rows", "files"),
    [
        pytest.param({}, [10, 10, 10], 1, id="files of similar size"),
        pytest.param({"files_min": 4}, [10, 10, 10], 3, id="files_min"),
        pytest.param({"files_min": 4, "files_max": 4}, [10] * 3 + [9000, 9000], 1, id="files_max"),
        pytest.param({"size_floor_bytes": 1}, [9000, 10, 10], 3, id="size_floor_bytes"),
        pytest.param({"size_floor_bytes": 1, "size_ratio": 100.0}, [9000, 10, 10], 1, id="size_ratio"),
        pytest.param({"epochs_min": 4}, [10, 10, 10], 3, id="epochs_min"),
    ],
)
def test_a_setting_decides_which_files_are_merged(
    change: dict[str, Any], rows: list[int], files: int
) -> None:
    assert run_files(replace(POLICY, **change), rows) == files


class Seen(ls.Operator):
    output = "k bigint"
    seen = ls.KeyedTable(key="k bigint", value="n bigint")

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> None:
        self.seen.put(batch)


@pytest.mark.parametrize(("epochs_min", "most"), [(1, 3), (6, 7)])
def test_a_driver_merges_by_the_policy_that_it_is_given(epochs_min: int, most: int) -> None:
    settings = DriverSettings(compaction=replace(POLICY, epochs_min=epochs_min))
    backend = ls.ParquetBackend(f"memory://policy-{epochs_min}", cache_bytes=0)
    harness = OperatorHarness(Seen(), backend=backend, settings=settings)
    counts = []
    for number in range(12):
        harness.epoch([{"k": number, "n": number}])
        counts.append(backend.load_checkpoint_metadata("harness").summary.file_count)
    assert max(counts) == most
    assert len(harness.rows("seen")) == 12
