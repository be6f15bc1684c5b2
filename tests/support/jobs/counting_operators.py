"""Operators whose epochs are counted: running totals, alone and beside a table that all subtasks share."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

import lakestate as ls


class Totals(ls.Operator):
    output = "k bigint, n bigint"
    totals = ls.KeyedTable(key="k bigint", value="n bigint")

    def process_batch(self, batch, ctx):
        old = ctx.totals.get(batch)
        rows = pa.table({"k": batch["k"], "n": pc.add(batch["n"], old["n"].fill_null(0))})
        ctx.totals.put(rows)
        yield rows


class SharedTotals(Totals):
    """Every subtask that has rows also writes an entry that all subtasks read."""

    latest = ls.GlobalKeyedTable(key=int, value=int)

    def process_batch(self, batch, ctx):
        ctx.latest.insert(ctx.task.subtask_index, batch["k"][0].as_py())
        return super().process_batch(batch, ctx)
