"""How much memory an open Parquet file takes: a row group, its encoded form, and the parts in flight.

Rows are written to one file and to four at once, as multipart uploads; each file is several times as large
as its row group. What another file adds to the peak must not depend on how large the file grows.

    python -m benchmarks sink_memory
"""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import psutil
import pyarrow as pa

from lakestate.sinks.files.uploads import UploadDestinations
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.storage import open_store

ROW_GROUP_BYTES = 32 << 20
PART_BYTES = 8 << 20
THREADS = 4
FILES = 4
SAMPLE_S = 0.002


def main() -> None:
    # A row group as rows and as encoded bytes, which are fewer, and one part per thread.
    bound = 2 * ROW_GROUP_BYTES + THREADS * PART_BYTES
    for row_groups in (3, 9):
        one, several = peak_bytes(1, row_groups), peak_bytes(FILES, row_groups)
        each = (several - one) / (FILES - 1)
        verdict = "within" if each <= bound else "MISSED"
        print(
            f"{row_groups} row groups of {ROW_GROUP_BYTES >> 20} MiB a file: peak with 1 file "
            f"{one / 2**20:.0f} MiB, with {FILES} files {several / 2**20:.0f} MiB; "
            f"{each / 2**20:.0f} MiB for each further file (at most {bound >> 20}: {verdict})"
        )


def peak_bytes(files: int, row_groups: int) -> int:
    """Measure in a separate process: freed memory is not always returned."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure_growth, files, row_groups).result()


def _measure_growth(files: int, row_groups: int) -> int:
    random = np.random.default_rng(7)
    rows = pa.record_batch({"id": np.arange(1 << 17), "amount": random.random(1 << 17)})
    with tempfile.TemporaryDirectory() as folder:
        sink = ParquetSink(f"file://{folder}", row_group_bytes=ROW_GROUP_BYTES, compression="none")
        uploads = UploadDestinations(open_store(sink.url), PART_BYTES, THREADS, "attempt")
        opened = [
            (sink.file_format.open_writer(rows.schema, None), uploads.begin(f"{number}.parquet"))
            for number in range(files)
        ]
        with _Peak() as peak:
            for _ in range(row_groups * ROW_GROUP_BYTES // rows.nbytes):
                for writer, destination in opened:
                    # A copy of the rows, because Spark delivers new ones for every batch.
                    writer.add_batch_data(pa.RecordBatch.from_arrays(_copy_columns(rows), schema=rows.schema))
                    destination.accept(writer)
            for _, destination in opened:
                destination.checkpoint()
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


if __name__ == "__main__":
    main()
