"""Hostile data files and cached runs under checksums that are right: they are read, or refused.

Native code reads them, so a process of its own does it, with bounded memory: see `fuzz_files`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.fuzzing.hostile_bytes import decodes_or_refuses
from tests.support.jobs.table_job import TableJob
from tests.support.repository import ROOT

import lakestate as ls
from lakestate.errors import CorruptionError
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs import files as run_files
from lakestate.tables.runs.parquet import decode_run, encode_run

pytestmark = pytest.mark.fuzz

SEED = 20_000
SECONDS = 4
ROWS = 20_000_000


def run_fuzzer(kind: str, seed: int, seconds: float, folder: Path) -> str:
    """Run the fuzzer; its last line. What ended it otherwise is a failure, and names its seed."""
    command = [
        sys.executable,
        "-m",
        "tests.support.fuzzing.hostile_files",
        kind,
        str(seed),
        str(seconds),
        str(folder),
    ]
    # Its address space is bounded, and every thread reserves some: not one for each of many processors.
    few = {"OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "2"}
    env = os.environ | few | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    tried = (folder / "seed").read_text() if (folder / "seed").exists() else "nothing"
    assert done.returncode == 0, f"{tried} ended it with {done.returncode}:\n{done.stderr[-4000:]}"
    return done.stdout.strip()


@pytest.mark.parametrize("kind", ["parquet", "cache"])
def test_hostile_files_do_not_end_the_process_nor_take_its_memory(
    kind: str, tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    soak = pytestconfig.getoption("--soak")
    seconds = float(os.environ.get("SOAK_MINUTES", "10")) * 60 if soak else SECONDS
    seed = random.SystemRandom().randrange(10**9) if soak else SEED
    told = run_fuzzer(kind, seed, seconds, tmp_path)
    if soak:
        with capsys.disabled():
            print(f"\n{told}")


def bomb(rows: int) -> pa.Buffer:
    """A file of equal rows: a few kilobytes that stand for gigabytes."""
    config = ls.KeyedTable("t", key="k bigint", value="n bigint").config
    schema = pa.schema([("k", pa.int64())], metadata=CheckpointParquetMetadata.of(config).to_key_values())
    zeros = pa.table([pa.array([0] * 1000, pa.int64())], schema=schema)
    sink = pa.BufferOutputStream()
    encoding = {"k": "DELTA_BINARY_PACKED"}
    with pq.ParquetWriter(sink, schema, use_dictionary=False, column_encoding=encoding) as writer:
        many = pa.concat_tables([zeros] * (rows // 1000)).combine_chunks()
        writer.write_table(many, row_group_size=rows)
    return sink.getvalue()


def test_a_file_of_more_rows_than_its_reference_says_is_refused_before_it_is_decoded() -> None:
    data = bomb(ROWS)
    assert data.size < ROWS // 10
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(CorruptionError, match="another number of rows"):
        decode_run(data, "bomb.parquet", 5)
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert pa.default_memory_pool().max_memory() - peak < 1 << 20


def test_good_files_of_equal_values_are_tiny_too_so_no_file_is_refused_for_that() -> None:
    rows = pa.table({"k": range(200), "v": ["x" * 100_000] * 200})
    data = encode_run(rows, {})
    assert data.size < rows.nbytes // 5000
    assert decode_run(data, "good.parquet", 200).equals(rows)


def test_a_cached_run_that_is_none_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ls.KeyedTable("t", key="k bigint", value="n bigint")
    job = TableJob([table])
    try:
        job.managers[0].keyed("t").put(pa.table({"k": [1, 2], "n": [10, 20]}))
        with monkeypatch.context() as patched:
            # What goes into the cache is not what was stored, and its record vouches for it.
            patched.setattr(run_files, "_write_arrow_file", lambda path, rows: path.write_bytes(b"no run"))
            job.checkpoint()
        job.restart()
        rows = [row for batch in job.managers[0].keyed("t").scan() for row in batch.to_pylist()]
        assert sorted(row["n"] for row in rows) == [10, 20]
    finally:
        job.close()


def openings() -> list[Callable[[], object]]:
    """Small inputs that announce something huge."""
    from lakestate.codec import decode_manifest, decode_subtask
    from lakestate.coordinator.epoch_plan import SubtaskReport, decode_pre_commits
    from lakestate.sinks.files.pre_commit import PreCommit

    huge_array, huge_map, huge_bytes = (
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    )
    inputs = [huge_array, huge_map, huge_bytes, b"\x93" + huge_array, b"\x81\xa3tag" + huge_bytes]
    message = b"\x0a\xff\xff\xff\xff\x0f"
    return [
        *[lambda data=data: decode_pre_commits(data, "m") for data in inputs],
        *[lambda data=data: PreCommit.decode(data) for data in inputs],
        *[lambda data=data: SubtaskReport.decode(data) for data in inputs],
        lambda: decode_manifest(message, "m", "job"),
        lambda: decode_subtask(message * 100, "m", "job"),
    ]


def test_an_announced_length_is_not_believed() -> None:
    for decode in openings():
        tracemalloc.start()
        try:
            decodes_or_refuses(decode)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20
