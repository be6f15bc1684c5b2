"""What a verification reports about unfinished output: missing and changed parts, dangling uploads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.corruption.job import JOB, CorruptionJob, report_of

import lakestate as ls
from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.errors import InvalidInputError
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.verification import DanglingStatus, Problem


def hidden_in_use(job: CorruptionJob) -> Path:
    """The one hidden file that is not a copy left by a failed attempt."""
    left = {each.token for each in report_of(job).dangling}
    [used] = (file for file in (job.local_root / ".lakestate/open").iterdir() if file.name not in left)
    return used


def test_uploads_that_nothing_refers_to_are_distinguished(job: CorruptionJob) -> None:
    store = job.sinks["out"].store
    [used, *_] = store.uploads.list_dangling()
    name = used.upload.path.split("-0000000001-")[0]
    dead = store.uploads.start(f"{name}-0000000003-00000-dead.parquet")
    coming = store.uploads.start(f"{name}-0000000006-00000-new.parquet")
    store.uploads.start("part-0123456789ab-0000000001-00000-of-another-job.parquet")
    state = job.backend.objects(JOB).store.uploads.start(f"{JOB}/by-hand")
    told = (each for each in report_of(job).dangling if each.sink_id != "local")
    found = {each.token: (each.status, each.sink_id) for each in told}
    assert found == {
        dead.token: (DanglingStatus.DEAD, "out"),
        coming.token: (DanglingStatus.IN_FLIGHT, "out"),
        state.token: (DanglingStatus.NOT_USED, None),
    }
    assert "left by a failed attempt" in str(report_of(job))


def leave_beside(used: Path) -> dict[str, DanglingStatus]:
    """Leave what failed attempts leave, and an attempt that runs."""
    statuses = {
        f"{used.name.split('-0000000001-')[0]}-0000000002-00000-dead": DanglingStatus.DEAD,
        f"{used.name.split('~')[0]}~0000000005-1-failed": DanglingStatus.DEAD,
        f"{used.name.split('~')[0]}~0000000006-1-at-work": DanglingStatus.IN_FLIGHT,
    }
    for name in statuses:
        (used.parent / name).write_bytes(b"x")
    return statuses


def test_hidden_local_files_that_nothing_refers_to_are_reported(job: CorruptionJob) -> None:
    used = hidden_in_use(job)
    statuses = leave_beside(used)
    found = {each.token: each.status for each in report_of(job).dangling}
    assert {name: found[name] for name in statuses} == statuses


def test_what_is_said_of_a_hidden_file_that_nothing_refers_to_is_what_clean_up_does(
    job: CorruptionJob,
) -> None:
    used = hidden_in_use(job)
    leave_beside(used)
    said = {each.token: each.status for each in report_of(job).dangling}
    manifest = job.backend.load_checkpoint_metadata(JOB)
    [data] = (sink.data for sink in manifest.sinks if sink.sink_id == "local")
    job.sinks["local"].committer().clean_up(JOB, manifest.epoch, decode_pre_commits(data, "test"))
    left = {file.name for file in used.parent.iterdir()} - {used.name}
    assert left == {name for name, status in said.items() if status is DanglingStatus.IN_FLIGHT}


@pytest.mark.parametrize("world", ["job", "interrupted"])
def test_a_lost_part_of_unfinished_output_is_named(world: str, request: pytest.FixtureRequest) -> None:
    job: CorruptionJob = request.getfixturevalue(world)
    path = next(path for path in job.snapshot({}, {}).output if path.endswith("part-00001"))
    job.output_client.delete([path])
    [finding] = report_of(job).findings
    assert (finding.kind, finding.problem) == ("part of unfinished output", Problem.MISSING)
    assert "(part 1 of upload " in finding.object_name
    assert "cannot be finished" in finding.consequence


def test_a_changed_part_of_unfinished_output_is_named(job: CorruptionJob) -> None:
    path = next(path for path in job.snapshot({}, {}).output if path.endswith("part-00001"))
    job.output_client.put(path, job.output_client.get(path).data[::-1])
    [finding] = report_of(job).findings
    assert (finding.kind, finding.problem) == ("part of unfinished output", Problem.CHECKSUM)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[::-1], Problem.CHECKSUM),
        (lambda data: data[:-1], Problem.SIZE),
        (lambda data: None, Problem.MISSING),
    ],
)
@pytest.mark.parametrize("world", ["job", "interrupted"])
def test_a_changed_hidden_file_is_named(
    world: str,
    change: Callable[[bytes], bytes | None],
    problem: Problem,
    request: pytest.FixtureRequest,
) -> None:
    job: CorruptionJob = request.getfixturevalue(world)
    hidden = hidden_in_use(job)
    changed = change(hidden.read_bytes())
    hidden.unlink() if changed is None else hidden.write_bytes(changed)
    [finding] = report_of(job).findings
    assert (finding.kind, finding.problem) == ("hidden file", problem)
    assert finding.object_name == str(hidden)


def test_a_finished_hidden_file_may_not_grow(interrupted: CorruptionJob) -> None:
    hidden = hidden_in_use(interrupted)
    hidden.write_bytes(hidden.read_bytes() + b"more")
    [finding] = report_of(interrupted).findings
    assert finding.problem is Problem.SIZE


def test_a_sink_that_the_job_does_not_have_is_refused(job: CorruptionJob) -> None:
    with pytest.raises(InvalidInputError, match="no such sink: other; found local, out, recent, totals"):
        ls.verify(job.backend, JOB, sinks={"other": job.sinks["out"]})


@pytest.mark.parametrize(("sink_id", "other"), [("out", "local"), ("local", "out")])
def test_a_sink_with_another_kind_of_destination_is_named(
    job: CorruptionJob, sink_id: str, other: str
) -> None:
    report = ls.verify(job.backend, JOB, sinks={sink_id: job.sinks[other]})
    [finding] = report.findings
    assert (finding.object_name, finding.problem) == (f"sink {sink_id}", Problem.UNREADABLE)
    assert finding.found == "the state is of a sink with another kind of destination"


def test_the_state_of_a_sink_that_cannot_be_used_is_named(
    job: CorruptionJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All checksums are right, and still the record of an open file is none."""
    monkeypatch.setattr("lakestate.sinks.files.open_files._RECORD", -2)
    findings = report_of(job).findings
    assert {(each.kind, each.problem) for each in findings} == {("unfinished output", Problem.UNREADABLE)}
    assert "table open_files, file " in findings[0].object_name


