"""How much memory an open Parquet file takes: a row group, its encoded form, and the parts in flight."""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from lakestate.sinks.files.destination import FileEncoding
from lakestate.sinks.files.uploads import UploadDestinations
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.storage import open_store

ROW_GROUP_BYTES = 32 << 20
PART_BYTES = 8 << 20
THREADS = 4
FILES = 4
SAMPLE_S = 0.002


# A row group as rows and as encoded bytes, which are fewer, and one part per thread.
BOUND = 2 * ROW_GROUP_BYTES + THREADS * PART_BYTES
OURS, SIZE = "Lakestate", "row groups in a file"

BENCHMARK = Benchmark(
    name="sink_memory",
    title="Memory of open files",
    text=(
        "Rows are written to one Parquet file and to four at once, as multipart uploads of 8 MiB parts by 4 "
        "threads, with row groups of 32 MiB. What another open file adds to the peak must not depend on how "
        "large the file grows."
    ),
    contenders=(Contender(OURS, "row groups of 32 MiB without compression, parts of 8 MiB"),),
    questions=(
        Question(
            "memory",
            "Peak memory of each further open file, by its size",
            "bytes",
            axis=SIZE,
            aims=tuple(
                at_most(
                    BOUND,
                    f"a further file of {groups} row groups",
                    Point(OURS, {SIZE: groups}),
                    in_readme=False,
                )
                for groups in (3, 9)
            ),
        ),
    ),
    seconds=(15, 40),
)


def measure(run: Run) -> None:
    for groups in run.pick(whole=(3, 9), quick=(3,)):

        def further(number: int, groups: int = groups) -> list[float]:
            one, several = peak_bytes(1, groups), peak_bytes(FILES, groups)
            return [max(0, several - one) / (FILES - 1)]

        run.compare("memory", {OURS: further}, {SIZE: groups}, repetitions=run.pick(whole=3, quick=1))


def peak_bytes(files: int, row_groups: int) -> int:
    """Measure in a separate process: freed memory is not always returned."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure_growth, files, row_groups).result()


def _measure_growth(files: int, row_groups: int) -> int:
    random = np.random.default_rng(7)
    rows = pa.record_batch({"id": np.arange(1 << 17), "amount": random.random(1 << 17)})
    with tempfile.TemporaryDirectory() as folder:
        sink = ParquetSink(f"file://{folder}", row_group_bytes=ROW_GROUP_BYTES, compression="none")
        uploads = UploadDestinations(open_store(sink.url), PART_BYTES, THREADS)
        encoding = FileEncoding(sink.file_format, rows.schema)
        opened = [uploads.begin(f"{number}.parquet", encoding) for number in range(files)]
        with _Peak() as peak:
            for _ in range(row_groups * ROW_GROUP_BYTES // rows.nbytes):
                for writer in opened:
                    # A copy of the rows, because Spark delivers new ones for every batch.
                    writer.write_batch(pa.RecordBatch.from_arrays(_copy_columns(rows), schema=rows.schema))
            for writer in opened:
                writer.checkpoint()
        uploads.close()
    return peak.grown_bytes


def _copy_columns(rows: pa.RecordBatch) -> list[pa.Array]:
    return [pa.array(column.to_numpy().copy()) for column in rows.columns]


class _Peak:
    """How far this process grows while it works, sampled by a thread."""

    def __enter__(self) -> _Peak:
        self._process = psutil.Process(os.getpid())
        self._before = self._most = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def grown_bytes(self) -> int:
        return self._most - self._before

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self._most = max(self._most, self._process.memory_info().rss)
