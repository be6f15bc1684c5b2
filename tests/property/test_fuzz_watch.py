"""What watches decoding notices a decoder that runs code, writes elsewhere, or takes memory."""

from __future__ import annotations

import os
import pickle
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.fuzzing import hostile_files as fuzz_files
from tests.support.fuzzing.hostile_bytes import MEMORY_BYTES_MAX, decodes_or_refuses

from lakestate.errors import CorruptionError

CODE = compile("1 + 1", "planted", "eval")
PICKLED = pickle.dumps(os.getpid)


def swallowed() -> None:
    try:
        pickle.loads(PICKLED)
    except BaseException as error:
        raise CorruptionError("damaged", object_name="object", found="anything") from error


def connected() -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("planted", "event"),
    [
        (lambda: pickle.loads(PICKLED), "pickle.find_class"),
        (swallowed, "pickle.find_class"),
        (lambda: eval("1 + 1"), "compile"),
        (lambda: eval(CODE), "exec"),
        (lambda: __import__("marshal").loads(b"i\x01\x00\x00\x00"), "marshal.loads"),
        (lambda: os.system("true"), "os.system"),
        (lambda: subprocess.run([sys.executable, "--version"], check=True), "subprocess.Popen"),
        (lambda: os.execv("/bin/true", ["true"]), "os.exec"),
        (lambda: os.posix_spawn("/bin/true", ["true"], {}), "os.posix_spawn"),
        (connected, "socket.connect"),
    ],
)
def test_a_decoder_that_runs_something_is_noticed_and_stopped(
    planted: Callable[[], object], event: str
) -> None:
    with pytest.raises(AssertionError, match=rf"what nothing that reads may do: {event}"):
        decodes_or_refuses(planted)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"x"),
        lambda path: os.open(path, os.O_CREAT),
        lambda path: path.mkdir(),
        lambda path: (path.parent / "root" / "inside").rename(path),
        lambda path: path.symlink_to("root"),
        lambda path: (path.parent / "root" / ".." / path.name).touch(),
        lambda path: (path.parent / "victim").unlink(),
    ],
)
def test_a_decoder_that_changes_a_file_outside_its_root_is_noticed_and_stopped(
    change: Callable[[Path], object], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for file in (root / "inside", tmp_path / "victim"):
        file.write_bytes(b"mine")
    with pytest.raises(AssertionError, match="what nothing that reads may do"):
        decodes_or_refuses(lambda: change(tmp_path / "outside"), root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "victim"]


def test_what_reads_hostile_files_is_watched_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Planted:
        def open_parquet(self, data: bytes, choose: random.Random) -> None:
            pickle.loads(PICKLED)

    monkeypatch.setattr(fuzz_files, "parquet_case", lambda target, choose: lambda: b"anything")
    with pytest.raises(AssertionError, match=r"what nothing that reads may do: pickle\.find_class"):
        fuzz_files.try_case(Planted(), "parquet", random.Random(0), tmp_path)  # type: ignore[arg-type]


def test_files_may_be_read_anywhere_written_below_the_root_and_modules_imported(tmp_path: Path) -> None:
    sys.modules.pop("colorsys", None)

    def decode() -> bytes:
        import colorsys

        (tmp_path / "inside").write_bytes(Path(colorsys.__file__).read_bytes()[:1])
        return (tmp_path / "inside").read_bytes()

    assert decodes_or_refuses(decode, tmp_path) == b'"'


def test_a_decoder_that_takes_memory_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"it took \d+ MiB"):
        decodes_or_refuses(lambda: len(b"x" * (MEMORY_BYTES_MAX + (50 << 20))))
    assert decodes_or_refuses(lambda: len(b"x" * 1000)) == 1000
