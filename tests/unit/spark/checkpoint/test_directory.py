"""The folder of Spark's logs: one for each driver, and nobody else's is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import NamedBytes
from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.checkpoint.offsets import rebuild_directory

LEFT_BEHIND = """
import os, signal, sys
from pathlib import Path
from lakestate.spark.checkpoint.directory import SparkDirectory
directory = SparkDirectory(Path(sys.argv[1]), "totals")
(directory.path / "metadata").write_text("{}")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_two_drivers_of_a_job_on_one_host_have_a_folder_each(tmp_path: Path) -> None:
    older = SparkDirectory(tmp_path / "spark", "totals")
    newer = SparkDirectory(tmp_path / "spark", "totals")
    assert older.path != newer.path
    assert older.path.is_dir()
    older.remove()
    older.remove()
    assert list((tmp_path / "spark").iterdir()) == [newer.path]
    newer.remove()


@pytest.mark.slow
def test_what_a_killed_driver_left_is_removed_by_the_next_and_nothing_else_is(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEFT_BEHIND, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    for name in ("lakestate-spark-other-x", "offsets"):
        (tmp_path / name).mkdir()
    (tmp_path / "lakestate-spark-totals-somefile").write_text("a file of somebody")
    (tmp_path / "lakestate-spark-totals-somelink").symlink_to(tmp_path / "offsets")
    mine = SparkDirectory(tmp_path, "totals")
    assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path != mine.path) == [
        "lakestate-spark-other-x",
        "lakestate-spark-totals-somefile",
        "lakestate-spark-totals-somelink",
        "offsets",
    ]


def test_a_folder_in_use_stays_when_its_job_starts_on_the_host_again(tmp_path: Path) -> None:
    live = SparkDirectory(tmp_path, "totals")
    rebuild_directory(live.path, [NamedBytes("metadata", b"{}")])
    SparkDirectory(tmp_path, "totals").remove()
    assert [path.name for path in live.path.iterdir()] == ["metadata"]
    live.remove()


def test_a_job_whose_name_begins_like_ours_keeps_its_folder(tmp_path: Path) -> None:
    # Nobody holds a lock on it, as in the moment before it is locked.
    others = SparkDirectory(tmp_path, "totals-eu")
    path = others.path.rename(tmp_path / "moved")
    others.remove()
    path.rename(others.path)
    SparkDirectory(tmp_path, "totals").remove()
    assert list(tmp_path.iterdir()) == [others.path]
    SparkDirectory(tmp_path, "totals-eu").remove()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"Spark's logs cannot be kept in this directory: .*/file"):
        SparkDirectory(tmp_path / "file", "totals")
