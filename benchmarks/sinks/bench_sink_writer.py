"""The resumable Parquet writer against a plain `pq.ParquetWriter`: the same batches, the same options."""

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

from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from lakestate.protocol.values import Epoch, Generation
from lakestate.sinks import ParquetFormat
from lakestate.sinks.files.destination import CurrentFileRecovery, FileEncoding
from lakestate.sinks.files.local.attempts import Attempt
from lakestate.sinks.files.local.destinations import LocalDestinations
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.formats.parquet.writer import KEPT_ROW_BYTES_DEFAULT

EPOCHS = 8
EPOCH_ROWS = 250_000
RATIO_MAX = 1.15
PLAIN, SAME, DEFAULT = "pyarrow", "Lakestate, the same row groups", "Lakestate"

BENCHMARK = Benchmark(
    name="sink_writer",
    title="The Parquet writer of sinks",
    text=(
        f"{EPOCHS * EPOCH_ROWS:,} rows of an event stream into one Parquet file on the local disk, with a "
        f"checkpoint every {EPOCH_ROWS:,} rows from which the writer continues as another process would. By "
        "default it keeps the rows of small epochs for a larger row group, which is less work than the plain "
        "writer does. So it is also measured with the same row groups."
    ),
    contenders=(
        Contender(PLAIN, "`pq.ParquetWriter`, zstd, page index, no checkpoints"),
        Contender(SAME, "zstd, page index, `kept_row_bytes=0`; checkpoints are encoded and synced"),
        Contender(DEFAULT, "zstd, page index, all defaults; checkpoints are encoded and synced"),
    ),
    questions=(
        Question(
            "time",
            "Time to write 2M rows with 8 checkpoints",
            "ms",
            aims=(
                at_most(
                    RATIO_MAX,
                    "a file with checkpoints and the same row groups, against a plain one",
                    Point(SAME),
                    Point(PLAIN),
                    why="a checkpoint waits until the disk has its bytes.",
                ),
            ),
        ),
        Question("processor", "Processor time of the same", "ms"),
    ),
    seconds=(8, 25),
)


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


CONTENDERS = {PLAIN: plain, SAME: partial(resumable, kept=0), DEFAULT: resumable}


def measure(run: Run) -> None:
    rows = batches()

    def timed(number: int, name: str) -> list[float]:
        clock, processor = measure_seconds(CONTENDERS[name], rows)
        if number:
            run.record("processor", name, [processor * 1000])
        return [clock * 1000]

    contenders = {name: lambda number, name=name: timed(number, name) for name in CONTENDERS}
    run.compare("time", contenders, repetitions=run.pick(whole=8, quick=2), warm_up=1)
