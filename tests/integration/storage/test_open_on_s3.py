"""`ls.open` on a real S3 server: jobs, rows by key, changes and history, with few requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

import lakestate as ls
from lakestate.testing import count_requests

if TYPE_CHECKING:
    from lakestate.config import StoreConfig


def test_state_on_s3_is_read_as_on_local_files(s3_config: StoreConfig) -> None:
    backend = ls.ParquetBackend(s3_config, cache_bytes=0)
    table = ls.KeyedTable("t", key="user string", value="n bigint")
    for job in ("shop", "other"):
        tables = ls.TableManager.load(ls.TaskInfo(job, "op"), [table], backend, None)
        for epoch in range(1, 4):
            tables.keyed("t").put(pa.table({"user": ["ann", f"user-{epoch}"], "n": [epoch, epoch]}))
            done = tables.checkpoint(epoch, 1, None, False)
            backend.write_checkpoint_metadata(job, epoch, [done])
    backend.objects("shop").store.put("output/part=1/file.parquet", b"not a job")
    checkpoint = ls.open(s3_config)
    counting = count_requests(checkpoint._backend)
    assert checkpoint.job_names() == ["other", "shop"]
    assert counting.take().lists == 4
    assert [(info.job, info.epoch, info.epochs) for info in checkpoint.jobs()] == [
        ("other", 3, 3),
        ("shop", 3, 3),
    ]
    shop = checkpoint.job("shop")
    assert shop.epoch(2).table("op", "t").get("ann").to_pylist() == [{"user": "ann", "n": 2}]
    changes = shop.table("op", "t").changes(2, 3).to_arrow().to_pylist()
    assert [(row["_change"], row["user"], row["n"]) for row in changes] == [
        ("insert", "user-3", 3),
        ("update_preimage", "ann", 2),
        ("update_postimage", "ann", 3),
    ]
    versions = shop.table("op", "t").history("user-2")
    assert [(version.first, version.last, version.status) for version in versions] == [
        (1, 1, "absent"),
        (2, 3, "present"),
    ]
