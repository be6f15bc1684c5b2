"""The run cache within one process: what it trusts, rebuilds, evicts and reports."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import stat
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from lakestate.errors import InvalidInputError, StorageUnavailableError
from lakestate.storage.cache import entry as run_cache_entry
from lakestate.storage.cache.entry import checksum_of, decode_record, stamp_of
from lakestate.storage.cache.run_cache import CachedFile, CacheStats, RunCache
from lakestate.storage.local.private_folder import private_temporary_folder

KEY = "checkpoints/7/operator-count/totals-0-a1.parquet"
DEADLINE_S = 60


class Builder:
    """Writes known bytes and remembers how often it was asked."""

    def __init__(self, content: bytes = b"content of the run") -> None:
        self.content = content
        self.calls = 0

    def __call__(self, path: Path) -> None:
        self.calls += 1
        path.write_bytes(self.content)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(directory: Path) -> RunCache:
    return RunCache(directory, bytes_max=1000)


def content(file: CachedFile) -> bytes:
    with file:
        return bytes(file.memory_map().read())


def only(directory: Path, pattern: str) -> Path:
    [path] = directory.glob(pattern)
    return path


def age(cache: RunCache, key: str, used_s: int) -> None:
    record = Path(run_cache_entry.EntryFiles.of(cache._directory, run_cache_entry.entry_name(key)).record)
    os.utime(record, (used_s, used_s))


def present(cache: RunCache, key: str) -> bool:
    return Path(
        run_cache_entry.EntryFiles.of(cache._directory, run_cache_entry.entry_name(key)).data
    ).exists()


def test_an_entry_is_built_once_and_then_found(cache: RunCache) -> None:
    build = Builder()
    first, second = content(cache.open(KEY, build)), content(cache.open(KEY, build))
    assert (first, second, build.calls) == (build.content, build.content, 1)


def test_an_entry_is_found_by_a_cache_opened_later(cache: RunCache, directory: Path) -> None:
    content(cache.open(KEY, Builder()))
    build = Builder(b"never written")
    assert content(RunCache(directory, 1000).open(KEY, build)) == b"content of the run"
    assert build.calls == 0


def test_the_handle_says_where_the_file_is_and_how_large(cache: RunCache) -> None:
    with cache.open(KEY, Builder()) as file:
        assert (file.path.read_bytes(), file.size_bytes) == (b"content of the run", 18)


def test_an_empty_file_is_an_entry_like_any_other(cache: RunCache) -> None:
    build = Builder(b"")
    cache.open(KEY, build).close()
    assert (cache.open(KEY, build).size_bytes, build.calls) == (0, 1)


def test_a_closed_handle_refuses_to_map(cache: RunCache) -> None:
    file = cache.open(KEY, Builder())
    file.close()
    file.close()
    with pytest.raises(InvalidInputError, match="is closed"):
        file.memory_map()


def test_what_was_mapped_outlives_the_handle_and_the_entry(cache: RunCache) -> None:
    with cache.open(KEY, Builder()) as file:
        buffer = file.memory_map().read_buffer()
        file.path.unlink()
    assert buffer.to_pybytes() == b"content of the run"


def test_a_trusted_entry_is_not_read_again(cache: RunCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.open(KEY, Builder()).close()
    monkeypatch.setattr(
        "lakestate.storage.cache.run_cache.checksum_of", lambda descriptor: pytest.fail("was read")
    )
    assert content(cache.open(KEY, Builder())) == b"content of the run"


def let_time_pass(path: Path) -> None:
    """Until a change would show: before Linux 6.13 the times of files stand still for milliseconds."""
    probe = path.parent.with_name("probe")
    probe.touch()
    while probe.stat().st_ctime_ns <= path.stat().st_ctime_ns:
        probe.touch()


def flip_a_bit(path: Path) -> None:
    let_time_pass(path)
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def flip_a_bit_and_restore_the_time(path: Path) -> None:
    before = path.stat()
    flip_a_bit(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(path: Path) -> None:
    os.truncate(path, 5)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"!")


def replace_with_other_content(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(b"CONTENT OF THE RUN")
    other.rename(path)


@pytest.mark.parametrize(
    "damage",
    [flip_a_bit, flip_a_bit_and_restore_the_time, truncate, append, replace_with_other_content, Path.unlink],
)
def test_damaged_data_is_rebuilt(cache: RunCache, directory: Path, damage) -> None:
    cache.open(KEY, Builder()).close()
    damage(only(directory, "*.run"))
    build = Builder()
    assert content(cache.open(KEY, build)) == build.content
    assert build.calls == 1


def rot(path: Path) -> None:
    """As a disk does it: other bytes, and nothing that `stat` shows has changed."""
    record = path.with_suffix(".json")
    vouched = decode_record(record.read_bytes())
    assert vouched is not None
    flip_a_bit(path)
    record.write_bytes(msgspec.json.encode(replace(vouched, stamp=stamp_of(path.stat()))))


def test_what_rotted_on_the_disk_is_rebuilt_when_a_process_first_opens_it(
    cache: RunCache, directory: Path
) -> None:
    cache.open(KEY, Builder()).close()
    rot(only(directory, "*.run"))
    build = Builder()
    assert content(RunCache(directory, 1000).open(KEY, build)) == build.content
    assert build.calls == 1


def test_what_rotted_on_the_disk_is_not_found(cache: RunCache, directory: Path) -> None:
    cache.open(KEY, Builder()).close()
    rot(only(directory, "*.run"))
    assert RunCache(directory, 1000).find(KEY) is None


def test_another_process_reads_an_entry_once(
    cache: RunCache, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.open(KEY, Builder()).close()
    other, read = RunCache(directory, 1000), []
    monkeypatch.setattr(
        "lakestate.storage.cache.run_cache.checksum_of",
        lambda descriptor: read.append(descriptor) or checksum_of(descriptor),
    )
    for _ in range(3):
        other.open(KEY, Builder(b"never written")).close()
    assert len(read) == 1


@pytest.mark.parametrize(
    "record",
    [b"", b"{", b"[]", b"null", b'{"key": 3}', b"\xff\xfe", b"\x00" * 200, None],
    ids=["empty", "cut", "list", "null", "types", "not-utf8", "zeros", "absent"],
)
def test_an_entry_without_a_readable_record_is_rebuilt(
    cache: RunCache, directory: Path, record: bytes | None
) -> None:
    cache.open(KEY, Builder()).close()
    path = only(directory, "*.json")
    path.unlink() if record is None else path.write_bytes(record)
    build = Builder(b"new")
    assert (content(cache.open(KEY, build)), build.calls) == (b"new", 1)


def test_after_a_reboot_an_intact_entry_is_verified_once_and_trusted_again(
    cache: RunCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.open(KEY, Builder()).close()
    monkeypatch.setattr(run_cache_entry, "boot_id", lambda: "the next boot")
    build = Builder(b"never written")
    assert (content(cache.open(KEY, build)), build.calls) == (b"content of the run", 0)
    monkeypatch.setattr(
        "lakestate.storage.cache.run_cache.checksum_of", lambda descriptor: pytest.fail("was read")
    )
    assert content(cache.open(KEY, build)) == b"content of the run"


def test_a_copied_directory_is_verified_and_used(cache: RunCache, directory: Path, tmp_path: Path) -> None:
    cache.open(KEY, Builder()).close()
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in directory.glob("*.*"):
        (copy / path.name).write_bytes(path.read_bytes())
    build = Builder(b"never written")
    assert (content(RunCache(copy, 1000).open(KEY, build)), build.calls) == (b"content of the run", 0)


def test_two_keys_with_the_same_file_name_never_see_each_other(
    cache: RunCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakestate.storage.cache.run_cache.entry_name", lambda key: "0" * 32)
    assert content(cache.open("one", Builder(b"1"))) == b"1"
    assert content(cache.open("two", Builder(b"2"))) == b"2"
    assert content(cache.open("one", Builder(b"1"))) == b"1"


def test_any_string_is_a_key(cache: RunCache, directory: Path) -> None:
    for key in ("", "../../escape", "/etc/passwd", "ключ\n", "k" * 10_000):
        assert content(cache.open(key, Builder(key.encode()[:50]))) == key.encode()[:50]
    assert [path.name for path in directory.parent.iterdir()] == ["cache"]


def test_the_least_recently_used_entries_go_first(directory: Path) -> None:
    cache = RunCache(directory, bytes_max=320)
    for used_s, key in enumerate("abc"):
        cache.open(key, Builder(b"x" * 100)).close()
        age(cache, key, used_s)
    cache.open("a", Builder()).close()
    cache.open("d", Builder(b"x" * 100)).close()
    assert [present(cache, key) for key in "abcd"] == [True, False, True, True]
    assert cache.stats() == CacheStats(entries=3, size_bytes=300, hits=1, misses=4, evictions=1)


def test_an_entry_in_use_is_not_evicted(directory: Path) -> None:
    cache = RunCache(directory, bytes_max=250)
    held = cache.open("held", Builder(b"h" * 100))
    age(cache, "held", 0)
    for key in "abcd":
        cache.open(key, Builder(b"x" * 100)).close()
    assert (present(cache, "held"), cache.stats().entries) == (True, 2)
    assert content(held) == b"h" * 100


def test_an_entry_is_released_when_its_handle_is_collected(directory: Path) -> None:
    cache = RunCache(directory, bytes_max=150)
    handle = cache.open("dropped", Builder(b"h" * 100))
    del handle
    gc.collect()
    cache.open("next", Builder(b"x" * 100)).close()
    assert [present(cache, "dropped"), present(cache, "next")] == [False, True]


def test_an_entry_larger_than_the_cache_is_usable_and_goes_first(directory: Path) -> None:
    cache = RunCache(directory, bytes_max=100)
    with cache.open("huge", Builder(b"x" * 500)) as huge:
        assert huge.memory_map().size() == 500
        assert content(cache.open("huge", Builder())) == b"x" * 500
    cache.open("small", Builder(b"x" * 10)).close()
    assert cache.stats() == CacheStats(entries=1, size_bytes=10, hits=1, misses=2, evictions=1)


def test_the_bound_holds_when_the_counter_is_lost(directory: Path) -> None:
    cache = RunCache(directory, bytes_max=300)
    for number in range(20):
        if number % 3 == 0:
            (directory / "usage").write_bytes(b"??")
        cache.open(f"key {number}", Builder(b"x" * 100)).close()
        assert cache.stats().size_bytes <= 300


def test_inserting_does_not_scan_while_there_is_room(
    cache: RunCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.open("first", Builder()).close()
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail("was scanned"))
    cache.open("second", Builder()).close()


def test_a_failing_build_leaves_nothing_behind(cache: RunCache, directory: Path) -> None:
    def build(path: Path) -> None:
        path.write_bytes(b"half of it")
        raise ConnectionResetError("the store went away")

    with pytest.raises(ConnectionResetError, match="the store went away"):
        cache.open(KEY, build)
    assert [path for path in directory.iterdir() if path.is_file()] == []
    assert content(cache.open(KEY, Builder())) == b"content of the run"


def test_a_build_that_replaces_its_file_is_refused(cache: RunCache, directory: Path) -> None:
    with pytest.raises(InvalidInputError, match="written in place"):
        cache.open(KEY, replace_with_other_content)
    assert [path for path in directory.iterdir() if path.is_file()] == []


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_kept(
    cache: RunCache, directory: Path
) -> None:
    (directory / "dead.tmp").write_bytes(b"half")

    def build(path: Path) -> None:
        path.write_bytes(b"outer")
        RunCache(directory, 1000).open("another stripe", Builder()).close()
        assert [left.name for left in directory.glob("*.tmp")] == [path.name]

    assert content(cache.open(KEY, build)) == b"outer"
    assert list(directory.glob("*.tmp")) == []


def test_a_full_disk_is_named(cache: RunCache, directory: Path) -> None:
    def build(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageUnavailableError, match="disk of the run cache is full") as caught:
        cache.open(KEY, build)
    assert caught.value.object_name == str(directory)
    assert list(directory.glob("*.*")) == []


def test_a_disk_that_is_full_for_the_record_leaves_nothing_behind(
    cache: RunCache, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(files: object, record: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("lakestate.storage.cache.run_cache.write_record", full)
    with pytest.raises(StorageUnavailableError, match="free space"):
        cache.open(KEY, Builder())
    assert list(directory.glob("*.*")) == []


def test_a_directory_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    with pytest.raises(InvalidInputError, match="cannot use its directory") as caught:
        RunCache(tmp_path / "cache", 1000)
    assert caught.value.object_name == str(tmp_path / "cache")


def test_a_directory_without_permission_is_refused_by_name(
    cache: RunCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str, *arguments: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(InvalidInputError, match=r"Permission denied.*configure another"):
        cache.open(KEY, Builder())


def test_a_directory_removed_under_our_feet_is_made_again(cache: RunCache, directory: Path) -> None:
    cache.open(KEY, Builder()).close()
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
    assert content(cache.open(KEY, Builder())) == b"content of the run"


def test_a_cache_without_room_is_refused(directory: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs room"):
        RunCache(directory, 0)


def test_threads_that_want_the_same_key_build_it_once(cache: RunCache) -> None:
    build, results = Builder(b"shared"), []
    start = threading.Barrier(8)

    def reader() -> None:
        start.wait(DEADLINE_S)
        results.append(content(cache.open(KEY, build)))

    threads = [threading.Thread(target=reader) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert (results, build.calls) == ([b"shared"] * 8, 1)
    assert cache.stats() == CacheStats(entries=1, size_bytes=6, hits=7, misses=1, evictions=0)


def test_the_default_folder_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = private_temporary_folder("cache")
    assert folder == private_temporary_folder("cache") == tmp_path / f"cache-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("found", ["not a directory", "a directory of user", "drwxrwxrwx"])
def test_a_default_folder_that_others_can_fill_is_refused(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = private_temporary_folder("cache")
    if found == "not a directory":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif found == "drwxrwxrwx":
        folder.chmod(0o777)
    else:
        stranger = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: stranger)
        folder.rename(tmp_path / f"cache-{stranger}")
    with pytest.raises(InvalidInputError, match=found):
        private_temporary_folder("cache")


def test_nobody_waits_without_end_for_whoever_publishes_or_evicts_an_entry(tmp_path: Path) -> None:
    RunCache(tmp_path, 1000).open(KEY, Builder(b"content")).close()
    [data] = [path for path in tmp_path.iterdir() if path.is_file() and path.read_bytes() == b"content"]
    found: list[CachedFile | None] = []
    with data.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        reader = threading.Thread(
            target=lambda: found.append(RunCache(tmp_path, 1000).find(KEY)), daemon=True
        )
        reader.start()
        reader.join(DEADLINE_S)
    assert found == [None]


def test_a_default_folder_that_cannot_be_made_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", full)
        with pytest.raises(StorageUnavailableError, match="the disk is full"):
            private_temporary_folder("cache")
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(InvalidInputError, match=r"no temporary directory .* set TMPDIR"):
        private_temporary_folder("cache")
