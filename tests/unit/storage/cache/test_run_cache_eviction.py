"""How the run cache stays within its bound: what goes, and what is kept."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from tests.support.storage.run_cache import (
    KEY,
    Builder,
    age,
    content,
    present,
)

from lakestate.errors import InvalidInputError
from lakestate.storage.cache.run_cache import CacheStats, RunCache


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


def test_a_cache_without_room_is_refused(directory: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs room"):
        RunCache(directory, 0)


class TestEntries:
    def test_entries_are_bounded_in_number_too(self, tmp_path: Path) -> None:
        cache = RunCache(tmp_path, bytes_max=1_000_000, entries_max=32)
        for number in range(100):
            cache.open(str(number), lambda path: path.write_bytes(b"x")).close()
        held = cache.stats()
        assert 30 <= held.entries <= 32
        newest = cache.find("99")
        assert newest is not None
        newest.close()

    def test_what_is_discarded_is_gone_and_makes_room(self, tmp_path: Path) -> None:
        cache = RunCache(tmp_path, bytes_max=1_000_000, entries_max=2)
        for key in ("a", "b"):
            cache.open(key, lambda path: path.write_bytes(b"x")).close()
        cache.discard(["a", "never there"])
        assert cache.find("a") is None
        cache.open("c", lambda path: path.write_bytes(b"x")).close()
        assert cache.stats().entries == 2
        kept = cache.find("b")
        assert kept is not None
        kept.close()

    def test_every_part_of_a_discarded_group_is_gone_and_makes_room(self, tmp_path: Path) -> None:
        cache = RunCache(tmp_path, bytes_max=1_000_000, entries_max=3)
        for key in ("a#all", "a#0-1", "b#all"):
            cache.open(key, lambda path: path.write_bytes(b"x")).close()
        cache.discard_groups(["a", "never there"])
        assert cache.find("a#all") is None
        assert cache.find("a#0-1") is None
        for key in ("c#all", "d"):
            cache.open(key, lambda path: path.write_bytes(b"x")).close()
        assert cache.stats() == CacheStats(entries=3, size_bytes=3, hits=0, misses=5, evictions=2)

    def test_an_entry_in_use_is_not_discarded(self, tmp_path: Path) -> None:
        cache = RunCache(tmp_path, bytes_max=1_000_000)
        with cache.open("a", lambda path: path.write_bytes(b"x")):
            cache.discard(["a"])
            assert cache.stats().entries == 1

    @pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
    def test_a_cache_without_room_is_refused(self, tmp_path: Path, bounds: tuple[int, int]) -> None:
        with pytest.raises(InvalidInputError, match="needs room"):
            RunCache(tmp_path, *bounds)
