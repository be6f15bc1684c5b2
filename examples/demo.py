"""A pipeline that is killed and restarted: run it with `make demo`.

The pipeline of `auction.py`, a window, a join and a top-N, runs in a separate process. In the middle of an
epoch, that process, its JVM and its Python workers are killed with SIGKILL; the pipeline is restarted and
continues. The demo then asks DuckDB the same questions of all events at once, compares the answers, and shows
the files on disk.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import NoReturn

import duckdb
import psutil
import pyarrow as pa

import lakestate as ls
from auction import EVERY, SEED
from lakestate.config import duration_us
from lakestate.observability.progress_line import bytes_text
from lakestate.testing.auctions import AuctionHouse, AuctionKind

HERE = Path(__file__).parent
JOB = "auction"

WINDOWS = """
    SELECT auction, time_bucket(INTERVAL '10 seconds', ts) AS window_start, count(*) AS bids,
        max(price) AS highest
    FROM bids GROUP BY ALL
"""
BEST = """
    SELECT id, row_number() OVER (PARTITION BY id ORDER BY price DESC, bids.ts, bidder) AS rank, item,
        bidder, price, bids.ts AS bid_ts
    FROM auctions JOIN bids ON auction = id AND bids.ts BETWEEN auctions.ts AND expires
    QUALIFY rank <= 3
"""
NEWEST = """
    SELECT DISTINCT ON (id, rank) id, rank, item, bidder, price, bid_ts
    FROM best ORDER BY id, rank, price DESC, bid_ts, bidder
"""
"""Of the updates of a rank the last one, which is the best."""


class Demo:
    """One run of the demo, in its own folder."""

    def __init__(self, folder: Path, events: int, events_per_batch: int) -> None:
        self.folder = folder
        self.events = events
        self.events_per_batch = events_per_batch
        self.job = folder / "checkpoints" / JOB
        self.log = folder / "spark.log"
        self.backend = ls.ParquetBackend(f"file://{folder}/checkpoints", cache_dir=folder / "cache")

    def start(self) -> psutil.Popen:
        """Start the pipeline in a separate process. Spark's log goes to a file."""
        command = [sys.executable, str(HERE / "auction.py"), str(self.folder)]
        command += ["--events", str(self.events), "--events-per-batch", str(self.events_per_batch)]
        with self.log.open("a") as log:
            return psutil.Popen(command, stderr=log)

    def kill_in_the_middle(self, pipeline: psutil.Popen) -> None:
        """Wait until half of the epochs are published and the next one has written files; kill everything."""
        half = self.events // self.events_per_batch // 2
        while (newest := self.newest_epoch()) < half or not self.has_files_of(newest + 1):
            if pipeline.poll() is not None:
                self.give_up("the pipeline ended before it was killed")
            time.sleep(0.005)
        family = [pipeline, *pipeline.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family)

    def finish(self, pipeline: psutil.Popen) -> None:
        """Wait until all events are read and committed."""
        if pipeline.wait() != 0:
            self.give_up("the pipeline failed")

    def newest_epoch(self) -> int:
        """The newest published epoch, or 0 before the first."""
        return max((int(record.stem) for record in (self.job / "epochs").glob("*.json")), default=0)

    def has_files_of(self, epoch: int) -> bool:
        """Whether a subtask has written files of an epoch."""
        return (self.job / "checkpoints" / str(epoch)).exists()

    def give_up(self, why: str) -> NoReturn:
        """Exit with the last lines of Spark's log."""
        with self.log.open() as lines:
            sys.stderr.writelines(deque(lines, maxlen=40))
        raise SystemExit(f"{why}; see Spark's log in {self.log}")

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """All events, and what the pipeline has written."""
        found = duckdb.connect()
        found.execute("SET TimeZone = 'UTC'")
        house = AuctionHouse(SEED, event_us=duration_us(EVERY))
        for kind in (AuctionKind.BIDS, AuctionKind.AUCTIONS):
            found.register(kind.value, pa.table(house.rows(kind, 0, kind.rows_in(self.events))))
        for output in ("windows", "best"):
            found.execute(f"CREATE VIEW {output} AS FROM read_parquet('{self.folder}/{output}/*.parquet')")
        return found

    def differences(self, found: str, expected: str) -> tuple[int, int]:
        """How many rows one question has that the other has not, and how many they have together."""
        count = f"SELECT count(*) FROM (({found}) EXCEPT ALL ({expected}))"
        back = f"SELECT count(*) FROM (({expected}) EXCEPT ALL ({found}))"
        (more,), (fewer,) = (self.database.execute(text).fetchall()[0] for text in (count, back))
        (rows,) = self.database.execute(f"SELECT count(*) FROM ({expected})").fetchall()[0]
        return more + fewer, rows


def say(sentence: str) -> None:
    """Print a step of the demo."""
    print(f"\n{sentence}", flush=True)


