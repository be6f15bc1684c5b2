"""Spark's checkpoint directory: what is kept of it, and how it is rebuilt."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.support.jobs.small_job import fresh_memory
from tests.support.spark.stored_files import restore_files, store_files

from lakestate.codec.engine_files import COMMITTED_BATCH
from lakestate.coordinator.engine.batches import EngineFiles, engine_files_without_batch
from lakestate.errors import CorruptionError, IncompatibleStateError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest, NamedBytes
from lakestate.protocol.values import Epoch
from lakestate.spark.checkpoint.offsets import read_engine_files, rebuild_directory, source_offsets

JOB = JobObjects(fresh_memory(), "job")
QUERY = b'{"id":"8d1f2a8e-6f6e-4a55-9a39-5b1f64a3b2c1"}'


def offsets(*sources: str) -> bytes:
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
    return "\n".join(["v1", metadata, *sources]).encode()


def file_log(*numbers: int) -> bytes:
    entries = [f'{{"path":"file:///in/{number}","timestamp":1,"batchId":{number}}}' for number in numbers]
    return "\n".join(["v1", *entries]).encode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """As Spark leaves it while batch 12 runs: the file source's log was summed up once."""
    files = {
        "metadata": QUERY,
        ".metadata.crc": b"?",
        **{f"offsets/{batch}": offsets(f'{{"logOffset":{batch}}}') for batch in range(13)},
        **{f"commits/{batch}": COMMITTED_BATCH for batch in range(12)},
        **{f"sources/0/{batch}": file_log(batch) for batch in range(13) if batch != 9},
        "sources/0/9.compact": file_log(*range(10)),
        "sources/0/.12.crc": b"?",
    }
    for name, data in files.items():
        path = tmp_path / "spark" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "spark"


def read_before(directory: Path) -> Manifest:
    """What was kept with batch 11, when batch 12 had not begun."""
    log = directory / "sources/0/12"
    data = log.read_bytes()
    log.unlink()
    before = read_engine_files(directory, Epoch.of_batch(11))
    log.write_bytes(data)
    return store_files(before, Epoch.of_batch(11), JOB)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


class TestKeeping:
    def test_only_what_the_next_batch_needs_is_kept(self, directory: Path) -> None:
        found = {file.name: file.data for file in read_engine_files(directory, Epoch.of_batch(12)).files}
        assert found == {
            "metadata": QUERY,
            "offsets/11": offsets('{"logOffset":11}'),
            "offsets/12": offsets('{"logOffset":12}'),
            "commits/11": COMMITTED_BATCH,
            "commits/12": COMMITTED_BATCH,
            "sources/0/9.compact": file_log(*range(10)),
            "sources/0/10": file_log(10),
            "sources/0/11": file_log(11),
            "sources/0/12": file_log(12),
        }

    def test_a_directory_without_the_batch_is_not_its_checkpoint(self, directory: Path) -> None:
        with pytest.raises(CorruptionError, match="offsets/13"):
            read_engine_files(directory, Epoch.of_batch(13))

    def test_rebuilding_leaves_exactly_what_was_kept(self, directory: Path) -> None:
        files = read_engine_files(directory, Epoch.of_batch(12)).files
        (directory / "offsets/99").write_bytes(b"of an earlier job")
        rebuild_directory(directory, files)
        assert contents(directory) == {file.name: file.data for file in files}

    def test_rebuilding_from_nothing_leaves_an_empty_directory(self, directory: Path) -> None:
        rebuild_directory(directory, ())
        assert contents(directory) == {}

    def test_rebuilding_keeps_the_folder_itself_whose_lock_says_that_it_is_in_use(
        self, directory: Path, tmp_path: Path
    ) -> None:
        (directory / "link").symlink_to(tmp_path)
        # Held open, as by whoever locks it: another folder cannot get its number.
        descriptor = os.open(directory, os.O_RDONLY)
        rebuild_directory(directory, [NamedBytes("metadata", b"{}")])
        assert os.path.samestat(os.fstat(descriptor), directory.stat())
        os.close(descriptor)
        assert [path.name for path in directory.iterdir()] == ["metadata"]

    def test_a_folder_that_is_not_there_is_made(self, tmp_path: Path) -> None:
        rebuild_directory(tmp_path / "a" / "b", [NamedBytes("metadata", b"{}")])
        assert contents(tmp_path / "a" / "b") == {"metadata": b"{}"}


class TestALogOfASource:
    """Without it a source would read again what it has read."""

    @pytest.mark.parametrize("lost", ["sources/0/10", "sources/0/9.compact"])
    def test_one_that_is_gone_since_the_epoch_before_is_missed(self, directory: Path, lost: str) -> None:
        before = read_before(directory)
        (directory / lost).unlink()
        with pytest.raises(CorruptionError, match=f"lost a log of a source: .*/{lost}"):
            read_engine_files(directory, Epoch.of_batch(12), before)

    def test_all_of_them_are_missed(self, directory: Path) -> None:
        before = read_before(directory)
        shutil.rmtree(directory / "sources")
        with pytest.raises(CorruptionError, match="lost a log of a source"):
            read_engine_files(directory, Epoch.of_batch(12), before)

    def test_those_that_a_later_one_sums_up_may_go(self, directory: Path) -> None:
        before = read_before(directory)
        for name in ("9.compact", "10", "11", "12"):
            (directory / "sources/0" / name).unlink()
        (directory / "sources/0/12.compact").write_bytes(file_log(*range(13)))
        stored = store_files(
            read_engine_files(directory, Epoch.of_batch(12), before), Epoch.of_batch(12), JOB
        )
        after = restore_files(stored, JOB)
        assert {file.name: file.data for file in after}["sources/0/12.compact"] == file_log(*range(13))
        assert [file.name for file in after if file.name.startswith("sources/")] == ["sources/0/12.compact"]


class TestAnEpochWithoutABatch:
    def test_it_stands_for_a_batch_that_read_nothing_more(self, directory: Path) -> None:
        files = read_engine_files(directory, Epoch.of_batch(12))
        parent = store_files(files, Epoch.of_batch(12), JOB)
        found = {
            file.name: file.data for file in engine_files_without_batch(parent, Epoch.of_batch(13)).files
        }
        kept = {file.name: file.data for file in files.files}
        del kept["offsets/11"], kept["commits/11"]
        assert found == {**kept, "offsets/13": kept["offsets/12"], "commits/13": COMMITTED_BATCH}

    def test_the_first_epoch_of_a_job_has_nothing_to_follow(self) -> None:
        assert engine_files_without_batch(None, Epoch(1)) == EngineFiles(())


class TestSourceOffsets:
    def test_each_source_has_a_line(self) -> None:
        files = [NamedBytes("offsets/4", offsets('{"a":1}', '{"b":2}'))]
        assert source_offsets(files, Epoch(5), 2) == ['{"a":1}', '{"b":2}']

    def test_all_lines_of_a_source_that_reads_from_two_places_are_returned(self) -> None:
        files = [NamedBytes("offsets/4", offsets('{"a":1}', '{"b":2}'))]
        assert source_offsets(files, Epoch(5), 1) == ['{"a":1}\n{"b":2}']

    def test_an_unknown_version_is_refused(self) -> None:
        with pytest.raises(IncompatibleStateError, match="found v9"):
            source_offsets([NamedBytes("offsets/4", b"v9\n{}\n{}")], Epoch(5), 1)
