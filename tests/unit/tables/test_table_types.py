"""A table type that is defined outside of the package goes through the whole life of a table."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.counter_table import CounterTable, CounterView

import lakestate as ls
from lakestate.codec import tables as codec_tables
from lakestate.protocol.key_ranges import KeyRange
from lakestate.protocol.retention import RetentionPlan, RetentionRefused
from lakestate.tables import registry
from lakestate.tables.data_files import ContradictionError
from lakestate.tables.hashing.routing import routing_keys, subtasks_of
from lakestate.testing import OperatorHarness

USERS = [f"user-{number}" for number in range(20)]
POLICY = ls.CompactionPolicy(files_min=2)


@pytest.fixture
def backend() -> ls.ParquetBackend:
    return ls.ParquetBackend(f"memory://{uuid.uuid4().hex}")


class CounterJob:
    """An operator with a counter, epoch by epoch, without a driver."""

    def __init__(self, backend: ls.ParquetBackend, parallelism: int = 2) -> None:
        self.backend, self.epoch = backend, 0
        self.load(parallelism)

    def load(self, parallelism: int, compacted: Any = None) -> None:
        tasks = [ls.TaskInfo("job", "op", index, parallelism) for index in range(parallelism)]
        tables = [CounterTable("seen", key="user")]
        self.managers = [
            ls.TableManager.load(task, tables, self.backend, self.epoch or None) for task in tasks
        ]
        if compacted is not None:
            for index, manager in enumerate(self.managers):
                manager.apply_compacted(compacted.of_subtask(index))

    def view(self, index: int) -> CounterView:
        view = self.managers[index].view("seen")
        assert isinstance(view, CounterView)
        return view

    def add_all(self) -> None:
        owners = subtasks_of(routing_keys([pa.array(USERS)]), len(self.managers))
        for user, owner in zip(USERS, owners, strict=True):
            self.view(int(owner)).add(user)

    def publish(self) -> None:
        self.epoch += 1
        done = [manager.checkpoint(self.epoch, 1, None, False) for manager in self.managers]
        self.backend.write_checkpoint_metadata("job", self.epoch, done)

    def counts(self) -> dict[str, int]:
        rows = [row for index in range(len(self.managers)) for row in self.view(index).to_pylist()]
        assert len(rows) == len({row["user"] for row in rows}), "each key in one subtask"
        return {row["user"]: row["n"] for row in rows}

    def files(self) -> list[str]:
        stored = self.backend.load_operator_metadata("job", self.epoch, "op").values()
        return [file.path for metadata in stored for table in metadata.tables for file in table.files]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_what_is_written_is_restored_at_any_parallelism(backend: ls.ParquetBackend, parallelism: int) -> None:
    job = CounterJob(backend)
    for _ in range(3):
        job.add_all()
        job.publish()
    job.load(parallelism)
    assert job.counts() == dict.fromkeys(USERS, 3)
    job.add_all()
    assert job.counts() == dict.fromkeys(USERS, 4)
    job.publish()
    assert job.counts() == dict.fromkeys(USERS, 4)
    job.load(2)
    assert job.counts() == dict.fromkeys(USERS, 4)


def test_an_epoch_that_changes_nothing_writes_no_file(backend: ls.ParquetBackend) -> None:
    job = CounterJob(backend)
    job.add_all()
    job.publish()
    before = job.files()
    job.load(2)
    job.publish()
    assert job.files() == before


def test_files_are_merged_and_swapped_in(backend: ls.ParquetBackend) -> None:
    job = CounterJob(backend)
    for _ in range(4):
        job.add_all()
        job.publish()
    merged = backend.compact_operator("job", "op", job.epoch, policy=POLICY)
    job.load(2, merged)
    job.publish()
    assert len(job.files()) == 2
    job.load(3)
    assert job.counts() == dict.fromkeys(USERS, 4)


def test_retention_keeps_what_the_type_says(backend: ls.ParquetBackend) -> None:
    job = CounterJob(backend)
    for _ in range(3):
        job.add_all()
        job.publish()
    merged = backend.compact_operator("job", "op", job.epoch, policy=POLICY)
    job.load(2, merged)
    job.publish()
    assert isinstance(backend.cleanup_checkpoint("job", job.epoch), RetentionPlan)
    objects = [info.path for info in backend.objects("job").store.list("job/checkpoints/")]
    assert sorted(path for path in objects if path.endswith(".parquet")) == sorted(
        f"job/{path}" for path in job.files()
    )
    job.load(2)
    assert job.counts() == dict.fromkeys(USERS, 3)


def test_the_whole_job_is_verified(backend: ls.ParquetBackend) -> None:
    job = CounterJob(backend)
    job.add_all()
    job.publish()
    assert ls.verify(backend, "job").is_clean
    store = backend.objects("job").store
    path = f"job/{job.files()[0]}"
    store.put(path, store.get(path).data[:-1] + b"x")
    assert not ls.verify(backend, "job").is_clean


def test_a_file_with_other_keys_than_its_reference_says_is_a_contradiction(
    backend: ls.ParquetBackend,
) -> None:
    job = CounterJob(backend)
    job.add_all()
    job.publish()
    metadata = backend.load_operator_metadata("job", 1, "op")[0]
    file = metadata.tables[0].files[0]
    table, context = CounterTable("seen", key="user"), job.managers[0]._context
    table.check_file(file, context)
    with pytest.raises(ContradictionError, match="other keys"):
        table.check_file(replace(file, keys=KeyRange(0, 1)), context)


def test_a_row_of_another_subtask_is_refused(backend: ls.ParquetBackend) -> None:
    job = CounterJob(backend)
    for user in USERS:
        job.view(0).add(user)
    with pytest.raises(ls.InvalidInputError, match="rows of another subtask were put into table seen"):
        job.publish()


def test_a_dry_run_compares_the_declaration(backend: ls.ParquetBackend) -> None:
    job = CounterJob(backend)
    job.add_all()
    job.publish()
    manifest, objects = backend.load_checkpoint_metadata("job", 1), backend.objects("job")
    assert ls.dry_run([CounterTable("seen", key="user")], manifest, "op", objects).is_clean
    other = ls.dry_run([ls.KeyedTable("seen", key="user string", value="n bigint")], manifest, "op", objects)
    assert [problem.reason for problem in other.problems] == ["stored as counter, declared as keyed"]


@ls.register_table_type
class SharedCounterTable(CounterTable):
    """Every subtask reads what all have counted."""

    table_type = ls.TableType("shared_counter", is_replicated=True, is_append_only=True)


def test_a_replicated_type_is_read_whole_and_carried_on_once(backend: ls.ParquetBackend) -> None:
    tables = [SharedCounterTable("seen", key="user")]
    for epoch, parallelism in enumerate((3, 2, 1), start=1):
        tasks = [ls.TaskInfo("job", "op", index, parallelism) for index in range(parallelism)]
        managers = [ls.TableManager.load(task, tables, backend, epoch - 1 or None) for task in tasks]
        views = [manager.view("seen") for manager in managers]
        expected = {1: [], 2: [{"user": "ada", "n": 3}], 3: [{"user": "ada", "n": 5}]}[epoch]
        assert [view.to_pylist() for view in views] == [expected] * parallelism
        for view in views:
            assert isinstance(view, CounterView)
            view.add("ada")
        done = [manager.checkpoint(epoch, 1, None, False) for manager in managers]
        backend.write_checkpoint_metadata("job", epoch, done)
    assert ls.verify(backend, "job").is_clean


class Visits(ls.Operator):
    """Counts users, and yields the count of each row's user."""

    output = "user string, n bigint"
    seen = CounterTable(key="user")

    def process_batch(self, batch: pa.RecordBatch, ctx: ls.OperatorContext) -> Iterator[pa.RecordBatch]:
        users = batch["user"].to_pylist()
        for user in users:
            self.seen.add(user)  # type: ignore[attr-defined]
        counts = [ctx.seen.count(user) for user in users]
        yield pa.record_batch({"user": batch["user"], "n": pa.array(counts, pa.int64())})


