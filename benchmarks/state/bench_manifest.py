"""How large a manifest with very many subtasks is, and how long it takes to write and read."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.core import Benchmark, Contender, Point, Question, Run, at_most
from lakestate.codec import decode_manifest, encode_manifest
from lakestate.protocol.key_ranges import key_range_of
from lakestate.protocol.metadata import Manifest, OperatorEntry, StateSummary, SubtaskEntry
from lakestate.protocol.paths import Paths
from lakestate.protocol.values import Epoch, Generation, ObjectRef

SUBTASKS = (100, 1_000, 10_000)
EPOCH = Epoch(123_456)
SCATTER = 0x9E3779B97F4A7C15

BENCHMARK = Benchmark(
    name="manifest",
    title="Manifests",
    text="The manifest of an epoch in which every subtask of one operator wrote something.",
    contenders=(
        Contender("Lakestate", "Protobuf, as it is stored; processor time"),
        Contender("encode", "from values to bytes"),
        Contender("decode", "from bytes to values, all of them checked"),
    ),
    questions=(
        Question("size", "Bytes of a manifest", "bytes", axis="subtasks"),
        Question(
            "time",
            "Time to write and to read a manifest",
            "ms",
            axis="subtasks",
            aims=(
                at_most(
                    250,
                    "reading the manifest of 10,000 subtasks",
                    Point("decode", {"subtasks": 10_000}),
                    in_readme=False,
                ),
            ),
        ),
    ),
    seconds=(2, 4),
)


def measure(run: Run) -> None:
    for parallelism in SUBTASKS:
        parameters = {"subtasks": parallelism}
        written = manifest(parallelism)
        data = encode_manifest(written)
        assert decode_manifest(data, "benchmark", "benchmark") == written
        run.record("size", "Lakestate", [len(data)], parameters)
        contenders = {
            "encode": lambda _, written=written: [_processor_ms(lambda: encode_manifest(written))],
            "decode": lambda _, data=data: [
                _processor_ms(lambda: decode_manifest(data, "benchmark", "benchmark"))
            ],
        }
        run.compare("time", contenders, parameters, repetitions=run.pick(whole=9, quick=3), warm_up=1)


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


def _processor_ms(act: Callable[[], object]) -> float:
    """Processor time: other work on the machine affects it less."""
    start = time.process_time()
    act()
    return (time.process_time() - start) * 1000