def show_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table with its numbers aligned to the right."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        for row in [columns, *rows]:
            print("  ".join(f"{cell:>16}" for cell in row))
        return
    table = Table(box=None, padding=(0, 2))
    for name in columns:
        table.add_column(name, justify="left" if name == columns[0] else "right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def show_tree(folder: Path, depth: int = 1) -> None:
    """Print the contents of a folder, with sizes. Of many similar entries, print only the newest."""
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    entries.sort(key=lambda path: (path.is_file(), len(path.name), path.name))
    left_out = max(0, len(entries) - 2) if depth == 2 else 0
    if left_out:
        print(f"{'   ' * depth}… {left_out} more")
    for path in entries[left_out:]:
        size = f"  {bytes_text(path.stat().st_size)}" if path.is_file() else "/"
        print(f"{'   ' * depth}{path.name}{size}")
        if path.is_dir():
            show_tree(path, depth + 1)


def show_best(demo: Demo) -> None:
    """Print the highest of all best bids."""
    rows = demo.database.execute(
        f"SELECT id, item, rank, bidder, price FROM ({NEWEST}) ORDER BY price DESC, id, rank LIMIT 8"
    ).fetchall()
    shown = [
        [f"{id_} {item}", str(rank), str(bidder), f"{price / 100:,.2f}"]
        for id_, item, rank, bidder, price in rows
    ]
    show_table(["auction", "rank", "bidder", "bid"], shown)


def show_result(demo: Demo) -> bool:
    """Print the answers of the pipeline, and compare them with DuckDB's. Returns whether all are equal."""
    say("4. The best bids in the output, and the same questions asked of all events at once, with DuckDB:")
    show_best(demo)
    written = "SELECT auction, window_start, bids, highest FROM windows"
    is_exact = True
    for what, found, expected in (("windows", written, WINDOWS), ("best bids", NEWEST, BEST)):
        different, rows = demo.differences(found, expected)
        print(f"   {what}: {rows:,} rows, equal: {'yes' if not different else f'NO, {different:,} differ'}")
        is_exact = is_exact and not different
    return is_exact


def show_disk(demo: Demo) -> None:
    """Print the files of the state, and what the newest manifest says about them."""
    say(f"5. The state below {demo.job} is Parquet, Protobuf and JSON:")
    show_tree(demo.job)
    manifest = demo.backend.load_checkpoint_metadata(JOB)
    state = manifest.summary
    print(f"   epoch {manifest.epoch} ({manifest.status.name}) by generation {manifest.generation} refers to")
    print(
        f"   {state.file_count} files with {state.row_count:,} rows, {bytes_text(state.size_bytes)}, and says"
    )
    for source in manifest.sources:
        print(f"   how far source {source.source} was read: {source.offsets}")
    say(f"6. A table of that state, read without Spark: ls.read_state(…, {JOB!r}, 'best', 'best')")
    best = ls.read_state(f"file://{demo.folder}/checkpoints", JOB, "best", "best")
    columns = ["id", "rank", "item", "bidder", "price"]
    show_table(columns, [[str(row[name]) for name in columns] for row in best.slice(0, 4).to_pylist()])


def show_commands(demo: Demo) -> None:
    """Look inside with the command that whoever is on call has."""
    say("7. The same from a terminal: the lakestate command. Try it on what is left here.")
    query = "SELECT rank, count(*) AS items FROM best GROUP BY rank ORDER BY rank LIMIT 3"
    for arguments in (["jobs"], ["epochs", JOB, "--limit", "3"], ["sql", JOB, query], ["profile", JOB]):
        command = ["lakestate", "--at", f"{demo.folder}/checkpoints", *arguments]
        print(f"\n   $ {shlex.join(command)}")
        done = subprocess.run(
            [sys.executable, "-m", "lakestate.cli", *command[1:]], capture_output=True, text=True, check=True
        )
        print(indent(done.stdout, "   "), end="")


def main() -> int:
    """Run, kill, run again, compare."""
    arguments = argparse.ArgumentParser(description="A pipeline that is killed in the middle and restarted.")
    arguments.add_argument("--events", type=int, default=250_000)
    arguments.add_argument("--events-per-batch", type=int, default=25_000)
    given = arguments.parse_args()
    folder = Path(tempfile.gettempdir()) / "lakestate-demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    demo = Demo(folder, given.events, given.events_per_batch)
    started = time.monotonic()
    say(f"1. {given.events:,} events of an auction → window, join, top-N → Parquet; one line for each epoch.")
    demo.kill_in_the_middle(demo.start())
    newest = demo.newest_epoch()
    say(f"2. Killed with SIGKILL: driver, JVM and Python workers. The last published epoch is {newest}.")
    if demo.has_files_of(newest + 1):
        print(f"   Epoch {newest + 1} has files but no record, so it was not published.")
    say("3. Restarted: it continues after the last published epoch, until the stream has ended.")
    demo.finish(demo.start())
    equal = show_result(demo)
    show_disk(demo)
    show_commands(demo)
    say(f"Done in {time.monotonic() - started:.0f} seconds. All files are still in {folder}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
