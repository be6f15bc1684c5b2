"""A job continues from an earlier epoch: with its state, offsets and open files, and without losing a row."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.sinks.event_job import JOB, SCHEMA, SINK, EventJob

import lakestate as ls
from lakestate.coordinator.epoch_plan import Ending
from lakestate.errors import CorruptionError, FencedError, NotFoundError, VisibleOutputError
from lakestate.protocol.metadata import WentBack
from lakestate.protocol.values import Epoch
from lakestate.repair import GoneBack, LaterOutput, go_back
from lakestate.sinks.formats.parquet.sink import ParquetSink
from lakestate.testing.faults import Fault, FaultyStore, Operation

URLS = ("file", "memory")


class BackAndForth(EventJob):
    """A job whose rows are numbered, epoch by epoch, and say in which epoch they were written."""

    def write(self, first: int, count: int = 2, **settings: Any) -> None:
        """One epoch, whose rows go to all subtasks in turn."""
        numbers = range(first, first + count)
        batches = [
            pa.record_batch(
                {
                    "n": [number for number in numbers if number % self.parallelism == index],
                    "country": ["x" for number in numbers if number % self.parallelism == index],
                },
                schema=SCHEMA,
            )
            for index in range(self.parallelism)
        ]
        self.epoch(*batches, **settings)

    def finish(self) -> None:
        self.epoch(ending=Ending.FINISH_FILES)

    def back(self, to: int | str, **settings: Any) -> GoneBack:
        gone = go_back(self.backend, JOB, to, sinks={SINK: self.sink}, **settings)
        self.start()
        return gone

    def visible(self) -> Counter[int]:
        """How often each row can be read."""
        assert isinstance(self.sink, ParquetSink)
        store = self.sink.store
        found: Counter[int] = Counter()
        for info in store.list(""):
            if info.path.endswith(".parquet") and not info.path.startswith("."):
                found.update(pq.read_table(pa.BufferReader(store.get(info.path).data))["n"].to_pylist())
        return found

    def damage(self, path: str) -> None:
        job = self.backend.objects(JOB)
        data = bytearray(job.store.get(job.store_path(path)).data)
        data[len(data) // 2] ^= 1
        job.store.put(job.store_path(path), bytes(data))


@pytest.fixture(params=URLS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> BackAndForth:
    url = f"file://{tmp_path}/out" if request.param == "file" else f"memory://{uuid.uuid4().hex}"
    sink = ls.ParquetSink(url, part_bytes=200, kept_row_bytes=0, upload_threads=0)
    return BackAndForth(sink, parallelism=2)


def test_a_file_that_is_still_open_continues_where_the_epoch_left_it(job: BackAndForth) -> None:
    for first in (0, 2, 4, 6):
        job.write(first)
    gone = job.back(2)
    assert gone == GoneBack(Epoch(2), Epoch(5), LaterOutput(JOB, Epoch(2), Epoch(4)), ())
    manifest = job.backend.load_checkpoint_metadata(JOB)
    assert (manifest.epoch, manifest.parent, manifest.went_back) == (5, 4, WentBack(Epoch(2), Epoch(5)))
    # Rows 4 to 7 come again, in other epochs and in another order.
    job.write(6)
    job.write(4)
    job.finish()
    assert job.visible() == Counter(range(8))
    assert ls.verify(job.backend, JOB, sinks={SINK: job.sink}).is_clean


def test_a_file_that_was_finished_since_is_not_continued_and_nothing_of_it_is_lost(job: BackAndForth) -> None:
    job.write(0)
    job.write(2)
    job.write(4)
    job.finish()
    job.write(6)
    with pytest.raises(VisibleOutputError) as refused:
        job.back(2)
    output = refused.value.output
    assert isinstance(output, LaterOutput)
    assert {(file.sink_id, file.epoch, file.opened_epoch) for file in output.files} == {(SINK, 4, 1)}
    assert sum(file.rows for file in output.files) == 6
    assert "sink out: 2 files, 6 rows" in str(refused.value)
    gone = job.back(2, accept_visible_output=True)
    assert gone.output == output
    assert sorted(gone.finished_files) == sorted(file.path for file in output.files)
    job.write(4)
    job.write(6)
    job.finish()
    # Rows 4 and 5 were visible before, and are written again, as was said.
    assert job.visible() == Counter(range(8)) + Counter([4, 5])
    assert ls.verify(job.backend, JOB, sinks={SINK: job.sink}).is_clean


def test_an_epoch_that_was_given_up_with_open_files_is_refused_before_anything_happens(
    job: BackAndForth,
) -> None:
    """The hidden file of its rows may be gone, and the file is continued without them."""
    job.write(0)
    job.write(2)
    job.back(1)
    job.write(4)
    with pytest.raises(ls.IncompatibleStateError, match="epoch 2 was given up when the job went back"):
        go_back(job.backend, JOB, 2, sinks={SINK: job.sink})
    job.write(2)
    gone = job.back(1, accept_visible_output=True)
    assert gone.epoch == 3
    job.finish()
    assert job.visible() == Counter(range(6))


def test_an_epoch_that_was_given_up_is_continued_if_its_files_were_finished(job: BackAndForth) -> None:
    job.write(0)
    job.write(2)
    job.finish()
    job.back(1, accept_visible_output=True)
    job.write(4)
    gone = job.back(2, accept_visible_output=True)
    assert (gone.epoch, len(gone.finished_files)) == (6, 2)
    job.write(4)
    job.finish()
    assert job.visible() == Counter(range(6))


def test_a_refusal_fences_nobody(job: BackAndForth) -> None:
    job.write(0)
    job.finish()
    with pytest.raises(VisibleOutputError):
        go_back(job.backend, JOB, 1, sinks={SINK: job.sink})
    job.write(2)
    assert job.driver.parent is not None
    assert job.driver.parent.epoch == 3


def test_a_running_driver_is_fenced(job: BackAndForth) -> None:
    job.write(0)
    job.write(2)
    go_back(job.backend, JOB, 1, sinks={SINK: job.sink})
    with pytest.raises(FencedError):
        job.write(4)


def test_going_back_twice_is_going_back_once(job: BackAndForth, caplog: pytest.LogCaptureFixture) -> None:
    """A program that names the epoch may be started again and again."""
    for first in (0, 2, 4):
        job.write(first)
    job.back(1)
    job.write(2)
    with caplog.at_level(logging.WARNING, "lakestate.repair"):
        assert job.back(1).epoch == 4
    assert "to go back once more, name epoch 4" in caplog.text
    assert job.driver.parent is not None
    assert job.driver.parent.epoch == 5
    assert job.back(4).epoch == 6
    job.write(2)
    job.finish()
    assert job.visible() == Counter(range(4))


def test_going_back_to_the_newest_epoch_changes_nothing(job: BackAndForth) -> None:
    job.write(0)
    before = job.backend.load_checkpoint_metadata(JOB)
    assert job.back(1).epoch == 1
    assert job.backend.load_checkpoint_metadata(JOB) == before


def test_a_tag_keeps_the_way_back_open(job: BackAndForth) -> None:
    job.write(0)
    job.backend.create_tag(JOB, "before-sale")
    for first in range(2, 40, 2):
        job.write(first)
    assert job.backend.objects(JOB).read_boundary() is not None
    with pytest.raises(VisibleOutputError, match="not known of epochs 2 to"):
        job.back("before-sale")
    gone = job.back("before-sale", accept_visible_output=True)
    assert (gone.to, gone.epoch) == (1, 21)
    for first in range(2, 40, 2):
        job.write(first)
    job.finish()
    assert job.visible() == Counter(range(40))
    assert ls.verify(job.backend, JOB, sinks={SINK: job.sink}).is_clean
    with pytest.raises(NotFoundError, match="found before-sale"):
        job.back("after-sale")


@pytest.mark.parametrize("damaged", ["epochs/0000000003.json", "checkpoints/3/manifest.pb"])
def test_a_damaged_newest_epoch_is_left_where_it_is(job: BackAndForth, damaged: str) -> None:
    job.write(0)
    job.write(2)
    job.write(4)
    job.damage(damaged)
    with pytest.raises(CorruptionError, match="start\\(from_epoch=2\\)"):
        job.start()
    with pytest.raises(VisibleOutputError, match="not known of epoch 3"):
        job.back(2)
    gone = job.back(2, accept_visible_output=True)
    assert (gone.epoch, gone.finished_files) == (4, ())
    job.write(4)
    job.finish()
    assert job.visible() == Counter(range(6))


def test_a_file_that_a_damaged_epoch_finished_is_not_continued(job: BackAndForth) -> None:
    job.write(0)
    job.write(2)
    job.finish()
    job.damage("checkpoints/3/manifest.pb")
    gone = job.back(2, accept_visible_output=True)
    assert len(gone.finished_files) == 2
    job.write(4)
    job.finish()
    assert job.visible() == Counter(range(6))


def test_the_record_of_a_committed_epoch_that_is_gone_is_not_written_again(job: BackAndForth) -> None:
    job.write(0)
    job.write(2)
    objects = job.backend.objects(JOB)
    objects.store.delete_many([objects.store_path(objects.paths.epoch_record(Epoch(2)))])
    assert job.back(1, accept_visible_output=True).epoch == 3
    job.write(2)
    job.finish()
    assert job.visible() == Counter(range(4))


def test_an_epoch_that_was_never_committed_is_committed_on_the_way(job: BackAndForth) -> None:
    job.write(0)
    job.start(commit=_fail)
    with pytest.raises(RuntimeError):
        job.finish()
    gone = job.back(1, accept_visible_output=True)
    assert len(gone.finished_files) == 2
    job.write(2)
    job.finish()
    assert job.visible() == Counter(range(4))


def _fail(*_: object) -> None:
    raise RuntimeError("the process ends here")


def test_output_that_can_never_be_committed_is_said(tmp_path: Path) -> None:
    job = BackAndForth(ls.ParquetSink(f"file://{tmp_path}", roll=ls.Roll(bytes=1)), parallelism=1)
    job.write(0)
    job.start(commit=_fail)
    with pytest.raises(RuntimeError):
        job.write(2)
    for hidden in (tmp_path / ".lakestate" / "open").iterdir():
        hidden.unlink()
    with pytest.raises(NotFoundError, match="from_epoch"):
        job.start()
    with pytest.raises(VisibleOutputError, match="sink out: 1 file, 2 rows"):
        job.back(1)
    gone = job.back(1, accept_visible_output=True)
    assert "epoch 2 cannot be committed, and may be visible in part: a finished file is gone" in str(
        gone.output
    )
    job.write(2)
    assert job.visible() == Counter(range(4))


def test_a_file_whose_rows_would_be_lost_is_refused_by_name(tmp_path: Path) -> None:
    """It was open in the epoch, a later one finished it, and then its bytes were lost."""
    job = BackAndForth(ls.ParquetSink(f"file://{tmp_path}"), parallelism=1)
    job.write(0)
    job.write(2)
    job.start(commit=_fail)
    with pytest.raises(RuntimeError):
        job.finish()
    for hidden in (tmp_path / ".lakestate" / "open").iterdir():
        hidden.unlink()
    with pytest.raises(CorruptionError, match="its rows of earlier epochs would be lost"):
        job.back(2, accept_visible_output=True)
    with pytest.raises(NotFoundError, match="a finished file is gone"):
        job.start()


def test_an_epoch_that_is_gone_cannot_be_gone_back_to(job: BackAndForth) -> None:
    for first in range(0, 40, 2):
        job.write(first)
    with pytest.raises(NotFoundError, match="epoch 2 cannot be opened"):
        job.back(2, accept_visible_output=True)
    with pytest.raises(NotFoundError, match="epoch 99 cannot be opened"):
        job.back(99)


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
def test_a_lost_answer_is_looked_up(tmp_path: Path, fault: Fault) -> None:
    job = BackAndForth(ls.ParquetSink(f"file://{tmp_path}"), parallelism=1)
    for first in (0, 2, 4):
        job.write(first)
    store = job.backend.objects(JOB).store
    faults = iter([fault] * 3)

    def hook(operation: Operation, path: str) -> Fault:
        about = (operation, path) == (Operation.CREATE, f"{JOB}/epochs/0000000004.json")
        return next(faults, Fault.NONE) if about else Fault.NONE

    job.backend.__dict__["_store"] = FaultyStore(store, hook)
    with pytest.raises(ls.OutcomeUnknownError):
        job.back(1)
    assert job.back(1).epoch == 4
    job.backend.__dict__["_store"] = store
    job.start()
    job.write(2)
    job.finish()
    assert job.visible() == Counter(range(4))
