"""How large a manifest with very many subtasks is, and how long it takes to write and read."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakestate.codec import decode_manifest, encode_manifest
from lakestate.protocol.key_ranges import key_range_of
from lakestate.protocol.metadata import Manifest, OperatorEntry, StateSummary, SubtaskEntry
from lakestate.protocol.paths import Paths
from lakestate.protocol.values import Epoch, Generation, ObjectRef

SUBTASKS = (100, 1_000, 10_000)
ROUNDS = 9
EPOCH = Epoch(123_456)
SCATTER = 0x9E3779B97F4A7C15


def manifest(parallelism: int) -> Manifest:
    """One operator whose subtasks all wrote something in this epoch."""
    paths = Paths("benchmark")
    entries = tuple(
        SubtaskEntry(
            index,
            key_range_of(index, parallelism),
            ObjectRef(paths.subtask_metadata(EPOCH, "totals", index), 2_345, index * SCATTER % 2**64),
            StateSummary(file_count=12, row_count=1_234_567, size_bytes=123_456_789, bytes_written=45_678),
        )
        for index in range(parallelism)
    )
    return Manifest(
        job_id="benchmark",
        epoch=EPOCH,
        generation=Generation(3),
        parent=Epoch(EPOCH - 1),
        started_ms=1_700_000_000_000,
        finished_ms=1_700_000_001_000,
        min_epoch=Epoch(EPOCH - 10),
        watermark_us=1_700_000_000_000_000,
        operators=(OperatorEntry("totals", parallelism, entries),),
    )


def best_ms(act: Callable[[], object]) -> float:
    """Processor time of the fastest of several rounds: the machine may be doing other work too."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        act()
        times.append(time.process_time() - start)
    return min(times) * 1000


def main() -> None:
    columns = (("subtasks", 9), ("bytes", 10), ("each", 9), ("encode", 10), ("decode", 10), ("each", 9))
    print(*(f"{name:>{width}}" for name, width in columns))
    for parallelism in SUBTASKS:
        written = manifest(parallelism)
        data = encode_manifest(written)
        assert decode_manifest(data, "benchmark", "benchmark") == written
        encode = best_ms(lambda written=written: encode_manifest(written))
        decode = best_ms(lambda data=data: decode_manifest(data, "benchmark", "benchmark"))
        print(
            f"{parallelism:>9,} {len(data):>10,} {len(data) / parallelism:>7.1f} B "
            f"{encode:>7.1f} ms {decode:>7.1f} ms {decode / parallelism * 1000:>6.1f} µs"
        )


if __name__ == "__main__":
    main()
