"""What a verification reports about state: damage by name, orphans, restorable epochs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.corruption.job import JOB, CorruptionJob, World, report_of
from tests.support.jobs.small_job import SmallJob, fresh_memory
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.coordinator.retention.retain import retain_from
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.protocol.records import BoundaryRecord
from lakestate.protocol.retention import RetentionPlan
from lakestate.protocol.values import Epoch
from lakestate.storage.parallel import run_sequentially
from lakestate.verification import OrphanDeletion, Problem, VerificationReport
from lakestate.verification.report import LINES_MAX, EpochVerdict, Finding


def manifest_path(job: CorruptionJob, epoch: int) -> str:
    record = job.backend.objects(JOB).read_epoch(Epoch(epoch))
    assert record is not None
    return record.manifest.path


def damage(job: CorruptionJob, path: str) -> None:
    data = bytearray(job.state_client.get(f"{JOB}/{path}").data)
    data[len(data) // 2] ^= 1
    job.state_client.put(f"{JOB}/{path}", bytes(data))


def test_a_sound_job_is_called_sound_and_everything_of_it_was_read(job: CorruptionJob) -> None:
    report = report_of(job)
    assert report.is_clean
    assert report.findings == report.not_restorable == ()
    assert report.dangling == ()
    assert report.restorable == (2, 4, 5)
    assert [verdict.tags for verdict in report.epochs] == [("kept-2",), ("kept-4", "moved"), ()]
    assert all(verdict.is_committed for verdict in report.epochs)
    assert {"fence", "retention boundary", "tag", "epoch record", "manifest", "commit marker"} < set(
        report.checked
    )
    told = str(report)
    assert told.startswith(f"{job.backend.objects(JOB).store.url}/{JOB}: no damage found in ")
    assert "restorable: epochs 2, 4 to 5" in told


def test_threads_change_nothing(job: CorruptionJob) -> None:
    with run_sequentially():
        alone = report_of(job)
    assert report_of(job) == alone == ls.verify(job.backend, JOB, sinks=job.sinks, threads=3)


def test_nothing_is_written_not_even_to_the_cache(job: CorruptionJob, tmp_path: Path) -> None:
    before = job.snapshot({}, {})
    backend = ls.ParquetBackend(job.backend._config, cache_dir=tmp_path / "cache")
    assert ls.verify(backend, JOB, sinks=job.sinks).is_clean
    assert not (tmp_path / "cache").exists()
    assert job.snapshot({}, {}) == before


def test_a_damaged_manifest_names_the_one_epoch_that_is_lost(job: CorruptionJob) -> None:
    path = manifest_path(job, 4)
    damage(job, path)
    report = report_of(job)
    [finding] = report.findings
    assert (finding.kind, finding.problem, finding.epochs) == ("manifest", Problem.CHECKSUM, (4,))
    assert finding.object_name.endswith(f"/{JOB}/{path}")
    assert report.about(path) == (finding,)
    assert report.restorable == (2, 5)
    [verdict] = report.not_restorable
    assert verdict == EpochVerdict(
        Epoch(4), (f"manifest does not match its checksum: {finding.object_name}",), ("kept-4", "moved")
    )
    assert {orphan.deletion for orphan in report.orphans} == {OrphanDeletion.UNKNOWN}
    assert "not restorable: epoch 4: manifest does not match its checksum" in str(report)


def test_a_damaged_file_names_all_epochs_that_carry_it(job: CorruptionJob) -> None:
    carried: dict[int, set[str]] = {2: set(), 4: set(), 5: set()}
    for epoch, paths in carried.items():
        for operator in ("totals", "recent", "out", "local"):
            stored = job.backend.load_operator_metadata(JOB, epoch, operator)[0]
            paths |= {file.path for table in stored.tables for file in table.files}
    path = min((carried[2] & carried[4]) | (carried[4] & carried[5]))
    damage(job, path)
    [finding] = report_of(job).findings
    assert (finding.kind, finding.problem) == ("data file", Problem.CHECKSUM)
    assert finding.epochs == tuple(epoch for epoch, paths in carried.items() if path in paths)


def test_several_damages_are_all_named_at_once(job: CorruptionJob) -> None:
    client = job.state_client
    client.delete([f"{JOB}/generation.json", f"{JOB}/{manifest_path(job, 2)}"])
    client.put(f"{JOB}/tags/kept-4.json", b"{}")
    client.put(f"{JOB}/epochs/0000000005.json", client.get(f"{JOB}/epochs/0000000004.json").data)
    found = {finding.object_name.rpartition(f"{JOB}/")[2]: finding for finding in report_of(job).findings}
    assert {path: finding.problem for path, finding in found.items()} == {
        "generation.json": Problem.MISSING,
        "checkpoints/2/manifest.pb": Problem.MISSING,
        "tags/kept-4.json": Problem.UNREADABLE,
        "epochs/0000000005.json": Problem.MISPLACED,
    }
    assert found["tags/kept-4.json"].consequence == "retention deletes nothing"


def one_finding(job: CorruptionJob, path: str) -> tuple[Problem, tuple[Epoch, ...], str]:
    [finding] = report_of(job).findings
    assert finding.object_name.endswith(f"{JOB}/{path}")
    return finding.problem, finding.epochs, finding.consequence


def test_records_that_are_lost_are_named_by_what_they_left_behind(job: CorruptionJob) -> None:
    world = job.snapshot({}, {})
    for path, told in {
        "generation.json": (Problem.MISSING, (), "no driver can start"),
        "retention.json": (Problem.MISSING, (), ""),
        "epochs/0000000002.json": (Problem.MISSING, (2,), ""),
        "epochs/0000000004.json": (Problem.MISSING, (4,), ""),
        "epochs/0000000005.json": (Problem.MISSING, (5,), "no driver can start"),
    }.items():
        job.state_client.delete([f"{JOB}/{path}"])
        assert one_finding(job, path) == told
        job.put_back(world)


def test_records_that_are_set_back_are_named(whole: tuple[CorruptionJob, World, World]) -> None:
    job, world, _ = whole
    first = {path: world.history[f"{JOB}/{path}"][0] for path in ("generation.json", "tags/moved.json")}
    boundaries = [BoundaryRecord.decode(data, "old", JOB) for data in world.history[f"{JOB}/retention.json"]]
    gone = next(record for record in boundaries if record.oldest not in world.upto)
    for path, data, told in (
        ("generation.json", first["generation.json"], (Problem.OUTDATED, (), "no driver can start")),
        ("retention.json", gone.encode(), (Problem.OUTDATED, (), "")),
        ("tags/moved.json", first["tags/moved.json"], (Problem.CONTRADICTION, (), "")),
    ):
        job.put_back(world)
        job.state_client.put(f"{JOB}/{path}", data)
        assert one_finding(job, path) == told


def test_a_newer_format_is_reported_as_such(job: CorruptionJob) -> None:
    small = SmallJob(fresh_memory(), "first")
    small.start()
    small.publish(replace(small.write(Epoch(1)), format=type(small.write(Epoch(1)).format)(9, 0)))
    backend = ls.ParquetBackend(small.store.url)
    [finding] = [each for each in ls.verify(backend, "job").findings if each.kind == "manifest"]
    assert (finding.problem, finding.epochs) == (Problem.NEWER_FORMAT, (1,))


def test_an_epoch_without_a_marker_is_reported_as_not_committed(interrupted: CorruptionJob) -> None:
    report = report_of(interrupted)
    assert report.is_clean
    assert [verdict.epoch for verdict in report.epochs if not verdict.is_committed] == [6]


def test_orphans_are_reported_by_what_happens_to_them(job: CorruptionJob) -> None:
    client = job.state_client
    client.put(f"{JOB}/notes.txt", b"mine")
    client.put(f"{JOB}/checkpoints/1/operator-totals/totals-0-left.parquet", b"left over")
    client.put(f"{JOB}/checkpoints/6/operator-totals-0.metadata", b"of a running epoch")
    found = {
        orphan.object_name.rpartition(f"{JOB}/")[2]: orphan.deletion
        for orphan in report_of(job).orphans
        if "id-" not in orphan.object_name
    }
    assert found.pop("notes.txt") is OrphanDeletion.NEVER
    assert found.pop("checkpoints/1/operator-totals/totals-0-left.parquet") is OrphanDeletion.NEXT_RETENTION
    assert found.pop("checkpoints/6/operator-totals-0.metadata") is OrphanDeletion.LATER
    assert set(found.values()) <= {OrphanDeletion.LATER, OrphanDeletion.NEXT_RETENTION}


def test_retention_collects_exactly_the_orphans_of_which_that_was_said(job: CorruptionJob) -> None:
    job.state_client.put(f"{JOB}/checkpoints/1/operator-totals/totals-0-left.parquet", b"left over")
    said = {
        orphan.object_name.rpartition(f"{JOB}/")[2]
        for orphan in report_of(job).orphans
        if orphan.deletion is OrphanDeletion.NEXT_RETENTION
    }
    backend = ls.ParquetBackend(job.backend._config)
    plan = retain_from(backend.objects(JOB), backend.claim(JOB), Epoch(4), backend.ambient)
    assert isinstance(plan, RetentionPlan)
    assert {*plan.delete_first, *plan.delete_then} == said
    assert report_of(job).is_clean


def test_a_job_that_does_not_exist_cannot_be_verified() -> None:
    with pytest.raises(NotFoundError, match="no such job"):
        ls.verify(ls.ParquetBackend("memory://no-such-job"), "job")
    with pytest.raises(InvalidInputError, match="needs at least one thread"):
        ls.verify(ls.ParquetBackend("memory://no-such-job"), "job", threads=0)


def test_references_that_contradict_what_they_refer_to_are_named() -> None:
    """The small job sums its metadata up wrongly, declares no table, and has a sink of its own format."""
    small = SmallJob(fresh_memory(), "first", configs=())
    small.start()
    small.run_to(2)
    report = ls.verify(ls.ParquetBackend(small.store.url), "job")
    told = {(finding.kind, finding.problem) for finding in report.findings}
    assert told == {
        ("manifest", Problem.CONTRADICTION),
        ("manifest", Problem.UNREADABLE),
        ("subtask metadata", Problem.CONTRADICTION),
    }
    assert "summed up as" in str(report)
    assert "a declared table of this type" in str(report)


PLAIN = ls.KeyedTable("t", key="k bigint", value="n bigint")
TTL = ls.KeyedTable("t", key="k bigint", value="n bigint", ttl="1 hour")


@pytest.mark.parametrize("tables", [(PLAIN, TTL), (TTL, PLAIN), (PLAIN, TTL, PLAIN)])
def test_files_from_before_a_time_to_live_was_given_or_taken_away_are_sound(
    tables: tuple[ls.KeyedTable, ...],
) -> None:
    job = TableJob([tables[0]])
    for number, table in enumerate(tables):
        job.restart(tables=[table])
        job.managers[0].keyed("t").put(pa.table({"k": [number], "n": [number]}))
        job.checkpoint()
    report = ls.verify(job.backend, "job")
    job.close()
    assert report.findings == ()
    assert report.restorable == tuple(range(1, len(tables) + 1))


def test_a_report_shows_some_and_holds_all() -> None:
    findings = tuple(
        Finding(f"object-{number}", "data file", Problem.MISSING, epochs=(Epoch(1), Epoch(2), Epoch(4)))
        for number in range(LINES_MAX + 5)
    )
    report = VerificationReport("memory://a/job", findings)
    told = str(report)
    assert told.count("data file is missing") == LINES_MAX
    assert "… and 5 more" in told
    assert "epochs 1 to 2, 4 cannot be restored" in told
    assert len(report.findings) == LINES_MAX + 5


def test_a_cache_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="not a run cache"):
        ls.verify_cache(tmp_path / "nowhere")
