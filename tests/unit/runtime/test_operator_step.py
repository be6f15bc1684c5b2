"""How a subtask runs an operator: a fresh copy for every epoch, checked rows, errors that say where."""

from __future__ import annotations

import pickle
import threading
import time

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.testing.operator_harness import OperatorHarness


class Yields(ls.Operator):
    output = "n bigint, name string not null"

    def __init__(self, *batches: object) -> None:
        self._batches = batches

    def process_batch(self, batch, ctx):
        yield from self._batches


class TestFreshCopies:
    def test_what_an_attempt_keeps_outside_of_tables_is_gone_with_it(self) -> None:
        class Gathers(ls.Operator):
            output = "user string"

            def __init__(self) -> None:
                self.seen = {"users": []}
                self.clock = time

            def process_batch(self, batch, ctx):
                self.seen["users"] += batch["user"].to_pylist()
                yield pa.table({"user": self.seen["users"]})

        harness = OperatorHarness(Gathers(), parallelism=2, key="user")
        rows = [{"user": name} for name in ("ann", "bob", "cid", "dan")]
        harness.crash(rows)
        for _ in range(2):
            assert sorted(row["user"] for row in harness.epoch(rows)) == ["ann", "bob", "cid", "dan"]

    def test_a_bound_method_among_the_attributes_is_that_of_the_operator_at_work(self) -> None:
        class Handles(ls.Operator):
            output = "seen bigint"
            counts = ls.KeyedTable(key="user string", value="n bigint")

            def __init__(self) -> None:
                self.seen = 0
                self.handlers = {"rows": self.count}

            def count(self, batch):
                self.seen += len(batch)
                self.counts.put(batch)

            def process_batch(self, batch, ctx):
                self.handlers["rows"](batch)
                yield pa.table({"seen": [self.seen]})

        harness = OperatorHarness(Handles())
        for number in range(2):
            assert harness.epoch([{"user": "ann", "n": number}]) == [{"seen": 1}]
        assert harness.rows("counts") == [{"user": "ann", "n": 1}]

    def test_an_attribute_that_cannot_be_copied_is_named(self) -> None:
        class Locks(ls.Operator):
            def __init__(self) -> None:
                self.lock = threading.Lock()

            def process_batch(self, batch, ctx):
                return None

        with pytest.raises(ls.LakestateError, match=r"cannot be copied.*: Locks\.lock"):
            OperatorHarness(Locks(), key="k").epoch([{"k": 1}])


class TestRows:
    @pytest.mark.parametrize(
        ("yielded", "message"),
        [
            (pa.table({"n": [1]}), r"output of .*subtask 0 of 1, epoch 1: a column is missing: name"),
            (pa.table({"n": ["x"], "name": ["a"]}), r"output of .*a column has another type: n.*string"),
            (pa.table({"n": [1], "name": [None]}), r"null"),
            (
                pa.table({"n": [1], "name": ["a"], "more": [1]}),
                r"output does not have: .*; found more; expected n, name",
            ),
            ([1, 2], r"found an operator must yield pyarrow record batches or tables"),
        ],
    )
    def test_output_that_was_not_declared_is_refused_by_name(self, yielded: object, message: str) -> None:
        harness = OperatorHarness(Yields(yielded), key="k")
        with pytest.raises(ls.OperatorError, match=message) as raised:
            harness.epoch([{"k": 1}])
        assert "operator operator, subtask 0 of 1, epoch 1" in str(raised.value)
        assert harness._backend.objects("harness").list_epochs() == []

    def test_columns_are_put_in_order_and_widened(self) -> None:
        small = pa.table({"name": pa.array(["a"]).dictionary_encode(), "n": pa.array([1], pa.int8())})
        assert OperatorHarness(Yields(small), key="k").epoch([{"k": 1}]) == [{"n": 1, "name": "a"}]

    def test_an_operator_that_needs_columns_is_given_them_as_declared(self) -> None:
        class Needs(ls.Operator):
            input = "n bigint"
            output = "kind string"

            def process_batch(self, batch, ctx):
                yield pa.table({"kind": [str(batch.schema.field("n").type)]})

        harness = OperatorHarness(Needs(), key="n")
        assert harness.epoch(pa.table({"n": pa.array([1], pa.int16()), "m": [2]})) == [{"kind": "int64"}]
        with pytest.raises(ls.OperatorError, match="a column is missing: n"):
            OperatorHarness(Needs(), key="m").epoch([{"m": 1}])


class TestErrors:
    def test_what_user_code_raises_names_who_and_when_and_keeps_its_cause(self) -> None:
        class Fails(ls.Operator):
            def process_batch(self, batch, ctx):
                raise ZeroDivisionError("no rows to divide by")

        harness = OperatorHarness(Fails(), key="k")
        harness.epoch()
        with pytest.raises(ls.OperatorError, match="process raised ZeroDivisionError") as raised:
            harness.epoch([{"k": 1}])
        assert "operator operator, subtask 0 of 1, epoch 2; found no rows to divide by" in str(raised.value)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
