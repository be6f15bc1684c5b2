"""The logs of file sources: stored as they grow, never again as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.small_job import fresh_memory
from tests.support.spark.stored_files import restore_files, store_files

from lakestate.codec import encode_manifest
from lakestate.codec.engine_files import COMMITTED_BATCH
from lakestate.errors import CorruptionError
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch
from lakestate.spark.checkpoint.offsets import files_to_rebuild, read_engine_files
from lakestate.spark.checkpoint.source_logs import INLINE_BYTES_MAX
from lakestate.testing.counting import CountingStore

INTERVAL = 10
"""Spark compacts every so many logs."""
QUERY = b'{"id":"8d1f2a8e-6f6e-4a55-9a39-5b1f64a3b2c1"}'
NO_CHECK = lambda log, path: None  # noqa: E731


class FileSource:
    """Spark's checkpoint directory with the log of one file source, as Spark writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[str] = []
        self.batch = -1

    def run_batch(self, files: int = 1) -> Epoch:
        """Read so many files in the next batch."""
        self.batch += 1
        new = [
            f'{{"path":"file:///in/part-{self.batch:06d}-{number:06d}.json","timestamp":1,'
            f'"batchId":{self.batch}}}'
            for number in range(files)
        ]
        self.entries += new
        is_compacted = (self.batch + 1) % INTERVAL == 0
        name = f"sources/0/{self.batch}.compact" if is_compacted else f"sources/0/{self.batch}"
        self._write(name, "\n".join(["v1", *(self.entries if is_compacted else new)]).encode())
        metadata = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
        self._write(f"offsets/{self.batch}", f'v1\n{metadata}\n{{"logOffset":{self.batch}}}'.encode())
        if self.batch:
            self._write(f"commits/{self.batch - 1}", COMMITTED_BATCH)
        self._write("metadata", QUERY)
        return Epoch.of_batch(self.batch)

    def _write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    return FileSource(tmp_path / "spark")


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(fresh_memory())


@pytest.fixture
def job(store: CountingStore) -> JobObjects:
    return JobObjects(store, "job")


def run_epoch(source: FileSource, job: JobObjects, before: Manifest | None, files: int = 1) -> Manifest:
    epoch = source.run_batch(files)
    return store_files(read_engine_files(source.folder, epoch, before), epoch, job)


def restored(manifest: Manifest, job: JobObjects) -> dict[str, bytes]:
    files = files_to_rebuild(restore_files(manifest, job), manifest.epoch, NO_CHECK)
    return {file.name: file.data for file in files}


def expected(source: FileSource) -> dict[str, bytes]:
    """What Spark needs of its own directory: the newest compacted log and those after it."""
    newest = (source.batch + 1) // INTERVAL * INTERVAL - 1
    names = [f"sources/0/{newest}.compact"] if newest >= 0 else []
    names += [f"sources/0/{number}" for number in range(newest + 1, source.batch + 1)]
    return {name: (source.folder / name).read_bytes() for name in names}


def logs_in(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.startswith("sources/")}


def test_every_epoch_gives_spark_back_what_it_had(source: FileSource, job: JobObjects) -> None:
    before = None
    for number in range(45):
        before = run_epoch(source, job, before, files=1 + number % 3)
        assert logs_in(restored(before, job)) == expected(source)


def test_neither_the_manifest_nor_the_bytes_of_an_epoch_grow_with_the_epochs(
    source: FileSource, job: JobObjects, store: CountingStore
) -> None:
    before, sizes, written = None, [], []
    for _ in range(1000):
        before = run_epoch(source, job, before)
        sizes.append(len(encode_manifest(before)))
        written.append(store.take().bytes_written)
    assert max(sizes[900:]) <= max(sizes[:100]) + 500
    # A line is written again as often as the number of lines doubles.
    assert sum(written[500:]) < 3 * sum(written[:500])
    assert sum(written) < 20 * sum(map(len, source.entries))
    assert before is not None
    assert logs_in(restored(before, job)) == expected(source)


def test_a_compacted_log_is_not_read_again(
    source: FileSource, job: JobObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = None
    for _ in range(INTERVAL):
        before = run_epoch(source, job, before, files=40)
    read: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or read_bytes(path))
    read_engine_files(source.folder, source.run_batch(), before)
    assert "9.compact" not in read


def test_a_large_log_of_one_batch_is_kept_outside_of_the_manifest(
    source: FileSource, job: JobObjects
) -> None:
    manifest = run_epoch(source, job, None, files=5000)
    assert [log.name for log in manifest.engine_logs] == ["sources/0/0"]
    assert len(encode_manifest(manifest)) < INLINE_BYTES_MAX
    assert logs_in(restored(manifest, job)) == expected(source)


def test_a_compacted_log_that_does_not_repeat_what_is_known_is_stored_as_it_is(
    source: FileSource, job: JobObjects
) -> None:
    before = None
    for _ in range(INTERVAL - 1):
        before = run_epoch(source, job, before, files=20)
    source.entries = source.entries[100:]
    after = run_epoch(source, job, before, files=20)
    assert logs_in(restored(after, job)) == expected(source)


def test_an_entry_elsewhere_is_refused_when_it_is_new(source: FileSource, job: JobObjects) -> None:
    before = None
    for _ in range(INTERVAL - 1):
        before = run_epoch(source, job, before)
    checked: list[str] = []
    read_engine_files(source.folder, source.run_batch(), before, lambda log, path: checked.append(path))
    assert checked == ["file:///in/part-000009-000000.json"]


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_damaged_piece_is_named(
    source: FileSource, job: JobObjects, store: CountingStore, damage: str
) -> None:
    manifest = run_epoch(source, job, None, files=200)
    [piece] = manifest.engine_logs[0].pieces
    if damage == "lost":
        store.delete_many([job.store_path(piece.path)])
    else:
        data = store.get(job.store_path(piece.path)).data
        store.put(job.store_path(piece.path), data.replace(b"part", b"trap"))
    with pytest.raises(CorruptionError, match=piece.path):
        restore_files(manifest, job)
