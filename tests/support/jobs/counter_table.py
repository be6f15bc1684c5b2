"""A table type of our own: it counts how often each key was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

import pyarrow as pa

import lakestate as ls
from lakestate.tables import (
    Column,
    CompactedFiles,
    CompactionPolicy,
    DataFileTable,
    EpochCheckpointer,
    FileRef,
    TableConfig,
    TableContext,
    TableFiles,
    View,
    plan_compaction,
    read_data_file,
    write_data_file,
)


@ls.register_table_type
class CounterTable(DataFileTable):
    """How often each key was seen. Each data file holds what one epoch added."""

    table_type = ls.TableType("counter", is_append_only=True)

    def __init__(self, name: str | None = None, *, key: str) -> None:
        super().__init__(name)
        self._key = key

    @property
    def config(self) -> TableConfig:
        """The declaration as it is stored: a column with the key, which rows are routed by, and the count."""
        return TableConfig(
            self.name,
            self.table_type,
            key_columns=(Column(self._key, "string"),),
            value_columns=(Column("n", "bigint"),),
            routing_columns=(self._key,),
        )

    @classmethod
    def from_config(cls, config: TableConfig) -> Self:
        """The table of a stored declaration."""
        return cls(config.name, key=config.key_columns[0].name)

    def open_view(self, files: TableFiles, context: TableContext) -> CounterView:
        """The counts that these files add up to."""
        return CounterView(self, files, context)

    def compact_data(
        self, files: TableFiles, policy: CompactionPolicy, epoch: ls.Epoch, context: TableContext
    ) -> CompactedFiles | None:
        """Replace neighbouring files by one that holds their sums."""
        plan = plan_compaction(files.files, policy)
        if plan is None:
            return None
        group = files.files[plan.start : plan.stop]
        rows = self.to_rows(self.sum_files(group, context))
        return CompactedFiles(self.name, group, (write_data_file(rows, self.config, context, epoch),))

    def sum_files(self, files: Iterable[FileRef], context: TableContext) -> Counter[str]:
        """What files add up to."""
        total: Counter[str] = Counter()
        for file in files:
            rows = read_data_file(file, self.config, context)
            total.update(dict(zip(rows[self._key].to_pylist(), rows["n"].to_pylist(), strict=True)))
        return total

    def to_rows(self, counts: Counter[str]) -> pa.Table:
        """Counts as the rows of a data file."""
        keys, sums = pa.array([*counts], pa.string()), pa.array([*counts.values()], pa.int64())
        return pa.table({self._key: keys, "n": sums})


class CounterView(View):
    """What operator code holds: `ctx.seen.add("ada")`, `ctx.seen.count("ada")`."""

    def __init__(self, table: CounterTable, files: TableFiles, context: TableContext) -> None:
        self._table, self._files, self._context = table, files, context
        self._stored: Counter[str] | None = None
        self._added: Counter[str] = Counter()

    def add(self, key: str, n: int = 1) -> None:
        """Count a key. Durable with the next checkpoint."""
        self._added[key] += n

    def count(self, key: str) -> int:
        """How often a key was counted."""
        return self._read()[key] + self._added[key]

    def to_pylist(self) -> list[dict[str, Any]]:
        """All counts as dicts."""
        return self._table.to_rows(self._read() + self._added).to_pylist()

    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Hand over what was added since the last checkpoint."""
        checkpointer.insert_data(self._table.to_rows(self._added))

    def begin_next_epoch(self, files: TableFiles, context: TableContext) -> None:
        """Continue on top of what was stored."""
        if self._stored is not None:
            self._stored += self._added
        self._files, self._context, self._added = files, context, Counter()

    def _read(self) -> Counter[str]:
        if self._stored is None:
            self._stored = self._table.sum_files(self._files.files, self._context)
        return self._stored
