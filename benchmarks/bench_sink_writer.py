"""The resumable Parquet writer against a plain `pq.ParquetWriter`: the same batches, the same options.

The resumable writer makes a checkpoint every 250,000 rows, and continues from it as another process would.
By default it keeps the rows of small epochs for a larger row group, which is less work than the plain
writer does. So it is also measured with the same row groups as the plain one, and that ratio is the result.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakestate.protocol.values import Epoch, Generation
from lakestate.sinks import ParquetFormat
from lakestate.sinks.files.destination import CurrentFileRecovery, FileEncoding
from lakestate.sinks.files.local.attempts import Attempt
from lakestate.sinks.files.local.destinations import LocalDestinations
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.formats.parquet.writer import KEPT_ROW_BYTES_DEFAULT

EPOCHS = 8
EPOCH_ROWS = 250_000
ROUNDS = 8
RATIO_MAX = 1.15


def batches() -> list[pa.RecordBatch]:
    """Keys, text, numbers and times, as in an event stream."""
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


def plain(root: Path, rows: list[pa.RecordBatch]) -> None:
    path, schema = root / "plain.parquet", rows[0].schema
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_index=True) as writer:
        for batch in rows:
            writer.write_batch(batch)


def resumable(root: Path, rows: list[pa.RecordBatch], kept: int | str = KEPT_ROW_BYTES_DEFAULT) -> None:
    """Write with checkpoints. Encoding and decoding them, and syncing the disk, are included."""
    encoding = FileEncoding(ParquetFormat(compression="zstd", kept_row_bytes=kept), rows[0].schema)
    output = LocalOutput(root)
    writer = LocalDestinations(output, _attempt(1)).begin("final.parquet", encoding)
    for number, batch in enumerate(rows, 2):
        writer.write_batch(batch)
        record = msgspec.msgpack.encode(writer.checkpoint())
        writer.release()
        stored = msgspec.msgpack.decode(record, type=CurrentFileRecovery)
        writer = LocalDestinations(output, _attempt(number)).resume("final.parquet", stored, encoding)
    writer.close()


def _attempt(number: int) -> Attempt:
    return Attempt(Epoch(number), Generation(1), "bench")


def measure_seconds(
    write: Callable[[Path, list[pa.RecordBatch]], None], rows: list[pa.RecordBatch]
) -> tuple[float, float]:
    """Wall-clock seconds and CPU seconds, which other work on the machine affects less."""
    with tempfile.TemporaryDirectory() as folder:
        clock, cpu = time.perf_counter(), time.process_time()
        write(Path(folder), rows)
        return time.perf_counter() - clock, time.process_time() - cpu


CONTENDERS = {
    "plain": plain,
    "resumable, the same row groups": partial(resumable, kept=0),
    "resumable, by default": resumable,
}


def main() -> None:
    rows = batches()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    for number in range(ROUNDS):
        # A later contender may find a busier disk.
        for name in sorted(CONTENDERS, reverse=number % 2 == 1):
            found[name].append(measure_seconds(CONTENDERS[name], rows))
    print(f"{EPOCHS * EPOCH_ROWS:,} rows, a checkpoint every {EPOCH_ROWS:,}, best of {ROUNDS}:")
    best = {name: [min(column) for column in zip(*times, strict=True)] for name, times in found.items()}
    for name, (clock, cpu) in best.items():
        print(f"  {name:<32} {clock * 1000:6.0f} ms by the clock {cpu * 1000:6.0f} ms of CPU")
    for name in [*CONTENDERS][1:]:
        clock, cpu = (ours / theirs for ours, theirs in zip(best[name], best["plain"], strict=True))
        verdict = "within" if clock <= RATIO_MAX else "MISSED"
        print(f"{name}: ratio {clock:.3f} ({cpu:.3f} of CPU); at most {RATIO_MAX}: {verdict}")


if __name__ == "__main__":
    main()
