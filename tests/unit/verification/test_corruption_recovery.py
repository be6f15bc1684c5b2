"""What a starting driver, retention and stores do about records that are lost, set back or swapped."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.jobs.small_job import SmallJob, fresh_memory, restored

import lakestate as ls
from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.coordinator.retention.tags import create_tag
from lakestate.errors import CorruptionError, FencedError, InvalidInputError, NotFoundError
from lakestate.protocol.retention import RetentionPolicy, RetentionRefused
from lakestate.protocol.values import Epoch
from lakestate.storage import ObjectStore, open_store
from lakestate.storage.multipart.parts import decode_upload_record, encode_upload_record


@pytest.fixture
def store() -> ObjectStore:
    return fresh_memory()


def started(store: ObjectStore, name: str = "first") -> SmallJob:
    job = SmallJob(store, name)
    job.start()
    return job


def test_a_committed_epoch_whose_record_is_gone_is_not_written_again(store: ObjectStore) -> None:
    started(store).run_to(3)
    store.delete_many(["job/epochs/0000000003.json"])
    with pytest.raises(
        CorruptionError, match=r"epoch 3 is published.*epochs/0000000003\.json.*marker"
    ) as told:
        started(store, "second")
    assert "continue from epoch 2, the newest intact one" in str(told.value)


def test_no_committed_epoch_is_forgotten_because_all_records_are_gone(store: ObjectStore) -> None:
    started(store).run_to(2)
    store.delete_many(["job/epochs/0000000001.json", "job/epochs/0000000002.json"])
    with pytest.raises(CorruptionError, match=r"epochs/0000000001\.json.*no older epoch is intact"):
        started(store, "second")


def test_a_tagged_epoch_is_not_taken_for_the_newest_because_all_others_are_gone(store: ObjectStore) -> None:
    job = started(store)
    job.run_to(1)
    create_tag(job.job, "first", Epoch(1), job.ambient)
    job.run_to(4)
    retain_epochs(job.job, job.claim, RetentionPolicy(2), job.ambient)
    store.delete_many(["job/epochs/0000000003.json", "job/epochs/0000000004.json"])
    with pytest.raises(
        CorruptionError, match=r"epochs/0000000003\.json; found the retention boundary names it"
    ):
        started(store, "second")


def test_an_epoch_that_was_not_committed_runs_again_if_its_record_is_gone(store: ObjectStore) -> None:
    job = started(store)
    job.run_to(2)
    job.publish(job.write(Epoch(3)))
    store.delete_many(["job/epochs/0000000003.json"])
    again = SmallJob(store, "second")
    found = again.start()
    assert found is not None
    assert found.record.epoch == 2
    again.run_to(3)


def test_an_epoch_that_is_published_while_the_driver_looks_is_found(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = started(store)
    slow.run_to(2)
    driver = SmallJob(store, "second")
    list_epochs = type(driver.job).list_epochs

    def late_listing(self: object) -> list[Epoch]:
        found = list_epochs(driver.job)
        monkeypatch.undo()
        # It read the fence before the claim, and commits before it looks again.
        manifest = slow.write(Epoch(3))
        fence = store.get("job/generation.json").data
        store.put("job/generation.json", slow.claim.encode())
        slow.run_epoch()
        store.put("job/generation.json", fence)
        assert manifest.epoch == 3
        return found

    monkeypatch.setattr(type(driver.job), "list_epochs", late_listing)
    recovered = driver.start()
    assert recovered is not None
    assert recovered.record.epoch == 3


def test_a_fence_that_was_set_back_is_named(store: ObjectStore) -> None:
    started(store, "first").run_to(1)
    old = store.get("job/generation.json").data
    started(store, "second").run_to(2)
    started(store, "third").run_to(3)
    store.put("job/generation.json", old)
    with pytest.raises(
        CorruptionError, match=r"fence is older.*generation\.json; found generation 2"
    ) as told:
        started(store, "fourth")
    assert "expected at least 3" in str(told.value)
    assert "lakestate.repair.rebuild_fence" in str(told.value)
    # The action of the error works: the next driver continues.
    started(store, "fifth").run_to(4)


def test_a_driver_that_was_overtaken_is_fenced_and_the_fence_is_not_called_damaged(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(store).run_to(1)
    old = SmallJob(store, "old")
    read_boundary = type(old.job).read_boundary

    def overtaken(self: object) -> object:
        monkeypatch.undo()
        started(store, "new").run_to(2)
        return read_boundary(old.job)

    monkeypatch.setattr(type(old.job), "read_boundary", overtaken)
    with pytest.raises(FencedError, match="another driver has taken over this job"):
        old.start()


def test_a_tag_in_the_place_of_another_lets_no_epoch_go(store: ObjectStore) -> None:
    job = started(store)
    job.run_to(2)
    create_tag(job.job, "first", Epoch(1), job.ambient)
    create_tag(job.job, "second", Epoch(2), job.ambient)
    job.run_to(4)
    store.put("job/tags/first.json", store.get("job/tags/second.json").data)
    refused = retain_epochs(job.job, job.claim, RetentionPolicy(1), job.ambient)
    assert isinstance(refused, RetentionRefused)
    assert re.search(r"tag is in another's place: .*tags/first\.json; found tag second", str(refused))
    assert restored(job.job, Epoch(1)) == [b"rows of 1 by first"]


def test_the_parent_of_an_epoch_is_one_that_was_published() -> None:
    backend = ls.ParquetBackend("memory://parents")
    table = ls.GlobalKeyedTable("t", key=str, value=int)
    task = ls.TaskInfo("job", "op")
    parents = []
    for epoch in (5, 7, 8):
        tables = ls.TableManager.load(task, [table], backend, None)
        done = tables.checkpoint(epoch=epoch, min_epoch=1, watermark=None, then_stop=False)
        backend.write_checkpoint_metadata("job", epoch, [done])
        parents.append(backend.load_checkpoint_metadata("job", epoch).parent)
    assert parents == [None, 5, 7]
    assert ls.verify(backend, "job").is_clean


def hidden_file(root: Path, pattern: str) -> Path:
    [found] = root.glob(f".lakestate/uploads/*/{pattern}")
    return found


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:10],
        lambda data: b"",
        lambda data: b"[]",
        lambda data: b"\xff\xfe",
        lambda data: data.replace(b"started_ms", b"Started_ms"),
        lambda data: data.replace(b"a/1", b"b/1"),
        lambda data: data + b" ",
        lambda data: encode_upload_record("../outside", 1),
        lambda data: encode_upload_record(7, 1),  # type: ignore[arg-type]
    ],
)
def test_the_damaged_record_of_an_upload_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    store = open_store(f"file://{tmp_path}")
    upload = store.uploads.start("a/1")
    part = store.uploads.put_part(upload, 1, b"data")
    record = hidden_file(tmp_path, "_upload")
    record.write_bytes(damage(record.read_bytes()))
    for act in (
        lambda: list(store.uploads.list_dangling()),
        lambda: store.uploads.list_parts(upload),
        lambda: store.uploads.put_part(upload, 2, b"more"),
        lambda: store.uploads.complete(upload, [part]),
    ):
        with pytest.raises(CorruptionError, match=r"record of an upload cannot be read: .*_upload"):
            act()


def test_the_record_of_an_upload_says_what_was_begun() -> None:
    found = decode_upload_record(encode_upload_record("folder/file", 17), "token", "upload.json")
    assert (found.upload.path, found.upload.token, found.started_ms) == ("folder/file", "token", 17)


def test_a_bit_that_flips_in_a_part_on_disk_is_found_before_the_object_is_visible(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    upload = store.uploads.start("object")
    parts = [store.uploads.put_part(upload, number, b"some data") for number in (1, 2)]
    part = hidden_file(tmp_path, "_part-00002")
    with part.open("r+b") as file:
        file.write(b"S")
    with pytest.raises(InvalidInputError, match=r"part 2 of the upload is missing or was replaced: .*object"):
        store.uploads.complete(upload, parts)
    with pytest.raises(NotFoundError):
        store.head("object")
    [first, second] = store.uploads.list_parts(upload)
    assert (first == parts[0], second == parts[1]) == (True, False)
