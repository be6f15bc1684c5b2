"""What the counting store says of a job is what arrives at an S3 server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.support.jobs.counting_operators import SharedTotals
from tests.support.servers.counting_proxy import CountingProxy, Kind

import lakestate as ls
from lakestate.coordinator.job_driver import DriverSettings
from lakestate.protocol.retention import RetentionPolicy
from lakestate.testing.chained_job import ChainedJob
from lakestate.testing.counting import count_requests
from lakestate.testing.s3_server import S3Server


def test_a_proxy_in_front_of_s3_counts_what_the_counting_store_counts(
    s3_server: S3Server, tmp_path: Path
) -> None:
    with CountingProxy(s3_server.port) as proxy:
        config = s3_server.store_config("counted", endpoint=proxy.endpoint)
        backend = ls.ParquetBackend(config, cache_dir=tmp_path / "cache")
        counting = count_requests(backend)
        settings = DriverSettings(RetentionPolicy(keep_epochs=2))
        job = ChainedJob(SharedTotals(), backend, key="k", parallelism=2, settings=settings)
        for epoch in range(6):
            keys = np.arange(100) + epoch
            job.epoch(pa.table({"k": keys, "n": np.ones(100, dtype=np.int64)}))
        seen, counted = proxy.take(), counting.take()
    kinds = Counter(each.kind for each in seen)
    assert (kinds[Kind.WRITE], kinds[Kind.READ]) == (counted.writes, counted.reads)
    assert (kinds[Kind.LIST], kinds[Kind.DELETE]) == (counted.lists, counted.deletes)
    assert sum(each.written_bytes for each in seen) == counted.bytes_written
    assert counted.deletes > 0
