"""`StateBackend`: what travels with the code of a stage, and the cache that it opens where it arrives."""

from __future__ import annotations

import os
import pickle
import stat
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.manager import SubtaskCheckpoint, TableManager

TABLE = GlobalKeyedTable("counts", key=str, value=int)


def checkpoint(backend: StateBackend) -> SubtaskCheckpoint:
    tables = TableManager.load(TaskInfo("job", "op"), [TABLE], backend, None)
    tables.global_keyed("counts").insert("n", 1)
    return tables.checkpoint(epoch=1, min_epoch=1, watermark=None, then_stop=False)


def test_a_checkpoint_that_is_written_is_not_published() -> None:
    backend = StateBackend(f"memory://{uuid.uuid4().hex}")
    checkpoint(backend)
    assert backend.newest_checkpoint("job") is None
    with pytest.raises(NotFoundError, match="the job has no published epoch"):
        backend.load_checkpoint_metadata("job")


def test_a_second_attempt_leaves_the_metadata_of_the_first_alone() -> None:
    backend = StateBackend(f"memory://{uuid.uuid4().hex}")
    first, second = checkpoint(backend).entry.metadata, checkpoint(backend).entry.metadata
    assert first.path == backend.objects("job").paths.subtask_metadata(Epoch(1), "op", 0)
    assert second.path != first.path
    assert backend.objects("job").read_verified(first)


def test_a_copy_in_another_process_has_the_same_state_and_cache(tmp_path: Path) -> None:
    backend = StateBackend(tmp_path.as_uri(), cache_dir=tmp_path / "cache")
    ref = checkpoint(backend).entry.metadata
    shipped: StateBackend = pickle.loads(pickle.dumps(backend))
    assert shipped.objects("job").read_verified(ref) == backend.objects("job").read_verified(ref)
    assert shipped.cache is not None
    assert shipped.cache is not backend.cache
    assert repr(shipped) == repr(backend) == f"StateBackend({tmp_path.as_uri()!r})"


def test_a_cache_that_every_user_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    backend = StateBackend(tmp_path.as_uri(), cache_dir=folder)
    with pytest.raises(InvalidInputError, match=f"chmod go-w {folder}"):
        checkpoint(backend)
    assert list(tmp_path.iterdir()) == [folder]
    assert list(folder.iterdir()) == []


def test_cached_files_are_of_this_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    table = KeyedTable("t", key="k bigint", value="n bigint")
    before = os.umask(0)
    try:
        backend = StateBackend(tmp_path.as_uri(), cache_dir=tmp_path / "cache")
        tables = TableManager.load(TaskInfo("job", "op"), [table], backend, None)
        tables.keyed("t").put(pa.table({"k": [1], "n": [1]}))
        tables.checkpoint(epoch=1, min_epoch=1, watermark=None, then_stop=False)
    finally:
        os.umask(before)
    found = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "cache").rglob("*")}
    assert {".run", ".json"} <= found.keys()
    assert {mode & 0o077 for mode in found.values()} == {0}


def test_a_cache_of_no_bytes_is_no_cache(tmp_path: Path) -> None:
    backend = StateBackend(tmp_path.as_uri(), cache_dir=tmp_path / "cache", cache_bytes=0)
    assert backend.cache is None
    assert pickle.loads(pickle.dumps(backend)).cache is None


def test_without_cache_reads_the_same_store(tmp_path: Path) -> None:
    backend = StateBackend(tmp_path.as_uri(), cache_dir=tmp_path / "cache")
    uncached = backend.without_cache()
    assert uncached.cache is None
    assert uncached.objects("job").store is backend.objects("job").store
    assert uncached.ambient is backend.ambient
    assert backend.cache is not None
