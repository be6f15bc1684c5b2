"""Operators through the harness: epochs, watermarks, crashes, rescaling, and what goes wrong."""

from __future__ import annotations

import pickle
import threading
import time
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import events
from tests.support.spark.totals import Totals

import lakestate as ls
from lakestate.protocol.metadata import CompletionStatus
from lakestate.testing.operator_harness import OperatorHarness


def totals_of(table: pa.Table) -> list[dict[str, object]]:
    grouped = table.group_by("user").aggregate([([], "count_all"), ("amount", "sum")])
    rows = grouped.rename_columns(["user", "n", "spend"]).to_pylist()
    return sorted(rows, key=str)


class TestState:
    def test_state_is_exact_over_epochs_crashes_restarts_and_rescaling(self) -> None:
        harness = OperatorHarness(Totals(), parallelism=4)
        seen = []
        for number, parallelism in enumerate((4, 7, 2, 1)):
            harness.rescale(parallelism)
            rows = events(number, 200)
            harness.crash(rows)
            harness.epoch(rows)
            seen.append(rows)
            harness.restart()
        assert sorted(harness.rows("totals"), key=str) == totals_of(pa.concat_tables(seen))

    def test_many_epochs_are_compacted_and_collected(self) -> None:
        harness = OperatorHarness(Totals(), parallelism=2)
        tables = [events(number, 50) for number in range(25)]
        for rows in tables:
            harness.epoch(rows)
        assert sorted(harness.rows("totals"), key=str) == totals_of(pa.concat_tables(tables))
        assert harness.progress is not None
        assert harness.progress.state.file_count < 25
        assert min(harness._backend.objects("harness").list_epochs()) > 10

    def test_tables_may_belong_to_one_operator_instead_of_its_class(self) -> None:
        class Remember(ls.Operator):
            def __init__(self, key: str) -> None:
                self.seen = ls.KeyedTable(key=f"{key} string", value="n bigint")

            def process_batch(self, batch, ctx):
                ctx.seen.put(batch)

        harness = OperatorHarness(Remember("who"))
        harness.epoch([{"who": "ann", "n": 1}])
        assert harness.rows("seen") == [{"who": "ann", "n": 1}]

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

    def test_a_column_that_the_first_dict_lacks_is_given_to_the_operator(self) -> None:
        class Pages(ls.Operator):
            pages = ls.KeyedTable(key="user string", value="n bigint, page string")

            def process_batch(self, batch, ctx):
                self.pages.put(batch)

        harness = OperatorHarness(Pages())
        harness.epoch([{"user": "ann", "n": 1}, {"page": "/b", "user": "bob"}])
        assert sorted(harness.rows("pages"), key=str) == [
            {"user": "ann", "n": 1, "page": None},
            {"user": "bob", "n": None, "page": "/b"},
        ]

    @pytest.mark.parametrize(
        "key", ["tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,2)"]
    )
    @pytest.mark.parametrize("routed_by", [None, "id"])
    def test_rows_are_routed_by_the_type_of_the_tables_key(self, key: str, routed_by: str | None) -> None:
        class Last(ls.Operator):
            output = f"id {key}"
            last = ls.KeyedTable(key=f"id {key}, n bigint", value="x bigint", route_by=["id"])

            def process_batch(self, batch, ctx):
                self.last.put(batch)
                yield batch.select(["id"])

        harness = OperatorHarness(Last(), parallelism=3, key=routed_by)
        one = Decimal(1) if key.startswith("decimal") else 1
        rows = [{"id": number * one, "n": 0, "x": number} for number in range(9)]
        assert sorted(row["id"] for row in harness.epoch(rows)) == list(range(9))
        assert sorted(harness.rows("last"), key=lambda row: row["x"]) == rows

    def test_a_key_that_does_not_fit_the_tables_key_is_refused(self) -> None:
        class Last(ls.Operator):
            last = ls.KeyedTable(key="id int", value="x bigint")

            def process_batch(self, batch, ctx):
                self.last.put(batch)

        with pytest.raises(ls.InvalidInputError, match="key of rows: a column has another type: id"):
            OperatorHarness(Last()).epoch([{"id": 2**40, "x": 1}])

    def test_an_attribute_that_cannot_be_copied_is_named(self) -> None:
        class Locks(ls.Operator):
            def __init__(self) -> None:
                self.lock = threading.Lock()

            def process_batch(self, batch, ctx):
                return None

        with pytest.raises(ls.LakestateError, match=r"cannot be copied.*: Locks\.lock"):
            OperatorHarness(Locks(), key="k").epoch([{"k": 1}])

    def test_a_replicated_table_is_read_by_every_subtask_of_the_next_epoch(self) -> None:
        class Sizes(ls.Operator):
            output = "n bigint"
            sizes = ls.GlobalKeyedTable(key=int, value=int)

            def on_start(self, ctx):
                yield pa.table({"n": [len(list(ctx.sizes.items()))]})

            def process_batch(self, batch, ctx):
                ctx.sizes.insert(ctx.task.subtask_index, batch.num_rows)

        harness = OperatorHarness(Sizes(), parallelism=3, key="user")
        assert harness.epoch([{"user": "a"}, {"user": "b"}, {"user": "c"}, {"user": "d"}])[0] == {"n": 0}
        written = len(harness.rows("sizes"))
        assert harness.epoch() == [{"n": written}] * 3


