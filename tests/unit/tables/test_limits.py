"""Many epochs, tables, files and subtasks, long keys and values: what works, at which cost, what is refused.

The sizes here are those that an ordinary run has time for; `tests/soak/test_soak_limits.py` has the large
ones. Costs are counted in store calls and bytes, which do not depend on how busy the machine is.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.table_job import PARTIAL, TableJob
from tests.unit.codec.test_codec import FILE, SUBTASK

import lakestate as ls
from lakestate.codec import decode_subtask, encode_subtask, messages
from lakestate.coordinator import upkeep
from lakestate.coordinator.known_references import KnownReferences
from lakestate.coordinator.retain import references_of, retain
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Manifest, TableFiles, TableType
from lakestate.protocol.resolve import Damaged
from lakestate.protocol.retention import RetentionPlan, RetentionPolicy, RetentionRefused
from lakestate.protocol.values import Epoch
from lakestate.tables.arrow import value_limits, wide_text
from lakestate.tables.arrow.schema import arrow_type
from lakestate.tables.arrow.wide_text import narrowed_column, one_array
from lakestate.tables.global_keyed import files as global_keyed_files
from lakestate.tables.global_keyed import value_codec
from lakestate.tables.runs.parquet import encode_run, long_columns
from lakestate.testing.faults import Fault, FaultyStore, Operation

KEYED = ls.KeyedTable("t", key="k string", value="n bigint")


class Counting:
    """A hook that counts the calls of a store."""

    def __init__(self) -> None:
        self.calls: Counter[Operation] = Counter()

    def __call__(self, operation: Operation, path: str) -> Fault:
        self.calls[operation] += 1
        return Fault.NONE


@pytest.fixture
def jobs() -> Iterator[Any]:
    made: list[TableJob] = []

    def make(*arguments: Any, **settings: Any) -> TableJob:
        made.append(TableJob(*arguments, **settings))
        return made[-1]

    yield make
    for job in made:
        job.close()


def counted(job: TableJob) -> tuple[Any, Counting]:
    hook = Counting()
    objects = job.backend.objects("job")
    return replace(objects, store=FaultyStore(objects.store, hook)), hook


def with_epochs(job: TableJob, count: int) -> TableJob:
    for number in range(count):
        job.managers[0].keyed("t").put(pa.table({"k": [f"key {number % 7}"], "n": [number]}))
        job.checkpoint()
    return job


class TestEpochs:
    def test_publishing_costs_the_same_however_many_epochs_are_retained(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 3)
        hook = Counting()
        job.backend.__dict__["_store"] = FaultyStore(job.backend.objects("job").store, hook)
        with_epochs(job, 20)
        assert hook.calls[Operation.LIST] == 0

    def test_retention_reads_the_metadata_of_an_epoch_once(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 20)
        objects, hook = counted(job)
        known = KnownReferences()
        mine = job.backend.claim("job")
        policy = RetentionPolicy(15)
        retain(objects, mine, policy, job.backend.ambient, None, known)
        assert hook.calls[Operation.GET] > 2 * 15
        hook.calls.clear()
        assert isinstance(retain(objects, mine, policy, job.backend.ambient, None, known), RetentionPlan)
        # The fence and the boundary; no metadata.
        assert hook.calls[Operation.GET] < 10

    def test_what_is_remembered_keeps_what_is_needed(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 12)
        objects = job.backend.objects("job")
        known = KnownReferences()
        epochs = objects.list_epochs()
        for boundary in (Epoch(2), Epoch(5), Epoch(5), Epoch(9)):
            retained = [epoch for epoch in epochs if epoch >= boundary or epoch == 1]
            found = known.of(retained, boundary, lambda epoch: references_of(objects, epoch))
            needed = {path for epoch in retained for path in references_of(objects, epoch)}  # type: ignore[union-attr]
            assert {path for paths in found.values() for path in paths} == needed  # type: ignore[union-attr]

    def test_damage_is_not_remembered_and_a_lost_epoch_makes_it_look_again(self) -> None:
        known = KnownReferences()
        asked: list[int] = []

        def read(epoch: Epoch) -> frozenset[str] | Damaged:
            asked.append(int(epoch))
            return Damaged("manifest", "gone") if epoch == 2 else frozenset({f"of {epoch}", "shared"})

        epochs = [Epoch(number) for number in (1, 2, 3)]
        assert known.of(epochs, Epoch(1), read)[Epoch(2)] == Damaged("manifest", "gone")
        assert asked == [1, 2, 3]
        known.of(epochs, Epoch(1), read)
        assert asked == [1, 2, 3, 2, 3]
        # Nobody refers to what epoch 3 shared with epoch 1 but epoch 1.
        found = known.of([Epoch(1)], Epoch(1), read)
        assert found[Epoch(1)] == {"of 1", "shared"}

    def test_an_epoch_that_heals_takes_nothing_from_newer_ones(self) -> None:
        known = KnownReferences()
        damaged = {2}

        def read(epoch: Epoch) -> frozenset[str] | Damaged:
            return Damaged("manifest", "gone") if epoch in damaged else frozenset({f"of {epoch}", "shared"})

        epochs = [Epoch(number) for number in (2, 3, 4)]
        known.of(epochs, Epoch(2), read)
        damaged.clear()
        known.of(
            [*epochs, Epoch(5)],
            Epoch(2),
            lambda epoch: read(epoch) - {"shared"} if epoch == 5 else read(epoch),
        )  # type: ignore[operator]
        found = known.of([Epoch(3), Epoch(4), Epoch(5)], Epoch(3), lambda epoch: frozenset({f"of {epoch}"}))
        assert found == {3: {"of 3"}, 4: {"of 4", "shared"}, 5: {"of 5"}}

    def test_a_boundary_that_was_refused_and_is_lower_again_takes_nothing_from_newer_ones(self) -> None:
        known = KnownReferences()
        needs = {2: {"old"}, 3: {"old", "shared"}, 4: {"shared"}, 5: {"new"}}

        def read(epoch: Epoch) -> frozenset[str]:
            return frozenset(needs[epoch])

        epochs = [Epoch(number) for number in needs]
        for boundary in (4, 2, 4):
            found = known.of([epoch for epoch in epochs if epoch >= boundary], Epoch(boundary), read)
        assert found == {4: {"shared"}, 5: {"new"}}

    def test_the_newest_epoch_is_read_whatever_is_remembered(self) -> None:
        known = KnownReferences()
        known.of([Epoch(1), Epoch(2)], Epoch(1), lambda epoch: frozenset({f"of {epoch}"}))
        found = known.of([Epoch(1), Epoch(2)], Epoch(1), lambda epoch: frozenset({f"of {epoch} again"}))
        assert found == {1: {"of 1"}, 2: {"of 2", "of 2 again"}}
        gone = Damaged("manifest", "gone")
        assert known.of([Epoch(1), Epoch(2)], Epoch(1), lambda _: gone)[Epoch(2)] == gone

    def test_no_data_file_of_a_retained_epoch_goes_after_an_older_one_has_healed(self, jobs: Any) -> None:
        job = with_epochs(jobs([KEYED]), 4)
        objects = job.backend.objects("job")
        manifest = objects.full(objects.paths.manifest(Epoch(2)))
        data = objects.store.get(manifest).data
        objects.store.delete_many([manifest])
        assert isinstance(job.backend.cleanup_checkpoint("job", 2), RetentionRefused)
        objects.store.put(manifest, data)
        job.compact(PARTIAL)
        job.restart()
        with_epochs(job, 1)
        for oldest in (2, 3):
            assert isinstance(job.backend.cleanup_checkpoint("job", oldest), RetentionPlan)
        there = {info.path for info in objects.store.list()}
        for epoch in objects.list_epochs():
            needed = {objects.full(path) for path in references_of(objects, epoch)}
            assert needed - there <= {objects.full(objects.paths.commit_marker(epoch))}

    def test_what_is_remembered_is_bounded(self) -> None:
        known = KnownReferences(paths_max=3)
        asked: list[int] = []

        def read(epoch: Epoch) -> frozenset[str]:
            asked.append(int(epoch))
            return frozenset({f"a {epoch}", f"b {epoch}"})

        epochs = [Epoch(1), Epoch(2)]
        for _ in range(2):
            found = known.of(epochs, Epoch(1), read)
            assert {path for paths in found.values() for path in paths} == {"a 1", "b 1", "a 2", "b 2"}  # type: ignore[union-attr]
        assert asked == [1, 2, 1, 2]

    @pytest.mark.parametrize(("keep", "expected"), [(10, [1, 2, 3, 4, 5, 6]), (500, [1, 6])])
    def test_retention_of_many_epochs_waits_until_a_hundredth_can_go(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch, keep: int, expected: list[int]
    ) -> None:
        at: list[int] = []
        monkeypatch.setattr(upkeep, "retain", lambda *arguments: at.append(arguments[4]))
        job = jobs([KEYED])
        mine = job.backend.claim("job")
        beside = upkeep.Upkeep(
            job.backend.objects("job"),
            mine,
            job.backend.ambient,
            retention=RetentionPolicy(keep),
            compaction=None,
            compactor=lambda *_: {},
            clean_up=lambda _: None,
            executor=AtOnce(),
        )
        for number in range(1, 7):
            beside.after_epoch(Manifest("job", Epoch(number), mine.generation, None, 0, 0, Epoch(1)), {})
        assert at == expected


class AtOnce(Executor):
    """Does work before `submit` returns."""

    def submit(self, work: Any, /, *arguments: Any, **settings: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*arguments, **settings))
        return future


class TestTablesFilesAndSubtasks:
    def test_an_operator_with_two_hundred_tables(self, jobs: Any) -> None:
        tables = [ls.KeyedTable(f"t{number}", key="k bigint", value="n bigint") for number in range(200)]
        job = jobs(tables)
        for number in range(200):
            job.managers[0].keyed(f"t{number}").put(pa.table({"k": [number], "n": [number]}))
        job.checkpoint()
        job.restart()
        found = [job.managers[0].keyed(f"t{number}").count() for number in range(200)]
        assert found == [1] * 200

    def test_512_subtasks_hold_every_key_once_and_the_manifest_stays_small(self, jobs: Any) -> None:
        job = jobs([ls.KeyedTable("t", key="k bigint", value="n bigint")])
        job.managers[0].keyed("t").put(pa.table({"k": range(2000), "n": range(2000)}))
        job.checkpoint()
        job.restart(parallelism=512)
        job.checkpoint()
        job.checkpoint()
        assert sum(manager.keyed("t").count() for manager in job.managers) == 2000
        record = job.backend.objects("job").read_epoch(Epoch(3))
        assert record.manifest.size_bytes < 512 * 120
        job.restart(parallelism=1)
        assert job.managers[0].keyed("t").count() == 2000

    def test_a_parallelism_that_keys_cannot_be_cut_into_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="not a parallelism"):
            ls.TaskInfo("job", "op", 0, 32_769)

    def test_metadata_of_ten_thousand_files_is_150_bytes_for_each(self) -> None:
        files = tuple(
            replace(FILE, path=f"checkpoints/{number}/operator-op/users-0-{number:032x}.parquet", blocks=())
            for number in range(10_000)
        )
        metadata = replace(SUBTASK, tables=(TableFiles("users", TableType.KEYED, files),))
        data = encode_subtask(metadata)
        assert len(data) < 160 * len(files)
        assert decode_subtask(data, "metadata", "job") == metadata

    def test_metadata_that_could_not_be_read_again_is_not_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(messages, "OBJECT_BYTES_MAX", 100)
        with pytest.raises(InvalidInputError, match="metadata is too large to be stored"):
            encode_subtask(SUBTASK)


class TestKeysAndValues:
    def test_a_key_of_a_megabyte_is_found_again(self, jobs: Any) -> None:
        job = jobs([KEYED, ls.GlobalKeyedTable("g", key=str, value=int)])
        key = "x" * (1 << 20)
        rows = pa.table({"k": [key, f"{key}y", "short"], "n": [1, 2, 3]})
        job.managers[0].keyed("t").put(rows)
        job.managers[0].global_keyed("g").insert(key, 4)
        job.checkpoint()
        job.restart()
        assert job.managers[0].keyed("t").get(rows.select(["k"])).column("n").to_pylist() == [1, 2, 3]
        assert job.managers[0].global_keyed("g").get(key) == 4

    def test_long_values_are_stored_without_statistics_and_come_back(self) -> None:
        rows = pa.table({"k": [1, 2], "v": [b"x" * (64 << 10), b"short"], "s": ["a", "b"]})
        assert long_columns([rows]) == {"v"}
        file = pq.ParquetFile(pa.BufferReader(encode_run(rows, {})))
        has_statistics = {
            column.path_in_schema: column.statistics is not None and column.statistics.has_min_max
            for column in (file.metadata.row_group(0).column(number) for number in range(3))
        }
        assert has_statistics == {"k": True, "v": False, "s": True}
        assert file.read().equals(rows)

    def test_a_value_beyond_the_limit_is_refused_by_name_before_anything_is_stored(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (value_limits, value_codec):
            monkeypatch.setattr(module, "VALUE_BYTES_MAX", 1000)
        job = jobs([KEYED, ls.KeyedTable("v", key="k bigint", value="v binary"), global_table()])
        manager = job.managers[0]
        with pytest.raises(InvalidInputError, match=r"a value is too long: v; found 1,001 bytes"):
            manager.keyed("v").put(pa.table({"k": [1], "v": [b"x" * 1001]}))
        with pytest.raises(InvalidInputError, match=r"a value is too long: k; found 1,001 bytes"):
            manager.keyed("t").put(pa.table({"k": ["x" * 1001], "n": [1]}))
        manager.keyed("v").put(pa.table({"k": [1], "v": [b"x" * 1000]}))
        manager.global_keyed("g").insert("large", b"x" * 1001)
        before = objects_of(job)
        with pytest.raises(InvalidInputError, match=r"table g cannot store a value: key 'large'"):
            manager.checkpoint(1, 1, None, False)
        assert not any("/g-" in path for path in objects_of(job) - before)

    @pytest.mark.parametrize(
        ("type_", "longest", "too_long"),
        [
            ("array<string>", ["x" * 500, "y" * 500], ["x" * 500, "y" * 501]),
            ("struct<a:string,b:binary>", {"a": "x" * 999, "b": b"y"}, {"a": "x" * 999, "b": b"yy"}),
            ("map<string,string>", [("key", "x" * 997)], [("key", "x" * 998)]),
            ("array<struct<tags:array<string>>>", [{"tags": ["x"]}] * 1000, [{"tags": ["x"]}] * 1001),
            ("array<tinyint>", [1] * 1000, [1] * 1001),
        ],
    )
    def test_a_nested_value_is_as_long_as_all_that_is_in_it(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch, type_: str, longest: Any, too_long: Any
    ) -> None:
        monkeypatch.setattr(value_limits, "VALUE_BYTES_MAX", 1000)
        view = jobs([ls.KeyedTable("t", key="k bigint", value=f"v {type_}")]).managers[0].keyed("t")
        column = pa.array([longest, None, longest, too_long], arrow_type(type_))
        rows = pa.table({"k": range(4), "v": column})
        with pytest.raises(InvalidInputError, match=r"a value is too long: v; found 1,001 bytes"):
            view.put(rows)
        # Each row counts for itself, and what was cut off does not count.
        view.put(rows.slice(0, 3))
        assert view.get(pa.table({"k": [2]})).column("v").to_pylist() == [longest]

    def test_long_nested_values_are_stored_without_statistics_and_come_back(self) -> None:
        tags = pa.array([["x" * (32 << 10)] * 2, None, ["short"]])
        rows = pa.table({"k": [1, 2, 3], "v": tags})
        assert long_columns([rows]) == {"v"}
        file = pq.ParquetFile(pa.BufferReader(encode_run(rows, {})))
        columns = [file.metadata.row_group(0).column(number) for number in range(2)]
        assert [column.is_stats_set for column in columns] == [True, False]
        assert file.read().to_pylist() == rows.to_pylist()

    def test_more_text_than_an_arrow_array_counts_is_refused_in_one_call(self, jobs: Any) -> None:
        job = jobs([ls.KeyedTable("t", key="k bigint", value="v binary")])
        size = 720 << 20
        # At its full size, and yet in no memory: pages that nobody has written are not there.
        buffers = [None, pa.py_buffer(np.array([0, size], np.int32)), pa.py_buffer(bytes(size))]
        value = pa.Array.from_buffers(pa.binary(), 1, buffers)
        rows = pa.table({"k": range(3), "v": pa.chunked_array([value] * 3)})
        with pytest.raises(InvalidInputError, match=r"too many bytes at once: v; found 2,26\d,\d+,\d+ bytes"):
            job.managers[0].keyed("t").put(rows)
        assert job.managers[0].keyed("t").count() == 0

    def test_entries_are_stored_in_chunks_that_arrow_can_count(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(global_keyed_files, "VALUE_BYTES_MAX", 1000)
        job = jobs([global_table()])
        view = job.managers[0].global_keyed("g")
        for number in range(10):
            view.insert(f"key {number}", bytes([number]) * 400)
        rows = global_keyed_files.entry_rows([b"k"] * 10, [b"x" * 400] * 10)
        assert rows.column("value").num_chunks == 5
        job.checkpoint()
        job.restart()
        found = job.managers[0].global_keyed("g")
        assert {key: found.get(key) for key in (f"key {number}" for number in range(10))} == {
            f"key {number}": bytes([number]) * 400 for number in range(10)
        }


def test_a_file_cannot_be_rolled_beyond_what_a_store_takes() -> None:
    with pytest.raises(InvalidInputError, match="files of so many bytes cannot be written"):
        ls.Roll(bytes="3TB")


class TestMoreTextThanOffsetsCount:
    """Runs of gigabytes hold text with 64-bit offsets. Here a kilobyte counts as that much."""

    @pytest.fixture(autouse=True)
    def _narrow_arrow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wide_text, "CHUNK_BYTES_MAX", 1000)

    def test_large_and_small_runs_of_a_keyed_table_are_read_and_merged_together(self, jobs: Any) -> None:
        job = jobs([ls.KeyedTable("t", key="k string", value="v string")])
        expected = {}
        for epoch, count in enumerate((100, 3, 3, 3)):
            rows = {f"key {number}": f"{epoch}" for number in range(count)}
            job.managers[0].keyed("t").put(pa.table({"k": list(rows), "v": list(rows.values())}))
            job.checkpoint()
            expected |= rows
        for step in (job.restart, job.compact, job.restart):
            step()
            table = pa.Table.from_batches(job.managers[0].keyed("t").scan())
            assert table.schema.types == [pa.string(), pa.string()]
            assert dict(zip(*table.to_pydict().values(), strict=True)) == expected

    def test_large_and_small_runs_of_a_time_key_table_are_read_and_merged_together(self, jobs: Any) -> None:
        job = jobs([ls.TimeKeyTable("t", key="k string", value="ts timestamp, v string", time="ts")])
        noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
        counts = (100, 3, 3, 3)
        for count in counts:
            keys = [f"key {number}" for number in range(count)]
            times = pa.array([noon] * count, pa.timestamp("us", tz="UTC"))
            job.managers[0].time_key("t").by_time.insert(pa.table({"k": keys, "ts": times, "v": keys}))
            job.checkpoint()
        for step in (job.restart, job.compact, job.restart):
            step()
            found = job.managers[0].time_key("t").by_time.rows_between(None, None)
            assert found.column("v").type == pa.string()
            expected = Counter(f"key {number}" for count in counts for number in range(count))
            assert Counter(found.column("v").to_pylist()) == expected

    def test_text_is_cut_into_chunks_where_offsets_would_not_do(self) -> None:
        texts = ["a" * 600, "b" * 600, None, "c" * 300, "d" * 300, "e" * 2000, "f"]
        column = narrowed_column(pa.array(texts, pa.large_string()), pa.string())
        column.validate(full=True)
        assert column.to_pylist() == texts
        assert [len(chunk) for chunk in column.chunks] == [1, 3, 1, 1, 1]
        assert one_array(column).type == pa.large_string()


def global_table() -> ls.GlobalKeyedTable:
    return ls.GlobalKeyedTable("g", key=str, value=bytes)


def objects_of(job: TableJob) -> set[str]:
    return {info.path for info in job.backend.objects("job").store.list()}
