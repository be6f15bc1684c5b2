"""What operator code can rely on: its tables, the watermark, the inputs, the last epoch."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.protocol.metadata import CompletionStatus
from lakestate.testing.operator_harness import OperatorHarness


class TestTables:
    def test_tables_may_belong_to_one_operator_instead_of_its_class(self) -> None:
        class Remember(ls.Operator):
            def __init__(self, key: str) -> None:
                self.seen = ls.KeyedTable(key=f"{key} string", value="n bigint")

            def process_batch(self, batch, ctx):
                ctx.seen.put(batch)

        harness = OperatorHarness(Remember("who"))
        harness.epoch([{"who": "ann", "n": 1}])
        assert harness.rows("seen") == [{"who": "ann", "n": 1}]

    def test_a_context_has_no_table_that_was_not_declared(self) -> None:
        class Asks(ls.Operator):
            def process_batch(self, batch, ctx):
                ctx.unknown.get(batch)

        with pytest.raises(ls.OperatorError, match="no table 'unknown'"):
            OperatorHarness(Asks(), key="k").epoch([{"k": 1}])


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
        with pytest.raises(ls.IncompatibleStateError, match="the stream of this job has ended"):
            harness.epoch([{"k": 1}])
        harness.reopen()
        assert harness.epoch([{"k": 1}]) == []
        assert harness.drain() == [{"n": 7}]

    def test_a_pause_calls_nothing_and_moves_no_watermark(self) -> None:
        class Calls(ls.Operator):
            output = "call string, us bigint"

            def on_start(self, ctx):
                yield pa.table({"call": ["start"], "us": [ctx.watermark_us]})

            def on_watermark(self, watermark, ctx):
                yield pa.table({"call": ["watermark"], "us": [ctx.watermark_us]})

            def on_close(self, ctx):
                raise AssertionError("the stream has not ended")

        harness = OperatorHarness(Calls(), key="k")
        calls = [{"call": "start", "us": 5}, {"call": "watermark", "us": 5}]
        assert harness.epoch(watermark=5) == calls
        harness.pause()
        assert harness.progress is not None
        assert (harness.progress.epoch, harness.progress.status) == (2, CompletionStatus.COMPLETE)
        assert harness.epoch() == calls


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
