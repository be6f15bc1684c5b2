"""The run cache within one process: what it builds, trusts and rebuilds."""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.support.storage.run_cache import (
    KEY,
    Builder,
    content,
    only,
    replace_with_other_content,
)

from lakestate.errors import InvalidInputError
from lakestate.storage.cache import entry as run_cache_entry
from lakestate.storage.cache.entry import checksum_of, decode_record, stamp_of
from lakestate.storage.cache.run_cache import CachedFile, CacheStats, RunCache

DEADLINE_S = 60


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


def test_what_one_cache_of_a_process_has_verified_another_one_does_not_read_again(
    cache: RunCache, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.open(KEY, Builder()).close()
    monkeypatch.setattr(
        "lakestate.storage.cache.run_cache.checksum_of", lambda descriptor: pytest.fail("was read")
    )
    assert content(RunCache(directory, 1000).open(KEY, Builder())) == b"content of the run"


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
    monkeypatch.setattr("lakestate.storage.cache.run_cache._VERIFIED", {})
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


def test_no_process_waits_forever_for_one_that_publishes_or_evicts_an_entry(tmp_path: Path) -> None:
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
