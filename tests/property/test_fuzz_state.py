"""Hostile metadata under checksums that are right, from the epoch record down: state opens, or is refused.

Anyone who can write to the store can forge a whole tree. Opening it must not run anything, leave the job's
root, hang, or raise what is not ours.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fuzzing.hostile_bytes import FUZZ, decodes_or_refuses, mutated_message
from tests.support.jobs.table_job import TableJob

import lakestate as ls
from lakestate.codec import decode_manifest, encode_manifest
from lakestate.coordinator.recover import recover_job
from lakestate.coordinator.retention.retain import read_references
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.records import EpochRecord
from lakestate.protocol.values import ObjectRef

pytestmark = pytest.mark.fuzz

TABLES = [
    ls.KeyedTable("keyed", key="k bigint", value="n bigint"),
    ls.TimeKeyTable("times", key="k bigint", value="ts timestamp, n bigint", time="ts", retention="1 day"),
    ls.GlobalKeyedTable("global", key=str, value=int),
]
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class ForgedJob:
    """A small job whose metadata is replaced by other metadata, with all checksums right."""

    def __init__(self) -> None:
        self.job = TableJob(TABLES, parallelism=2)
        rows = pa.table({"k": range(40), "n": range(40)})
        for index, manager in enumerate(self.job.managers):
            mine = rows.filter(pa.array([owner == index for owner in owners(rows)]))
            manager.keyed("keyed").put(mine)
            times = pa.array([NOON] * len(mine), pa.timestamp("us", tz="UTC"))
            manager.time_key("times").insert(mine.append_column("ts", times))
            manager.global_keyed("global").insert(f"key {index}", index)
        self.job.checkpoint(watermark_us=0)
        self.objects = self.job.backend.objects("job")
        record = self.objects.read_epoch(ls.Epoch(1))
        assert record is not None
        self.record = record
        self.manifest = self.objects.read_manifest(record)
        self.manifest_bytes = encode_manifest(self.manifest)
        entry = self.manifest.operators[0].subtasks[0]
        self.subtask_bytes = self.objects.read_verified(entry.metadata)

    def with_subtask(self, data: bytes) -> None:
        ref = self._put("checkpoints/1/forged.metadata", data)
        operator = self.manifest.operators[0]
        first = replace(operator.subtasks[0], metadata=ref)
        forged = replace(operator, subtasks=(first, *operator.subtasks[1:]))
        self.with_manifest(encode_manifest(replace(self.manifest, operators=(forged,))))

    def with_manifest(self, data: bytes) -> None:
        ref = self._put("checkpoints/1/forged.pb", data)
        record = EpochRecord("job", ls.Epoch(1), self.record.generation, ref, 0)
        self.objects.store.put(
            self.objects.store_path(self.objects.paths.epoch_record(ls.Epoch(1))), record.encode()
        )

    def _put(self, path: str, data: bytes) -> ObjectRef:
        self.objects.store.put(self.objects.store_path(path), data)
        return ObjectRef(path, len(data), xxhash.xxh3_64_intdigest(data))

    def open_everything(self, parallelism: int) -> None:
        """All that a start, a restore, a reader and retention do with metadata."""
        decodes_or_refuses(lambda: self.job.backend.load_checkpoint_metadata("job", ls.Epoch(1)))
        decodes_or_refuses(lambda: read_references(self.objects, ls.Epoch(1)))
        mine = self.job.backend.claim("job")
        decodes_or_refuses(lambda: recover_job(self.objects, mine))
        for index in range(parallelism):
            task = ls.TaskInfo("job", "op", index, parallelism)
            decodes_or_refuses(lambda task=task: self._read(task), Path(self.job._folder.name))

    def _read(self, task: ls.TaskInfo) -> None:
        manager = ls.TableManager.load(task, TABLES, self.job.backend, ls.Epoch(1))
        list(manager.keyed("keyed").scan())
        manager.time_key("times").rows_between(None, None)
        dict(manager.global_keyed("global").items())
        manager.checkpoint(ls.Epoch(2), 1, None, False)


def owners(rows: pa.Table) -> list[int]:
    from lakestate.tables.hashing.routing import routing_keys, subtasks_of

    return list(subtasks_of(routing_keys([rows.column("k").combine_chunks()]), 2))


@pytest.fixture(scope="module")
def forged() -> Iterator[ForgedJob]:
    made = ForgedJob()
    yield made
    made.job.close()


@settings(FUZZ, max_examples=80)
@given(data=st.data())
def test_state_opens_or_is_refused_whatever_a_subtask_says(forged: ForgedJob, data: st.DataObject) -> None:
    forged.with_subtask(data.draw(mutated_message(forged.subtask_bytes)))
    forged.open_everything(data.draw(st.sampled_from([1, 2, 3])))


@settings(FUZZ, max_examples=80)
@given(data=st.data())
def test_state_opens_or_is_refused_whatever_a_manifest_says(forged: ForgedJob, data: st.DataObject) -> None:
    forged.with_manifest(data.draw(mutated_message(forged.manifest_bytes)))
    forged.open_everything(data.draw(st.sampled_from([1, 2, 3])))


def test_the_tree_is_whole_before_it_is_forged(forged: ForgedJob) -> None:
    forged.with_subtask(forged.subtask_bytes)
    found: Manifest = decode_manifest(forged.manifest_bytes, "m", "job")
    assert found == forged.manifest
    forged._read(ls.TaskInfo("job", "op"))
