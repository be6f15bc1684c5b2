"""A program is stopped as people and schedulers stop it: by Ctrl-C and SIGTERM, once or twice."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.spark.pipeline_process import Session
from tests.support.spark.pipelines import read_output

import lakestate as ls
from lakestate.testing.auctions import AuctionHouse, AuctionKind


class Program(Session):
    """`signalled_process.py`, in a process group of its own, as a shell would start it."""

    def __init__(self, folder: Path, form: str, hangs_in: int = 0) -> None:
        self.folder = folder
        module = "tests.support.spark.signalled_process"
        command = [sys.executable, "-m", module, str(folder), form, str(hangs_in)]
        env = {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder), "PYSPARK_PYTHON": sys.executable}
        super().__init__(command, folder / f"{form}-{hangs_in}.log", env)

    def press_ctrl_c(self) -> None:
        """A terminal sends SIGINT to everything in the foreground."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """A scheduler sends SIGTERM to the process that it started."""
        os.kill(self._process.pid, signal.SIGTERM)

    def epochs(self) -> list[list[int]]:
        """Epoch and rows of each that has finished."""
        file = self.folder / "epochs"
        lines = file.read_text().splitlines() if file.exists() else []
        return [[int(each) for each in line.split()] for line in lines]

    def check(self) -> None:
        """All rows of all epochs are in finished files, once."""
        rows = sum(count for _, count in self.epochs())
        bids = AuctionHouse(0).rows(AuctionKind.BIDS, 0, rows).select(["bidder", "price"]).to_pylist()
        assert sorted(map(str, read_output(self.folder / "out"))) == sorted(map(str, bids))
        backend = ls.ParquetBackend(f"file://{self.folder}/checkpoints")
        report = ls.verify(backend, "copies", sinks={"out": ls.ParquetSink(f"file://{self.folder}/out")})
        assert report.is_clean


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start_program(form: str, hangs_in: int = 0) -> Program:
        programs.append(Program(tmp_path, form, hangs_in))
        return programs[-1]

    yield start_program
    for program in programs:
        program.kill()


@pytest.mark.parametrize("form", ["call", pytest.param("block", marks=pytest.mark.soak)])
def test_the_first_ctrl_c_finishes_the_epoch_and_the_files(start: Callable[..., Program], form: str) -> None:
    program = start(form)
    program.wait_for(lambda: len(program.epochs()) >= 2)
    program.press_ctrl_c()
    assert program.wait() == 0, program.said()
    assert (program.folder / "ended").exists()
    assert "SIGINT: the running epoch finishes" in program.said()
    assert "SPARK_JOB_CANCELLED" not in program.said()
    # The last epoch only finished the files.
    assert program.epochs()[-1][1] == 0
    program.check()


def test_a_second_signal_ends_a_program_whose_epoch_hangs_and_loses_nothing(
    start: Callable[..., Program],
) -> None:
    program = start("call", hangs_in=2)
    program.wait_for((program.folder / "hangs").exists)
    program.terminate()
    program.wait_for(lambda: "SIGTERM: the running epoch finishes" in program.said())
    program.terminate()
    assert program.wait() == 128 + signal.SIGTERM, program.said()
    assert [epoch for epoch, _ in program.epochs()] == [1]
    again = start("call")
    again.wait_for(lambda: len(again.epochs()) >= 3)
    again.terminate()
    assert again.wait() == 0, again.said()
    again.check()
