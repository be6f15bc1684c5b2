"""Many tables, files and subtasks: what works, at which cost, and what is refused.

The sizes here are those that an ordinary run has time for; `tests/soak/test_soak_limits.py` has the large
ones. Costs are counted in bytes, which do not depend on how busy the machine is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.metadata import FILE, SUBTASK

import lakestate as ls
from lakestate.codec import decode_subtask, encode_subtask, messages
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.table_types import KEYED
from lakestate.protocol.values import Epoch


class TestTablesFilesAndSubtasks:
    def test_an_operator_with_two_hundred_tables(self, jobs: Any) -> None:
        tables = [ls.KeyedTable(f"t{number}", key="k bigint", value="n bigint") for number in range(200)]
        job = jobs(tables)
        for number in range(200):
            job.managers[0].keyed(f"t{number}").put(pa.table({"k": [number], "n": [number]}))
        job.checkpoint()
        job.restart()
        found = [job.managers[0].keyed(f"t{number}").count() for number in range(200)]
        assert found == [1] * 200

    def test_512_subtasks_hold_every_key_once_and_the_manifest_stays_small(self, jobs: Any) -> None:
        job = jobs([ls.KeyedTable("t", key="k bigint", value="n bigint")])
        job.managers[0].keyed("t").put(pa.table({"k": range(2000), "n": range(2000)}))
        job.checkpoint()
        job.restart(parallelism=512)
        job.checkpoint()
        job.checkpoint()
        assert sum(manager.keyed("t").count() for manager in job.managers) == 2000
        record = job.backend.objects("job").read_epoch(Epoch(3))
        assert record.manifest.size_bytes < 512 * 120
        job.restart(parallelism=1)
        assert job.managers[0].keyed("t").count() == 2000

    def test_a_parallelism_that_keys_cannot_be_cut_into_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="not a parallelism"):
            ls.TaskInfo("job", "op", 0, 32_769)

    def test_metadata_of_ten_thousand_files_is_150_bytes_for_each(self) -> None:
        files = tuple(
            replace(FILE, path=f"checkpoints/{number}/operator-op/users-0-{number:032x}.parquet", blocks=())
            for number in range(10_000)
        )
        metadata = replace(SUBTASK, tables=(TableFiles("users", KEYED, files),))
        data = encode_subtask(metadata)
        assert len(data) < 160 * len(files)
        assert decode_subtask(data, "metadata", "job") == metadata

    def test_metadata_that_could_not_be_read_again_is_not_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(messages, "OBJECT_BYTES_MAX", 100)
        with pytest.raises(InvalidInputError, match="metadata is too large to be stored"):
            encode_subtask(SUBTASK)