def test_without_its_sinks_only_the_state_of_a_job_is_verified(job: CorruptionJob) -> None:
    path = next(path for path in job.snapshot({}, {}).output if path.endswith("part-00001"))
    job.output_client.delete([path])
    assert ls.verify(job.backend, JOB).is_clean


def test_a_commit_that_was_cut_short_half_way_is_not_damage(interrupted: CorruptionJob) -> None:
    """Some files are shown already, and their uploads are gone."""
    sink = interrupted.sinks["out"]
    upload = next(iter(sink.store.uploads.list_dangling())).upload
    parts = sink.store.uploads.list_parts(upload)
    manifest = interrupted.backend.load_checkpoint_metadata(JOB, 6)
    used = _finished_parts(manifest, upload.path)
    sink.store.uploads.complete(upload, [part for part in parts if part.number in used])
    report = report_of(interrupted)
    assert report.is_clean, str(report)


def _finished_parts(manifest: Any, path: str) -> set[int]:
    from lakestate.coordinator.epoch_plan import decode_pre_commits
    from lakestate.sinks.files.pre_commit import CompletedUpload, PreCommit

    numbers: set[int] = set()
    for sink in (sink for sink in manifest.sinks if sink.sink_id == "out"):
        for data in decode_pre_commits(sink.data, "manifest"):
            for file in PreCommit.decode(data).finished:
                if file.path == path and isinstance(file.content, CompletedUpload):
                    numbers |= {part.number for part in file.content.parts}
    return numbers


def test_the_files_of_an_iceberg_table_can_be_verified_like_those_of_a_file_sink(tmp_path: Path) -> None:
    sink = ls.IcebergSink("shop.orders", catalog=f"file://{tmp_path}")
    sink.check(pa.schema([("user", pa.string())]))
    output = sink.file_sink().output
    assert isinstance(output, LocalOutput)
    assert output.root.is_relative_to(tmp_path)
