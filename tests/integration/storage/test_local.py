"""What is special about local files: full disks, links, leftovers, and versions."""

from __future__ import annotations

import errno
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakestate.errors import InvalidInputError, NotFoundError, OutcomeUnknownError, StorageUnavailableError
from lakestate.storage import ByteRange, Created, ObjectStore, SwapConflict, open_store
from lakestate.storage.local.errors import translate_read_errors, translate_write_errors
from lakestate.storage.local.file_tree import FileTree, sweep_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> ObjectStore:
    return open_store(root.as_uri())


def files_below(folder: Path) -> list[str]:
    """Every file but the locks, with the reserved folder."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "locks")
    return sorted(str(path.relative_to(folder)) for path in found)


def test_the_same_bytes_again_are_another_version(store: ObjectStore) -> None:
    versions = [store.put("object", b"same").version for _ in range(300)]
    assert len(set(versions)) == 300


def test_versions_differ_even_if_the_clock_stands_still(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakestate.storage.local.file_tree.time.time_ns", lambda: 1_700_000_000_000_000_000)
    versions = [store.put("object", b"same").version for _ in range(50)]
    assert len(set(versions)) == 50


def test_a_swap_to_the_same_bytes_is_noticed(store: ObjectStore) -> None:
    first = store.put("object", b"same").version
    store.compare_and_swap("object", b"same", first)
    assert store.compare_and_swap("object", b"other", first) == SwapConflict(store.get("object"))


def test_only_the_object_is_left_after_every_kind_of_write(store: ObjectStore, root: Path) -> None:
    version = store.put("folder/a", b"1").version
    store.compare_and_swap("folder/a", b"2", version)
    store.compare_and_swap("folder/a", b"3", version)
    store.create("folder/b", b"1")
    store.create("folder/b", b"2")
    store.copy("folder/a", "folder/c")
    assert files_below(root) == ["folder/a", "folder/b", "folder/c"]


def test_folders_that_become_empty_are_removed(store: ObjectStore, root: Path) -> None:
    store.put("checkpoints/1/operator-a/file", b"data")
    store.put("checkpoints/2/operator-a/file", b"data")
    store.delete_many(["checkpoints/1/operator-a/file"])
    assert [folder.name for folder in (root / "checkpoints").iterdir()] == ["2"]


def test_an_object_below_an_object_is_refused(store: ObjectStore) -> None:
    store.put("object", b"data")
    store.put("folder/object", b"data")
    for attempt in (
        lambda: store.put("object/below", b"x"),
        lambda: store.create("object/below", b"x"),
        lambda: store.put("folder", b"x"),
        lambda: store.create("folder", b"x"),
    ):
        with pytest.raises(InvalidInputError, match="blocked"):
            attempt()
    with pytest.raises(NotFoundError):
        store.get("object/below")
    store.delete_many(["object/below", "folder"])
    assert [info.path for info in store.list()] == ["folder/object", "object"]


def test_no_link_leads_out_of_the_root(store: ObjectStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("object", b"data")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    upload = store.uploads.start("folder/new")
    part = store.uploads.put_part(upload, 1, b"x")
    for attempt in (
        lambda: store.get("folder/secret"),
        lambda: store.put("folder/new", b"x"),
        lambda: store.create("folder/new", b"x"),
        lambda: store.delete_many(["folder/secret"]),
        lambda: store.copy("object", "folder/new"),
        lambda: list(store.list("folder/")),
        lambda: store.get("file"),
        lambda: store.head("file"),
        lambda: store.uploads.complete(upload, [part]),
    ):
        with pytest.raises(InvalidInputError, match="symbolic link"):
            attempt()
    assert [info.path for info in store.list()] == ["object"]
    assert files_below(outside) == ["secret"]


def test_writing_over_a_link_replaces_the_link(store: ObjectStore, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    root.mkdir()
    (root / "file").symlink_to(tmp_path / "secret")
    store.put("file", b"data")
    assert store.get("file").data == b"data"
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_a_store_below_another_is_listed_without_its_own_files(store: ObjectStore, root: Path) -> None:
    below = open_store((root / "job").as_uri())
    below.put("object", b"data")
    below.uploads.start("upload")
    assert [info.path for info in store.list()] == ["job/object"]


def test_a_leftover_is_swept_only_when_old_and_unlocked(root: Path) -> None:
    files = FileTree(root)
    with files.temporary() as mine:
        folder = mine.path.parent
        (folder / "dead").write_bytes(b"left by a killed process")
        (folder / "dead-folder").mkdir()
        sweep_temporary(folder, older_than_s=60)
        assert {path.name for path in folder.iterdir()} == {mine.path.name, "dead", "dead-folder"}
        sweep_temporary(folder, older_than_s=-1)
        assert list(folder.iterdir()) == [mine.path]


def test_leftovers_are_swept_by_the_next_process(root: Path) -> None:
    open_store(root.as_uri()).put("object", b"data")
    leftover = root / ".lakestate" / "tmp" / "leftover"
    leftover.write_bytes(b"left by a killed process")
    os.utime(leftover, (1, 1))
    open_store(root.as_uri()).put("object", b"data")
    assert not leftover.exists()


def test_what_is_no_leftover_of_ours_neither_stops_a_write_nor_is_touched(root: Path, tmp_path: Path) -> None:
    open_store(root.as_uri()).put("object", b"data")
    folder, outside = root / ".lakestate" / "tmp", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    links = {"to-folder": outside, "to-file": outside / "secret", "to-nothing": tmp_path / "nothing"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
        os.utime(folder / name, (1, 1), follow_symlinks=False)
    os.mkfifo(folder / "pipe")
    os.utime(folder / "pipe", (1, 1))
    open_store(root.as_uri()).put("object", b"more")
    assert {path.name for path in folder.iterdir()} == {*links, "pipe"}
    assert files_below(outside) == ["secret"]


@pytest.mark.parametrize("place", [".lakestate", ".lakestate/tmp", ".lakestate/locks"])
def test_a_link_in_place_of_a_folder_of_ours_is_refused_by_its_own_name(
    root: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "outside").mkdir()
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).symlink_to(tmp_path / "outside")
    (root / "generation.json").write_bytes(b"replacing it needs a lock")
    with pytest.raises(InvalidInputError) as refused:
        open_store(root.as_uri()).put("generation.json", b"data")
    assert refused.value.object_name == str(root / place)
    assert files_below(tmp_path / "outside") == []


def test_a_link_in_place_of_a_lock_is_refused_by_its_own_name(root: Path, tmp_path: Path) -> None:
    store = open_store(root.as_uri())
    store.put("object", b"data")
    store.put("object", b"data")
    (lock,) = (root / ".lakestate" / "locks").iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidInputError) as refused:
        store.put("object", b"data")
    assert refused.value.object_name == str(lock)
    assert not (tmp_path / "outside").exists()


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Files of this process cannot grow beyond 256 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_fills_up_in_a_write_leaves_the_old_object(store: ObjectStore, root: Path) -> None:
    before = store.put("object", b"old")
    for attempt in (
        lambda: store.put("object", bytes(1 << 20)),
        lambda: store.create("new", bytes(1 << 20)),
        lambda: store.compare_and_swap("object", bytes(1 << 20), before.version),
        lambda: store.uploads.put_part(store.uploads.start("new"), 1, bytes(1 << 20)),
    ):
        with pytest.raises(StorageUnavailableError, match="the disk is full"):
            attempt()
    assert store.get("object").data == b"old"
    assert [info.path for info in store.list()] == ["object"]
    assert list((root / ".lakestate" / "tmp").iterdir()) == []


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_no_space_left_is_said_and_nothing_is_visible(
    store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store.put("object", b"old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(f"lakestate.storage.local.file_tree.os.{call}", full)
        with pytest.raises(StorageUnavailableError, match="the disk is full") as caught:
            store.put("object", b"new")
        with pytest.raises(StorageUnavailableError):
            store.create("another", b"new")
    assert caught.value.object_name == f"{store.url}/object"
    assert store.get("object").data == b"old"
    assert files_below(root) == ["object"]


def test_a_folder_that_cannot_be_synced_leaves_the_outcome_unknown(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("folder/object", b"old")

    def failing(_: Path) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("lakestate.storage.local.file_tree.fsync_folder", failing)
        with pytest.raises(OutcomeUnknownError, match="power loss"):
            store.create("folder/another", b"new")
    assert not isinstance(store.create("folder/another", b"x"), Created)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, StorageUnavailableError),
        (errno.EDQUOT, StorageUnavailableError),
        (errno.EIO, StorageUnavailableError),
        (errno.EMFILE, StorageUnavailableError),
        (errno.EACCES, InvalidInputError),
        (errno.EROFS, InvalidInputError),
        (errno.ENOTDIR, InvalidInputError),
        (errno.ENAMETOOLONG, InvalidInputError),
        (errno.ELOOP, InvalidInputError),
    ],
)
def test_errors_of_the_system_are_said_in_our_tree(code: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="store/object"), translate_write_errors("store/object"):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENOTDIR, errno.EISDIR])
def test_a_file_that_is_not_there_is_not_found(code: int) -> None:
    with pytest.raises(NotFoundError, match="store/object"), translate_read_errors("store/object"):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    "url",
    ["file://relative/path", "file:relative", "file://", "", "file:///query?x=1", "C:\\windows"],
)
def test_a_url_that_names_no_directory_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(url)


def test_a_url_may_be_percent_encoded(tmp_path: Path) -> None:
    open_store(f"{tmp_path.as_uri()}/with%20space").put("object", b"data")
    assert (tmp_path / "with space" / "object").read_bytes() == b"data"


def test_local_files_take_no_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="region"):
        open_store(tmp_path.as_uri(), {"region": "x"})


def test_reading_creates_nothing(store: ObjectStore, root: Path) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: store.get("object"),
        lambda: store.head("object"),
    ]
    for attempt in attempts:
        with pytest.raises(NotFoundError):
            attempt()
    assert list(store.list()) == []
    assert list(store.uploads.list_dangling()) == []
    assert not root.exists()


def open_below(folder: Path) -> list[Path]:
    """The files that this process has open there. Elsewhere other tests may still close some."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(descriptor.readlink())
    return [path for path in found if path.is_relative_to(folder)]


def test_no_descriptor_is_left_open(store: ObjectStore, root: Path) -> None:
    version = store.put("folder/object", b"data").version
    for _ in range(20):
        with pytest.raises(NotFoundError):
            store.get("folder")
        store.create("folder/object", b"x")
        store.compare_and_swap("folder/object", b"x", version)
        with pytest.raises(InvalidInputError):
            store.get_range("folder/object", ByteRange(0, 99))
    assert open_below(root) == []
