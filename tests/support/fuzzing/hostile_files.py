"""Feeds hostile data files to what reads them, in a process of its own with little memory.

    python -m tests.support.fuzzing.hostile_files parquet 17 10 /tmp/folder

Native code reads these files, and a bug in it would end the process. The caller sees
that, and finds the file that did it in the folder. The process also ends if decoding runs code or
writes outside of the folder. The last line of output says what was tried.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from tests.support.fuzzing.hostile_bytes import peak_bytes, watch_audit_events
from tests.support.fuzzing.thrift_mutation import with_changed_footer, with_changed_page_header
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.errors import LakestateError
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.values import FileRef
from lakestate.storage.cache.run_cache import RunCache
from lakestate.tables.context import TableContext
from lakestate.tables.runs import files as run_files
from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.run import Run

MEMORY_BYTES_MAX = 6 << 30
"""Address space, most of it only reserved."""
RESIDENT_BYTES_MAX = 600 << 20
"""What may really be used on top of an idle process; the files have a few kilobytes."""
SECONDS_MAX = 20

VALUE = "n bigint, x double, text string, tags array<string>"
TABLE = ls.KeyedTable("t", key="k bigint, name string", value=VALUE)
ROWS = 400
GROUP_ROWS = 100


class Target:
    """A data file of a keyed table with several row groups, and everything that opens it."""

    def __init__(self) -> None:
        from lakestate.tables.runs import parquet as run_parquet

        run_parquet.ROW_GROUP_ROWS = GROUP_ROWS
        self.job = TableJob([TABLE])
        self.job.managers[0].keyed("t").put(_rows())
        self.job.checkpoint()
        self.layout = RunLayout(TABLE.config)
        metadata = self.job.backend.load_operator_metadata("job", 1, "op")[0]
        self.file = metadata.tables[0].files[0]
        assert len(self.file.blocks) == ROWS // GROUP_ROWS
        self.objects = self.job.backend.objects("job")
        self.data = self.objects.store.get(self.objects.store_path(self.file.path)).data
        self.page_starts = _page_starts(self.data)
        self.cached = _cached_bytes(run_files.open_run(self.file, self.layout, self.context(None)).rows)

    def context(self, cache: RunCache | None) -> TableContext:
        task = ls.TaskInfo("job", "op")
        return TableContext(task, self.objects, cache, self.job.backend.ambient, None, 0)

    def open_parquet(self, data: bytes, choose: random.Random) -> None:
        """The whole file, or some of its row groups, under checksums that are right."""
        self.objects.store.put(self.objects.store_path(self.file.path), data)
        forged = _forge_reference(self.file, data)
        if choose.random() < 0.5:
            blocks = self.file.blocks
            keys = KeyRange(blocks[1].keys.first, blocks[2].keys.last)
            forged = replace(forged, valid_keys=keys)
        else:
            forged = replace(forged, blocks=())
        use(run_files.open_run(forged, self.layout, self.context(None)))


def _rows() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "name": [f"name {number}" for number in numbers],
            "n": pa.array(numbers, pa.int64()),
            "x": [number / 4 for number in numbers],
            "text": [None if number % 7 == 0 else "text" * (number % 5) for number in numbers],
            "tags": [["a"] * (number % 3) for number in numbers],
        }
    )


def _page_starts(data: bytes) -> list[int]:
    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [group.column(number).data_page_offset for group in groups for number in range(group.num_columns)]


def _cached_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def _forge_reference(file: FileRef, data: bytes) -> FileRef:
    """A reference with a matching checksum for other bytes, as an attacker could write it."""
    blocks = tuple(
        replace(block, checksum=xxhash.xxh3_64_intdigest(data[block.start : block.start + block.length]))
        for block in file.blocks
    )
    footer = xxhash.xxh3_64_intdigest(data[blocks[-1].start + blocks[-1].length :])
    checksum = xxhash.xxh3_64_intdigest(data)
    return replace(file, size_bytes=len(data), checksum=checksum, blocks=blocks, footer_checksum=footer)


def use(run: Run) -> None:
    """Touch everything that a table would touch. Text may be any bytes, as it may be in Spark."""
    run.build_index()
    backwards = pa.array(range(len(run) - 1, -1, -1))
    for chunk in (chunk for column in run.rows.columns for chunk in column.chunks):
        (chunk.view(pa.binary()) if chunk.type == pa.string() else chunk).validate(full=True)
    run.rows.take(backwards).combine_chunks()


def mutate(data: bytes, choose: random.Random) -> bytes:
    """Some bytes changed, lost, put in or doubled."""
    changed = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        place = choose.randrange(len(changed) + 1)
        match choose.randrange(6):
            case 0:
                changed[place : place + 1] = bytes([choose.randrange(256)])
            case 1:
                changed[place : place + choose.randint(1, 8)] = choose.randbytes(choose.randint(1, 8))
            case 2:
                del changed[place : place + choose.randint(1, 64)]
            case 3:
                changed[place:place] = changed[place : place + choose.randint(1, 64)]
            case 4:
                changed[place : place + 4] = choose.choice([b"\xff" * 4, b"\x00" * 4, b"\xff\xff\xff\x7f"])
            case 5:
                # Near the end, where footers are.
                place = max(0, len(changed) - choose.randint(1, 2000))
                changed[place : place + 1] = bytes([choose.randrange(256)])
    return bytes(changed) or b"\x00"


def parquet_case(target: Target, choose: random.Random) -> Callable[[], bytes]:
    kind = choose.random()
    if kind < 0.4:
        return lambda: with_changed_footer(target.data, choose)
    if kind < 0.75:
        return lambda: with_changed_page_header(target.data, target.page_starts, choose)
    return lambda: mutate(target.data, choose)


def try_case(target: Target, kind: str, choose: random.Random, folder: Path) -> str:
    """Try one hostile file. Returns the outcome."""
    if kind == "parquet":
        data = parquet_case(target, choose)()
        (folder / "tried").write_bytes(data)
        use_it: Callable[[], None] = lambda: target.open_parquet(data, choose)  # noqa: E731
    else:
        data = mutate(target.cached, choose)
        (folder / "tried").write_bytes(data)
        use_it = lambda: open_cached(target, data, folder / "cache")  # noqa: E731
    try:
        with watch_audit_events(folder):
            use_it()
    except LakestateError as refusal:
        return f"refused: {type(refusal).__name__}"
    return "read"


def open_cached(target: Target, data: bytes, folder: Path) -> None:
    """A cached run whose record vouches for hostile bytes: it is read, or fetched again."""
    cache = RunCache(folder, 1 << 30)
    key = run_files._cache_key(target.file, target.layout, target.context(cache))
    for leftover in folder.glob("*.*"):
        leftover.unlink()
    cache.open(key, lambda path: path.write_bytes(data) and None).close()
    run_files._MAPS.clear()
    run_files._SOUND.clear()
    run = run_files.open_run(target.file, target.layout, target.context(cache))
    use(run)


def main() -> None:
    kind, seed, seconds, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    faulthandler.enable()
    target = Target()
    target.open_parquet(target.data, random.Random(0))
    idle_bytes = peak_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    outcomes: Counter[str] = Counter()
    ends_s = time.monotonic() + seconds
    number = seed
    while time.monotonic() < ends_s:
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
        (folder / "seed").write_text(f"{kind} {number}")
        outcomes[try_case(target, kind, random.Random(number), folder)] += 1
        number += 1
        used = peak_bytes() - idle_bytes
        assert used < RESIDENT_BYTES_MAX, f"it took {used >> 20} MiB"
    print(f"{kind}: {number - seed} files from seed {seed}, {dict(outcomes)}, {used >> 20} MiB at most")


if __name__ == "__main__":
    main()
