"""What a verification says about a job: damage by name, orphans, dangling output, restorable epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.corruption.job import JOB, CorruptionJob, World, built
from tests.support.jobs.small_job import SmallJob, fresh_memory
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.coordinator.epoch_plan import decode_pre_commits
from lakestate.coordinator.retain import retain_from
from lakestate.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from lakestate.protocol.records import BoundaryRecord
from lakestate.protocol.retention import RetentionPlan
from lakestate.protocol.values import Epoch
from lakestate.sinks.files.local_output import LocalOutput
from lakestate.storage.parallel import run_sequentially
from lakestate.verification import DanglingStatus, OrphanDeletion, Problem, VerificationReport
from lakestate.verification import job as verification
from lakestate.verification.report import LINES_MAX, EpochVerdict, Finding


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[CorruptionJob, World, World]:
    with run_sequentially():
        return built(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def job(whole: tuple[CorruptionJob, World, World]) -> CorruptionJob:
    """The job with open files; two tags, one of them of an epoch before the boundary."""
    whole[0].put_back(whole[1])
    return whole[0]


@pytest.fixture
def interrupted(whole: tuple[CorruptionJob, World, World]) -> CorruptionJob:
    """The same, its last epoch published and not committed."""
    whole[0].put_back(whole[2])
    return whole[0]


def report_of(job: CorruptionJob) -> VerificationReport:
    return ls.verify(job.backend, JOB, sinks=job.sinks)


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
    assert [(each.sink_id, each.status) for each in report.dangling] == [("local", DanglingStatus.COPY)]
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


def hidden_in_use(job: CorruptionJob) -> Path:
    """The one hidden file that is no copy of an attempt that died."""
    left = {each.token for each in report_of(job).dangling}
    [used] = (file for file in (job.local_root / ".lakestate/open").iterdir() if file.name not in left)
    return used


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


def test_what_is_of_a_newer_format_is_told_as_such(job: CorruptionJob) -> None:
    small = SmallJob(fresh_memory(), "first")
    small.start()
    small.publish(replace(small.write(Epoch(1)), format=type(small.write(Epoch(1)).format)(9, 0)))
    backend = ls.ParquetBackend(small.store.url)
    [finding] = [each for each in ls.verify(backend, "job").findings if each.kind == "manifest"]
    assert (finding.problem, finding.epochs) == (Problem.NEWER_FORMAT, (1,))


def test_an_epoch_without_a_marker_is_told_as_not_committed(interrupted: CorruptionJob) -> None:
    report = report_of(interrupted)
    assert report.is_clean
    assert [verdict.epoch for verdict in report.epochs if not verdict.is_committed] == [6]


def test_orphans_are_told_by_what_becomes_of_them(job: CorruptionJob) -> None:
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


def test_uploads_that_nothing_refers_to_are_told_apart(job: CorruptionJob) -> None:
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
    assert "left by an attempt that died" in str(report_of(job))


def test_hidden_local_files_that_nothing_refers_to_are_told(job: CorruptionJob) -> None:
    used = hidden_in_use(job)
    dead = f"{used.name.split('-0000000001-')[0]}-0000000002-00000-dead.parquet"
    copy = f"{used.name.rpartition('.')[0]}.of-another-attempt"
    for name in (dead, copy):
        (used.parent / name).write_bytes(b"x")
    found = {each.token: each.status for each in report_of(job).dangling}
    statuses = {dead: DanglingStatus.DEAD, copy: DanglingStatus.COPY}
    assert {name: found[name] for name in (dead, copy)} == statuses


def test_what_is_said_of_a_hidden_file_that_nothing_refers_to_is_what_clean_up_does(
    job: CorruptionJob,
) -> None:
    used = hidden_in_use(job)
    (used.parent / f"{used.name.split('-0000000001-')[0]}-0000000002-00000-dead.parquet").write_bytes(b"x")
    said = {each.token: each.status for each in report_of(job).dangling}
    manifest = job.backend.load_checkpoint_metadata(JOB)
    [data] = (sink.data for sink in manifest.sinks if sink.sink_id == "local")
    job.sinks["local"].committer().clean_up(JOB, manifest.epoch, decode_pre_commits(data, "test"))
    left = {file.name for file in used.parent.iterdir()} - {used.name}
    assert left == {name for name, status in said.items() if status is DanglingStatus.COPY}


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


def test_a_commit_that_was_cut_short_half_way_is_no_damage(interrupted: CorruptionJob) -> None:
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


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something in the middle of the next verification, when all references are read."""
    check = verification.check_data_file

    def disturbed(*arguments: Any) -> None:
        monkeypatch.setattr(verification, "check_data_file", check)
        act()
        check(*arguments)

    monkeypatch.setattr(verification, "check_data_file", disturbed)


