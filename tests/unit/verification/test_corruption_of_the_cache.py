"""A damaged run cache costs time, and never a row."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.support.corruption.arena import Arena
from tests.support.corruption.job import (
    expected_state,
)
from tests.support.corruption.mutations import Original, damage
from tests.support.corruption.outcomes import table_of

import lakestate as ls
from lakestate.storage.cache.entry import decode_record, stamp_of
from lakestate.storage.parallel import run_sequentially

CACHE_MUTATIONS = 150


@pytest.mark.slow
def test_a_damaged_cached_run_costs_time_and_never_a_row(arenas: list[Arena], tmp_path: Path) -> None:
    arena = arenas[0]
    outcomes: Counter[tuple[str, str, str]] = Counter()
    with run_sequentially():
        arena.job.put_back(arena.world)
        pristine = tmp_path / "pristine"
        _restored_with(arena, pristine)
        _keep_needed_entries(arena, pristine, tmp_path / "without")
        for seed in range(CACHE_MUTATIONS):
            folder = tmp_path / "cache"
            shutil.copytree(pristine, folder)
            kind, mutation, named = _strike_cache(random.Random(seed), folder)
            outcomes[kind, mutation, "named" if named else "harmless"] += 1
            _restored_with(arena, folder)
            assert ls.verify_cache(folder).is_clean, "what was damaged is built again"
            shutil.rmtree(folder)
    print("\n" + table_of(outcomes))
    assert {kind for kind, _, _ in outcomes} == {"cached run", "record of a cached run"}


def _keep_needed_entries(arena: Arena, pristine: Path, folder: Path) -> None:
    """Remove entries that a restore does not miss, because another one holds their rows too."""
    for run in sorted(pristine.glob("*.run")):
        shutil.copytree(pristine, folder)
        (folder / run.name).unlink()
        _restored_with(arena, folder)
        if not (folder / run.name).exists():
            run.unlink()
            run.with_suffix(".json").unlink()
        shutil.rmtree(folder)


def _strike_cache(rng: random.Random, folder: Path) -> tuple[str, str, bool]:
    """Damage a cached run or its record; in half of the cases so that `stat` does not show it."""
    kind, pattern = rng.choice([("cached run", "*.run"), ("record of a cached run", "*.json")])
    files = sorted(folder.glob(pattern))
    file = rng.choice(files)
    others = [(other.name, other.read_bytes()) for other in files if other != file]
    mutation, done = damage(rng, Original(file.read_bytes(), others, [data for _, data in others]))
    for path, data in ((file, done.data), (folder / str(done.swapped_with), file.read_bytes())):
        if data is None:
            path.unlink()
        elif path == file or done.swapped_with is not None:
            path.write_bytes(data)
    if kind == "cached run" and rng.random() < 0.5:
        for path in (file, folder / str(done.swapped_with)):
            _vouch_for(path)
    report = ls.verify_cache(folder)
    told = [finding.object_name for finding in report.findings]
    is_named = any(Path(name).stem == file.stem for name in told)
    # An entry of which one file is gone is no entry, and a record only says when to look at the file.
    is_harmless = mutation == "delete" or kind != "cached run"
    assert is_named or is_harmless, f"{mutation} of {file.name} is not named by {report}"
    return kind, mutation, is_named


def _vouch_for(path: Path) -> None:
    """As if a disk had changed the bytes: the record still fits all that `stat` shows."""
    record = path.with_suffix(".json")
    known = decode_record(record.read_bytes()) if path.exists() and record.exists() else None
    if known is not None:
        record.write_bytes(msgspec.json.encode(replace(known, stamp=stamp_of(path.stat()))))


def _restored_with(arena: Arena, cache: Path) -> None:
    """Restore the newest epoch with a cache, as a process that was just started."""
    backend = ls.ParquetBackend(arena.job.backend._config, cache_dir=cache)
    found = arena.job.restore_state(arena.newest, 2, backend=backend)
    assert found == expected_state(arena.world.upto[arena.newest])
