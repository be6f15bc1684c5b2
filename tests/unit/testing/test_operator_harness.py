"""The operator harness: rows, crashes, restarts, rescaling and failed epochs."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support.spark.pipelines import events
from tests.support.spark.totals import Totals

import lakestate as ls
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
