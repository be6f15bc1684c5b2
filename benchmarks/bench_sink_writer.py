"""The resumable Parquet writer against a plain `pq.ParquetWriter`: the same batches, the same options.

The resumable one makes a checkpoint every 250,000 rows, and goes on from it as another process would.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.sinks.local_writer import CurrentFileRecovery, ParquetLocalWriter
from lakestate.sinks.parquet_segment import ParquetSettings

EPOCHS = 8
EPOCH_ROWS = 250_000
ROUNDS = 5
RATIO_MAX = 1.15


def batches() -> list[pa.RecordBatch]:
    """Keys, text, numbers and times, as an event stream has them."""
    random = np.random.default_rng(7)
    count = EPOCHS * EPOCH_ROWS
    rows = pa.record_batch(
        {
            "id": np.arange(count),
            "user": pa.array(random.integers(0, 100_000, count)).cast(pa.string()),
            "amount": random.random(count),
            "ts": pa.array(np.cumsum(random.integers(0, 1000, count)), pa.timestamp("us", "UTC")),
            "country": pa.array(np.array(["DE", "FR", "UK", "US"])[random.integers(0, 4, count)]),
        }
    )
    return [rows.slice(start, EPOCH_ROWS) for start in range(0, count, EPOCH_ROWS)]


def plain(path: Path, rows: list[pa.RecordBatch]) -> float:
    started = time.perf_counter()
    with pq.ParquetWriter(path, rows[0].schema, compression="zstd", write_page_index=True) as writer:
        for batch in rows:
            writer.write_batch(batch)
    return time.perf_counter() - started


def resumable(root: Path, rows: list[pa.RecordBatch]) -> float:
    """Encoding and decoding the checkpoint is part of it; syncing the disk is, too."""
    started = time.perf_counter()
    settings, schema = ParquetSettings("zstd"), rows[0].schema
    writer = ParquetLocalWriter(root, "hidden.parquet", "final.parquet", schema, settings)
    for number, batch in enumerate(rows):
        writer.write_batch(batch)
        record = msgspec.msgpack.encode(writer.checkpoint())
        writer.abandon()
        stored = msgspec.msgpack.decode(record, type=CurrentFileRecovery)
        writer = ParquetLocalWriter.recover(root, stored, schema, settings, attempt=str(number))
    writer.close()
    return time.perf_counter() - started


def main() -> None:
    rows = batches()
    pairs = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            pairs.append((plain(Path(folder) / "plain.parquet", rows), resumable(Path(folder), rows)))
    best_plain, best_ours = min(first for first, _ in pairs), min(second for _, second in pairs)
    ratio = best_ours / best_plain
    median = statistics.median(second / first for first, second in pairs)
    print(f"{EPOCHS * EPOCH_ROWS:,} rows, a checkpoint every {EPOCH_ROWS:,}, best of {ROUNDS}:")
    print(f"plain pq.ParquetWriter      {best_plain * 1000:8.0f} ms")
    print(f"ParquetLocalWriter          {best_ours * 1000:8.0f} ms")
    verdict = "within" if ratio <= RATIO_MAX else "MISSED"
    print(f"ratio {ratio:.3f} (median of pairs {median:.3f}); target at most {RATIO_MAX}: {verdict}")


if __name__ == "__main__":
    main()