def test_what_retention_takes_away_meanwhile_is_no_damage(
    job: CorruptionJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect() -> None:
        client = job.state_client
        client.delete([f"{JOB}/tags/kept-2.json", f"{JOB}/tags/kept-4.json", f"{JOB}/tags/moved.json"])
        backend = ls.ParquetBackend(job.backend._config)
        backend.claim(JOB)
        backend.cleanup_checkpoint(JOB, 5)

    meanwhile(monkeypatch, collect)
    with run_sequentially():
        report = report_of(job)
    assert report.is_clean, str(report)
    assert report.restorable == (5,)


def test_the_first_retention_of_a_job_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TableJob([ls.GlobalKeyedTable("t", key=int, value=int)])
    for number in range(4):
        tables.managers[0].global_keyed("t").insert(number, number)
        tables.checkpoint()
    meanwhile(monkeypatch, lambda: tables.backend.cleanup_checkpoint("job", 4))
    with run_sequentially():
        report = ls.verify(tables.backend, "job")
    assert report.is_clean, str(report)
    assert report.restorable == (4,)
    tables.close()


def test_output_that_is_finished_meanwhile_is_no_damage(
    job: CorruptionJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch that was newest had files open; the next one finishes and commits them."""

    def go_on() -> None:
        driver = job.driver()
        driver.start()
        job.run_epoch(driver, then_stop=True)
        driver.stop()

    findings = verification.SinkOutput.findings

    def late(self: Any) -> Iterator[Finding]:
        monkeypatch.setattr(verification.SinkOutput, "findings", findings)
        go_on()
        return findings(self)

    monkeypatch.setattr(verification.SinkOutput, "findings", late)
    with run_sequentially():
        report = report_of(job)
    assert report.is_clean, str(report)
    assert report.dangling == ()


def test_a_store_that_does_not_answer_is_no_finding(
    job: CorruptionJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise StorageUnavailableError("the store did not answer")

    monkeypatch.setattr(type(job.backend.objects(JOB).store), "get", unavailable)
    with pytest.raises(StorageUnavailableError):
        report_of(job)


def test_a_job_that_does_not_exist_cannot_be_verified() -> None:
    with pytest.raises(NotFoundError, match="no such job"):
        ls.verify(ls.ParquetBackend("memory://no-such-job"), "job")
    with pytest.raises(InvalidInputError, match="reading takes a thread"):
        ls.verify(ls.ParquetBackend("memory://no-such-job"), "job", threads=0)


def test_references_that_contradict_what_they_refer_to_are_named() -> None:
    """The small job sums its metadata up wrongly, declares no table, and has a sink of its own format."""
    small = SmallJob(fresh_memory(), "first")
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
    assert "a table that is declared so" in str(report)


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


def test_the_files_of_an_iceberg_table_can_be_verified_like_those_of_a_file_sink(tmp_path: Path) -> None:
    sink = ls.IcebergSink("shop.orders", catalog=f"file://{tmp_path}")
    sink.check(pa.schema([("user", pa.string())]))
    output = sink.file_sink().output
    assert isinstance(output, LocalOutput)
    assert output.root.is_relative_to(tmp_path)
