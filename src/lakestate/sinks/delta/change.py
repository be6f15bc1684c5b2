"""What a commit does with finished files, as actions of the table's log.

A file that brings rows is a change of data. A large file that takes the place of small ones is not: all of
its rows were in the table before, so whoever follows the table reads none of them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lakestate.errors import CorruptionError, NotFoundError
from lakestate.sinks.delta.partition_values import partition_values
from lakestate.sinks.delta.statistics import statistics_columns, statistics_json
from lakestate.sinks.delta.table import TableFacts
from lakestate.sinks.files.pre_commit import FilePreCommit
from lakestate.sinks.table_format.replacement import FilePlan, SmallFiles
from lakestate.storage.store import ObjectStore

Action = AddAction | RemoveAction


@dataclass(frozen=True, slots=True)
class TableChange:
    """Changes of a table as it was read."""

    table: DeltaTable
    facts: TableFacts
    store: ObjectStore
    """Where its data files are."""

    def add(self, files: Sequence[FilePreCommit]) -> list[Action]:
        """Add files whose rows are new."""
        return list(self._adds(files, has_new_rows=True))

    def replace(self, files: Sequence[FilePreCommit]) -> list[Action]:
        """Put files in the place of the small ones that show their rows. Leaves out those that cannot be."""
        sizes: dict[str, int] = {}
        present = [file for file in files if self._is_in_place(file)]
        plan = FilePlan.of(present, lambda paths: self._find(paths, sizes))
        gone = {file.path: "it is no longer in the table's folder" for file in files if file not in present}
        FilePlan(left_out={**plan.left_out, **gone}).warn_of_left_out()
        replaced = [path for file in plan.replacing for path in file.replaces]
        fields, now_ms = self.facts.partition_fields, _now_ms()
        removed = [
            RemoveAction(path, False, now_ms, sizes[path], partition_values(path, fields))
            for path in replaced
        ]
        return [*removed, *self._adds(plan.replacing, has_new_rows=False)]

    def _adds(self, files: Sequence[FilePreCommit], *, has_new_rows: bool) -> Iterator[AddAction]:
        facts, now_ms = self.facts, _now_ms()
        columns = statistics_columns(facts.data_schema, facts.properties)
        for file in files:
            values = partition_values(file.path, facts.partition_fields)
            try:
                shown = statistics_json(file.statistics, columns)
            except (ValueError, TypeError, ArithmeticError) as cause:
                raise CorruptionError(
                    "the pre-commit of a finished file does not fit the table",
                    object_name=file.path,
                    found=f"{type(cause).__name__}: {cause}"[:200],
                ) from cause
            yield AddAction(file.path, file.size_bytes, values, now_ms, has_new_rows, shown)

    def _is_in_place(self, file: FilePreCommit) -> bool:
        """Whether a file is complete. Until the log names it, a clean-up of the table may remove it."""
        try:
            return self.store.head(file.path).size_bytes == file.size_bytes
        except NotFoundError:
            return False

    def _find(self, paths: set[str], sizes: dict[str, int]) -> SmallFiles:
        """Look for small files in the table, and note how large they are."""
        files = pa.table(self.table.get_add_actions()).select(["path", "size_bytes", "num_records"])
        names = pc.replace_substring_regex(files["path"], "^.*/", "")
        # A name is unique, and spelled alike everywhere; how a path is spelled is up to the log.
        wanted = pa.array([path.rpartition("/")[2] for path in paths])
        found = files.filter(pc.is_in(names, wanted)).to_pylist()
        known = {unquote(each["path"]): each for each in found}
        sizes |= {path: each["size_bytes"] for path, each in known.items()}
        return SmallFiles({path: each["num_records"] for path, each in known.items() if path in paths})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
