"""A running count and sum per user, and a sink that keeps rows as JSON: for tests of pipelines."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls


class Totals(ls.Operator):
    """Counts and sums per user; yields the new totals of every user that had rows."""

    output = "user string, n bigint, spend double"
    totals = ls.KeyedTable(key="user string", value="n bigint, spend double")

    def process_batch(self, batch, ctx):
        grouped = pa.table(batch).group_by("user").aggregate([("amount", "count"), ("amount", "sum")])
        before = ctx.totals.get(grouped)
        rows = pa.table(
            {
                "user": grouped["user"],
                "n": pc.add(grouped["amount_count"], before.column("n").fill_null(0)),
                "spend": pc.add(grouped["amount_sum"], before.column("spend").fill_null(0.0)),
            }
        )
        self.totals.put(rows)
        yield rows
