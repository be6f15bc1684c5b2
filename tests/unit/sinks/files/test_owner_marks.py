"""Marks of owners in an output: one owner for each fingerprint, also when two start at the same moment."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from threading import Semaphore, Thread

import pytest
from tests.support.sinks.sink_job import JOB, SINK, SinkJob, numbered_rows

import lakestate as ls
from lakestate.errors import ConflictError, CorruptionError, InvalidInputError
from lakestate.sinks.files.owner_marks import OwnerMarks, claim_output, owner_marks
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.storage import open_store
from lakestate.testing.faults import Fault, FaultyStore, Operation

OWNER = OutputOwner(JOB, SINK, "4f1c", "s3://bucket/state")
COPY = replace(OWNER, checkpoint="s3://bucket/copy-of-state")
OWN, LOOK, TAKE_OVER = OutputClaim.OWN, OutputClaim.LOOK, OutputClaim.TAKE_OVER


@pytest.fixture(params=["file", "memory"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> FileSink:
    is_local = request.param == "file"
    return ls.ParquetSink(
        f"file://{tmp_path}/out" if is_local else f"memory://{uuid.uuid4().hex}",
        roll=ls.Roll(interval=None),
        kept_row_bytes=0,
        part_bytes=500,
        upload_threads=0,
    )


def marks_in(sink: FileSink) -> list[str]:
    return owner_marks(sink.output).of_fingerprint(OWNER.fingerprint)


def test_the_first_owner_of_an_output_marks_it_and_has_it_at_every_start(sink: FileSink) -> None:
    for _ in range(3):
        sink.claim_output(OWNER, OWN)
    assert marks_in(sink) == [OWNER.mark]


def test_a_second_owner_is_refused_and_nothing_is_written(sink: FileSink) -> None:
    sink.claim_output(OWNER, OWN)
    for claim in (OWN, LOOK):
        with pytest.raises(InvalidInputError) as refused:
            sink.claim_output(COPY, claim)
        assert refused.value.found == str(OWNER)
        assert refused.value.expected == str(COPY)
        assert "start(take_over_output=True)" in (refused.value.action or "")
    assert marks_in(sink) == [OWNER.mark]


def test_looking_leaves_no_mark(sink: FileSink) -> None:
    sink.claim_output(OWNER, LOOK)
    assert marks_in(sink) == []


@pytest.mark.parametrize(
    "other",
    [
        replace(COPY, state_id="another"),
        replace(COPY, state_id=""),
        replace(COPY, sink_id="late"),
        replace(COPY, job_id="another"),
    ],
)
def test_owners_of_different_fingerprints_share_an_output(sink: FileSink, other: OutputOwner) -> None:
    for _ in range(2):
        for owner in (OWNER, other):
            sink.claim_output(owner, OWN)


def test_jobs_whose_state_has_no_identity_have_one_owner_too(sink: FileSink) -> None:
    owner, copy = replace(OWNER, state_id=""), replace(COPY, state_id="")
    sink.claim_output(owner, OWN)
    sink.claim_output(owner, OWN)
    with pytest.raises(InvalidInputError, match="state without an identity"):
        sink.claim_output(copy, OWN)


def test_an_owner_that_takes_over_says_so_and_the_one_before_is_refused(
    sink: FileSink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.claim_output(OWNER, OWN)
    with caplog.at_level(logging.WARNING, "lakestate.sinks"):
        sink.claim_output(COPY, TAKE_OVER)
    assert [record.message.partition(" is ")[2] for record in caplog.records] == [f"taken over from {OWNER}"]
    sink.claim_output(COPY, OWN)
    with pytest.raises(InvalidInputError, match="copy-of-state"):
        sink.claim_output(OWNER, OWN)
    assert marks_in(sink) == [COPY.mark]


def test_a_start_costs_one_listing_and_the_first_one_a_write_and_a_listing_more() -> None:
    calls: list[Operation] = []

    def note(operation: Operation, path: str) -> Fault:
        calls.append(operation)
        return Fault.NONE

    marks = owner_marks(FaultyStore(open_store(f"memory://{uuid.uuid4().hex}"), note))
    claim_output(marks, OWNER, OWN)
    assert calls == [Operation.LIST, Operation.PUT, Operation.LIST]
    calls.clear()
    claim_output(marks, OWNER, OWN)
    assert calls == [Operation.LIST]


def test_taking_over_what_is_ours_or_nobodys_changes_nothing_else(sink: FileSink) -> None:
    for _ in range(2):
        sink.claim_output(OWNER, TAKE_OVER)
    assert marks_in(sink) == [OWNER.mark]


def test_a_crash_while_taking_over_leaves_an_output_that_can_be_taken_over(sink: FileSink) -> None:
    sink.claim_output(OWNER, OWN)
    owner_marks(sink.output).leave(COPY.mark)
    for owner in (OWNER, COPY):
        with pytest.raises(InvalidInputError, match="another job"):
            sink.claim_output(owner, OWN)
    sink.claim_output(COPY, TAKE_OVER)
    assert marks_in(sink) == [COPY.mark]


def test_clean_up_leaves_all_marks(sink: FileSink) -> None:
    other = replace(COPY, state_id="another")
    for owner in (OWNER, other):
        sink.claim_output(owner, OWN)
    SinkJob(lambda: sink, numbered_rows(50), parallelism=1, state_id="4f1c").run_to(3)
    assert owner_marks(sink.output).of_fingerprint(other.fingerprint) == [other.mark]
    assert marks_in(sink) == [OWNER.mark]


def test_a_mark_is_empty_and_has_no_name_that_a_pattern_of_files_matches(tmp_path: Path) -> None:
    sink = ls.ParquetSink(tmp_path.as_uri())
    sink.claim_output(replace(OWNER, job_id="my.parquet.job", checkpoint="file:///data/x.parquet"), OWN)
    [mark] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert mark.stat().st_size == 0
    assert [path for path in tmp_path.rglob("*") if ".parquet" in path.name] == []


def test_what_is_not_a_mark_is_named(sink: FileSink) -> None:
    owner_marks(sink.output).leave(f"{OWNER.fingerprint}/of-somebody")
    with pytest.raises(CorruptionError, match=r"not the mark of an owner: .*/of-somebody"):
        sink.claim_output(OWNER, OWN)


def test_long_names_are_shortened_and_stay_different() -> None:
    owners = [
        OutputOwner("j.b" * 42, "s" * 128, "4f1c", f"s3://bucket/{'ä' * length}") for length in (90, 91, 92)
    ]
    assert len({owner.mark for owner in owners}) == 3
    for owner in owners:
        assert max(map(len, owner.mark.split("/"))) <= 200
        read = OutputOwner.of_mark(owner.mark)
        assert read.checkpoint.partition("~")[0].rstrip("ä") == "s3://bucket/"


def test_one_place_has_one_location_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    names = [f"{tmp_path}/state", f"file://{tmp_path}/state/", f"file://{tmp_path}/link", tmp_path / "link"]
    assert {ls.ParquetBackend(name).location for name in names} == {(tmp_path / "state").as_uri()}
    assert ls.ParquetBackend("s3://bucket/a/").location == ls.ParquetBackend("s3://bucket/a").location


@dataclass
class Turns:
    """Lets two claims take turns, call by call, in a given order; who is done passes its turn."""

    order: list[int]
    gates: list[Semaphore] = field(default_factory=lambda: [Semaphore(0), Semaphore(0)])
    done: list[bool] = field(default_factory=lambda: [False, False])
    passed: Semaphore = field(default_factory=lambda: Semaphore(0))

    def run(self, claims: list[Callable[[], None]]) -> None:
        threads = [Thread(target=self._claim, args=(number, claim)) for number, claim in enumerate(claims)]
        for thread in threads:
            thread.start()
            self.passed.acquire()
        for number in [*self.order, *([0, 1] * 10)]:
            if not self.done[number]:
                self.gates[number].release()
                self.passed.acquire()
        for thread in threads:
            thread.join()

    def _claim(self, number: int, claim: Callable[[], None]) -> None:
        claim()
        self.done[number] = True
        self.passed.release()

    def wait(self, number: int) -> None:
        self.passed.release()
        self.gates[number].acquire()


@dataclass
class SteppedMarks:
    """Marks that wait for their turn before each call."""

    inner: OwnerMarks
    turns: Turns
    number: int
    output: str = "the output"

    def of_fingerprint(self, fingerprint: str) -> list[str]:
        self.turns.wait(self.number)
        return self.inner.of_fingerprint(fingerprint)

    def leave(self, mark: str) -> None:
        self.turns.wait(self.number)
        self.inner.leave(mark)

    def remove(self, marks: Iterable[str]) -> None:
        self.turns.wait(self.number)
        self.inner.remove(marks)


def orders(calls: int) -> list[list[int]]:
    """All orders of so many calls of each of two claims."""
    places = range(2 * calls)
    return [[int(place in chosen) for place in places] for chosen in combinations(places, calls)]


def run_in_turns(order: list[int], claim: OutputClaim) -> tuple[list[bool], list[str]]:
    """Whether each of two claims was granted, and the marks at the end."""
    sink = ls.ParquetSink(f"memory://{uuid.uuid4().hex}")
    turns, granted = Turns(order), [False, False]

    def run(number: int, owner: OutputOwner) -> None:
        with suppress(InvalidInputError, ConflictError):
            claim_output(SteppedMarks(owner_marks(sink.output), turns, number), owner, claim)
            granted[number] = True

    turns.run([lambda: run(0, OWNER), lambda: run(1, COPY)])
    return granted, marks_in(sink)


@pytest.mark.parametrize("order", orders(3), ids=str)
def test_of_two_first_starts_at_the_same_moment_at_most_one_gets_the_output(order: list[int]) -> None:
    granted, left = run_in_turns(order, OWN)
    assert granted != [True, True]
    for number, owner in enumerate((OWNER, COPY)):
        assert owner.mark in left or not granted[number]


@pytest.mark.parametrize("order", orders(4), ids=str)
def test_of_two_that_take_over_at_the_same_moment_at_most_one_gets_the_output(order: list[int]) -> None:
    granted, left = run_in_turns(order, TAKE_OVER)
    if granted == [True, True]:
        calls = [[place for place, each in enumerate(order) if each == number] for number in (0, 1)]
        later = int(calls[1][1] > calls[0][3])
        assert calls[later][1] > calls[1 - later][3], "one left its mark when the other had finished"
        assert left == [(OWNER, COPY)[later].mark]
    else:
        assert {(OWNER, COPY)[number].mark for number in (0, 1) if granted[number]} <= {*left}
