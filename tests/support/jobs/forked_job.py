"""Jobs that count keys, one of them forked from another, below one checkpoint URL in memory."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

import lakestate as ls
from lakestate.coordinator.job_driver import DriverSettings
from lakestate.protocol.compaction import CompactionPolicy
from lakestate.protocol.retention import RetentionPolicy
from lakestate.sinks.muted import MutedSink
from lakestate.sinks.sink import Sink
from lakestate.testing.chained_job import OPERATOR, ChainedJob

PARENT, TRIAL = "totals", "trial"
KEEP_TWO = DriverSettings(RetentionPolicy(2), compaction=None)
MERGING = DriverSettings(RetentionPolicy(2), CompactionPolicy(files_min=2, files_max=64, size_floor_bytes=1))


class Totals(ls.Operator):
    """Counts the rows of each key, and passes the keys on."""

    output = "key string"
    totals = ls.KeyedTable(key="key string", value="n bigint")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.RecordBatch]:
        """Add to what is stored."""
        counts = Counter(batch["key"].to_pylist())
        keys = pa.table({"key": sorted(counts)})
        found = ctx.totals.get(keys)["n"].to_pylist()
        new = [(before or 0) + counts[key] for key, before in zip(sorted(counts), found, strict=True)]
        ctx.totals.put(keys.append_column("n", pa.array(new, pa.int64())))
        yield batch


def fresh_backend() -> ls.ParquetBackend:
    """An empty checkpoint URL."""
    return ls.ParquetBackend(f"memory://{uuid.uuid4().hex}", cache_bytes=0)


def start(
    backend: ls.ParquetBackend,
    job_id: str = PARENT,
    settings: DriverSettings = KEEP_TWO,
    *,
    sink: Sink | None = None,
    parallelism: int = 2,
    muted: bool = False,
) -> ChainedJob:
    """Start a driver of a job. A muted one has sinks that write nothing, as a muted pipeline has."""
    if muted and sink is not None:
        sink = MutedSink(tuple(sink.tables()))
    return ChainedJob(
        Totals(),
        backend,
        key="key",
        parallelism=parallelism,
        sink=sink,
        settings=settings,
        job_id=job_id,
        muted=muted,
    )


def add(job: ChainedJob, *keys: str) -> None:
    """One epoch with a row for each key."""
    job.epoch(pa.table({"key": pa.array(keys, pa.string())}))


def totals(backend: ls.ParquetBackend, job_id: str, epoch: int | None = None) -> dict[str, int]:
    """What a job has counted."""
    rows = ls.read_state(backend.url, job_id, OPERATOR, "totals", epoch=epoch).to_pylist()
    return {row["key"]: row["n"] for row in rows}


def objects_of(backend: ls.ParquetBackend, job_id: str) -> set[str]:
    """The names of everything that a job stores."""
    return {info.path for info in backend.objects(job_id).store.list(f"{job_id}/")}


def is_sound(backend: ls.ParquetBackend, job_id: str) -> bool:
    """Whether all that a job needs is there, and is what it should be."""
    return ls.verify(backend, job_id).is_clean