class TestTime:
    def test_a_watermark_that_no_datetime_can_be_is_shown_as_the_last_there_is(self) -> None:
        class Told(ls.Operator):
            output = "what string"
            unused = ls.KeyedTable(key="k bigint", value="n bigint")

            def on_watermark(self, watermark, ctx):
                yield pa.table({"what": [f"{watermark:%Y} {ctx.watermark_us}"]})

        harness = OperatorHarness(Told())
        assert [row["what"] for row in harness.epoch(watermark=2**62)] == [f"9999 {2**62}"]

    def test_the_watermark_comes_after_the_rows_and_never_goes_back(self) -> None:
        class Tell(ls.Operator):
            output = "what string"

            def process_batch(self, batch, ctx):
                yield pa.table({"what": [f"{batch.num_rows} rows at {ctx.watermark_us}"]})

            def on_watermark(self, watermark, ctx):
                yield pa.table({"what": [str(watermark)]})

        harness = OperatorHarness(Tell(), key="k")
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        assert [row["what"] for row in harness.epoch([{"k": 1}])] == ["1 rows at None"]
        first = [row["what"] for row in harness.epoch([{"k": 1}], watermark=noon)]
        assert first == ["1 rows at 1767268800000000", "2026-01-01 12:00:00+00:00"]
        harness.restart()
        assert [row["what"] for row in harness.epoch()] == ["2026-01-01 12:00:00+00:00"]
        assert [row["what"] for row in harness.epoch(watermark=5)] == ["2026-01-01 12:00:00+00:00"]

    def test_a_watermark_at_the_very_beginning_of_time_does_not_go_back_either(self) -> None:
        class Told(ls.Operator):
            output = "us bigint"

            def on_watermark(self, watermark, ctx):
                yield pa.table({"us": [ctx.watermark_us]})

        harness = OperatorHarness(Told(), key="k")
        assert harness.epoch(watermark=0) == [{"us": 0}]
        assert harness.epoch(watermark=-5) == [{"us": 0}]

    def test_draining_closes_the_operator_and_marks_the_epoch_final(self) -> None:
        class Last(ls.Operator):
            output = "n bigint"

            def process_batch(self, batch, ctx):
                return None

            def on_close(self, ctx):
                yield pa.record_batch({"n": pa.array([7], pa.int32())})

        harness = OperatorHarness(Last(), key="k")
        assert harness.drain([{"k": 1}]) == [{"n": 7}]
        assert harness.progress is not None
        assert harness.progress.status is CompletionStatus.FINAL


class TestTwoInputs:
    def test_each_side_reaches_its_own_method(self) -> None:
        class Join(ls.TwoInputOperator):
            output = "user string, name string, amount double"
            names = ls.KeyedTable(key="user string", value="name string")

            def process_left(self, batch, ctx):
                yield batch.append_column("name", ctx.names.get(batch)["name"])

            def process_right(self, batch, ctx):
                self.names.put(batch)

        harness = OperatorHarness(Join(), parallelism=2)
        harness.epoch(right=[{"user": "a", "name": "Ann"}, {"user": "b", "name": "Bob"}])
        found = harness.epoch(left=[{"user": "a", "amount": 1.0}, {"user": "c", "amount": 2.0}])
        assert sorted(found, key=str) == [
            {"user": "a", "name": "Ann", "amount": 1.0},
            {"user": "c", "name": None, "amount": 2.0},
        ]


class Yields(ls.Operator):
    output = "n bigint, name string not null"

    def __init__(self, *batches: object) -> None:
        self._batches = batches

    def process_batch(self, batch, ctx):
        yield from self._batches


class TestFailures:
    @pytest.mark.parametrize(
        ("yielded", "message"),
        [
            (pa.table({"n": [1]}), r"subtask 0 of 1, epoch 1: a column is missing: name"),
            (pa.table({"n": ["x"], "name": ["a"]}), r"a column has another type: n"),
            (pa.table({"n": [1], "name": [None]}), r"null"),
            (pa.table({"n": [1], "name": ["a"], "more": [1]}), r"found more; expected n, name"),
            ([1, 2], r"found an operator yields record batches or tables"),
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

    def test_a_failed_epoch_leaves_the_last_one_as_it_was(self) -> None:
        class Picky(Totals):
            def on_watermark(self, watermark, ctx):
                raise ValueError("not today")

        rows = events(1, 100)
        harness = OperatorHarness(Picky(), parallelism=2)
        harness.epoch(rows)
        with pytest.raises(ls.OperatorError, match="not today"):
            harness.epoch(rows, watermark=1)
        harness.restart(Totals())
        assert sorted(harness.rows("totals"), key=str) == totals_of(rows)

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

    def test_a_context_has_no_table_that_was_not_declared(self) -> None:
        class Asks(ls.Operator):
            def process_batch(self, batch, ctx):
                ctx.unknown.get(batch)

        with pytest.raises(ls.OperatorError, match="no table 'unknown'"):
            OperatorHarness(Asks(), key="k").epoch([{"k": 1}])
