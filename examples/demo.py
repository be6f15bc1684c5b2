"""A pipeline that is killed and restarted: run it with `make demo`.

The pipeline of `bidder_totals.py` runs in a separate process. In the middle of an epoch, that process, its
JVM and its Python workers are killed with SIGKILL; the pipeline is restarted and continues. The demo then
compares the result with the same sums computed directly, and shows the files on disk.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakestate as ls
from bidder_totals import BidderTotals
from lakestate.observability.progress_line import bytes_text
from lakestate.operators.operator import state_tables
from lakestate.testing.auctions import AuctionHouse

HERE = Path(__file__).parent
SEED = 7
JOB = "bidder-totals"


class Demo:
    """One run of the demo, in its own folder."""

    def __init__(self, folder: Path, rows: int, rows_per_batch: int) -> None:
        self.folder = folder
        self.rows = rows
        self.rows_per_batch = rows_per_batch
        self.job = folder / "checkpoints" / JOB
        self.log = folder / "spark.log"
        self.backend = ls.ParquetBackend(f"file://{folder}/checkpoints", cache_dir=folder / "cache")

    def start(self) -> psutil.Popen:
        """Start the pipeline in a separate process. Spark's log goes to a file."""
        command = [sys.executable, str(HERE / "bidder_totals.py"), str(self.folder), "--seed", str(SEED)]
        command += ["--rows", str(self.rows), "--rows-per-batch", str(self.rows_per_batch)]
        with self.log.open("a") as log:
            return psutil.Popen(command, stderr=log)

    def kill_in_the_middle(self, pipeline: psutil.Popen) -> None:
        """Wait until half of the epochs are published and the next one has written files; kill everything."""
        half = self.rows // self.rows_per_batch // 2
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
        """Wait until all bids are read and committed."""
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

    def totals_in_output(self) -> tuple[pa.Table, int]:
        """The newest totals of each bidder in the output files, and the number of duplicate rows."""
        output = pq.read_table(self.folder / "out")
        twice = output.num_rows - output.group_by(["bidder", "bids"]).aggregate([]).num_rows
        newest = output.group_by("bidder").aggregate([("bids", "max"), ("cents", "max")])
        return sorted_totals(newest), twice

    def totals_in_state(self) -> pa.Table:
        """The totals in the state table, read without Spark."""
        task, tables = ls.TaskInfo(JOB, "totals"), state_tables(BidderTotals())
        manager = ls.TableManager.load(task, tables, self.backend, ls.Epoch(self.newest_epoch()))
        return sorted_totals(pa.Table.from_batches(manager.keyed("totals").scan()))

    def totals_computed(self) -> pa.Table:
        """The expected result: the sums over all bids at once."""
        bids = pa.table(AuctionHouse(SEED).rows("bids", 0, self.rows, columns=["bidder", "price"]))
        return sorted_totals(bids.group_by("bidder").aggregate([("price", "count"), ("price", "sum")]))


def sorted_totals(rows: pa.Table) -> pa.Table:
    """Totals in a fixed order, with fixed column names."""
    return rows.rename_columns(["bidder", "bids", "cents"]).sort_by("bidder").combine_chunks()


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


def show_top(found: pa.Table, expected: pa.Table) -> None:
    """Print the bidders with the largest sums, as found and as computed."""
    persons = pc.max(expected["bidder"]).as_py() + 1
    names = AuctionHouse(SEED).rows("persons", 0, persons, columns=["name"])["name"]
    top = pc.select_k_unstable(expected, k=8, sort_keys=[("cents", "descending")])
    rows = []
    for want in expected.take(top).to_pylist():
        bidder = want["bidder"]
        pair = [*found.filter(pc.equal(found["bidder"], bidder)).to_pylist(), want]
        bids = [f"{row['bids']:,}" for row in pair]
        money = [f"{row['cents'] / 100:,.2f}" for row in pair]
        rows.append([f"{bidder} {names[bidder]}", *bids, *money])
    show_table(["bidder", "bids", "computed", "sum of prices", "computed"], rows)


def show_result(demo: Demo) -> bool:
    """Print the totals of the output beside those computed directly. Returns whether all are equal."""
    say("4. The newest totals in the output files, beside the same sums computed directly from all bids:")
    output, twice = demo.totals_in_output()
    state, expected = demo.totals_in_state(), demo.totals_computed()
    show_top(output, expected)
    for what, found in (("output", output), ("state", state)):
        print(f"   {what}: {found.num_rows:,} bidders, equal: {'yes' if found.equals(expected) else 'NO'}")
    print(f"   duplicate output rows: {twice}")
    return output.equals(expected) and state.equals(expected) and twice == 0


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
    say(f"6. The output below {demo.folder / 'out'}:")
    show_tree(demo.folder / "out")


def main() -> int:
    """Run, kill, run again, compare."""
    arguments = argparse.ArgumentParser(description="A pipeline that is killed in the middle and restarted.")
    arguments.add_argument("--rows", type=int, default=600_000)
    arguments.add_argument("--rows-per-batch", type=int, default=50_000)
    given = arguments.parse_args()
    folder = Path(tempfile.gettempdir()) / "lakestate-demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    demo = Demo(folder, given.rows, given.rows_per_batch)
    started = time.monotonic()
    say(f"1. {given.rows:,} bids → running totals per bidder → Parquet; one line for each epoch.")
    demo.kill_in_the_middle(demo.start())
    newest = demo.newest_epoch()
    say(f"2. Killed with SIGKILL: driver, JVM and Python workers. The last published epoch is {newest}.")
    if demo.has_files_of(newest + 1):
        print(f"   Epoch {newest + 1} has files but no record, so it was not published.")
    say("3. Restarted: it continues after the last published epoch, and finishes its files at the end.")
    demo.finish(demo.start())
    equal = show_result(demo)
    show_disk(demo)
    say(f"Done in {time.monotonic() - started:.0f} seconds. All files are still in {folder}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