def test_an_operator_uses_it_in_the_harness() -> None:
    harness = OperatorHarness(Visits(), parallelism=2)
    assert harness.epoch([{"user": "ada"}, {"user": "ada"}]) == [{"user": "ada", "n": 2}] * 2
    harness.crash([{"user": "ada"}])
    harness.rescale(3)
    assert harness.epoch([{"user": "ada"}]) == [{"user": "ada", "n": 3}]
    assert harness.rows("seen") == [{"user": "ada", "n": 3}]


def test_a_declaration_pickles() -> None:
    table = pickle.loads(pickle.dumps(CounterTable("seen", key="user")))
    assert table.config == CounterTable("seen", key="user").config


class TestRegistering:
    def test_the_same_class_may_be_registered_twice(self) -> None:
        assert ls.register_table_type(CounterTable) is CounterTable

    def test_a_second_class_under_one_name_is_refused(self) -> None:
        class Impostor(CounterTable):
            table_type = ls.TableType("counter", is_replicated=True)

        with pytest.raises(ls.InvalidInputError, match=r"one table type: counter; found .*Impostor"):
            ls.register_table_type(Impostor)

    def test_a_class_under_the_name_of_a_built_in_type_is_refused(self) -> None:
        class Impostor(CounterTable):
            table_type = ls.KeyedTable.table_type

        with pytest.raises(ls.InvalidInputError, match=r"one table type: keyed; .*expected .*KeyedTable"):
            ls.register_table_type(Impostor)

    def test_a_class_derived_from_a_registered_one_is_of_its_type(self) -> None:
        class Louder(CounterTable):
            """Another declaration of the same type."""

        assert ls.register_table_type(Louder) is Louder
        assert type(registry.table_of(Louder("seen", key="user").config)) is CounterTable

    def test_a_class_that_is_defined_again_takes_the_place_of_the_first(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As when a cell of a notebook runs twice."""
        monkeypatch.setattr(registry, "_TABLE_CLASSES", dict(registry._TABLE_CLASSES))
        again = type(CounterTable)(
            "CounterTable",
            CounterTable.__bases__,
            {**CounterTable.__dict__, "__doc__": "Again."},
        )
        ls.register_table_type(again)
        assert registry._TABLE_CLASSES["counter"] is again

    def test_a_class_without_a_type_is_refused(self) -> None:
        with pytest.raises(ls.InvalidInputError, match="without a table type"):
            ls.register_table_type(ls.Table)

    def test_a_declared_table_registers_its_class(
        self, backend: ls.ParquetBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process may get the class by value, and so without the import that registers it."""
        _forget("counter", monkeypatch)
        job = CounterJob(backend)
        job.add_all()
        job.publish()
        assert job.counts() == dict.fromkeys(USERS, 1)


def _forget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = {key: value for key, value in registry._TABLE_CLASSES.items() if key != name}
    codecs = {key: value for key, value in codec_tables._REGISTERED.items() if key != name}
    monkeypatch.setattr(registry, "_TABLE_CLASSES", classes)
    monkeypatch.setattr(codec_tables, "_REGISTERED", codecs)


class TestAnUnknownType:
    @pytest.fixture
    def job(self, backend: ls.ParquetBackend, monkeypatch: pytest.MonkeyPatch) -> CounterJob:
        job = CounterJob(backend)
        for _ in range(3):
            job.add_all()
            job.publish()
        _forget("counter", monkeypatch)
        return job

    def test_is_refused_by_name_with_what_to_do(self, job: CounterJob) -> None:
        found = r"\(table seen\); found counter; expected global_keyed, keyed, .*time_key; import the module"
        with pytest.raises(ls.IncompatibleStateError, match=found):
            job.backend.load_operator_metadata("job", 1, "op")

    def test_keeps_retention_from_deleting_anything(self, job: CounterJob) -> None:
        before = sorted(info.path for info in job.backend.objects("job").store.list("job/"))
        refused = job.backend.cleanup_checkpoint("job", 3)
        assert isinstance(refused, RetentionRefused)
        assert "counter" in str(refused)
        after = sorted(info.path for info in job.backend.objects("job").store.list("job/"))
        assert [path for path in after if "generation" not in path] == [
            path for path in before if "generation" not in path
        ]

    def test_is_a_problem_for_verify(self, job: CounterJob) -> None:
        assert not ls.verify(job.backend, "job").is_clean
