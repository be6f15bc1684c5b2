"""`spark.read.format("lakestate")`: rows of an epoch, changes of several, or a metadata table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.inspection.row_filter import parse_where
from lakestate.spark.data_source.reading.metadata_tables import metadata_rows, metadata_schema
from lakestate.spark.data_source.reading.options import ReadOptions
from lakestate.spark.data_source.reading.plan import (
    EPOCH,
    RowsOfPart,
    change_schema,
    plan_changes,
    plan_rows,
    row_schema,
)
from lakestate.spark.versions.data_sources import DataSourceReader, InputPartition, allowed_values

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


def schema_of(options: ReadOptions) -> pa.Schema:
    """The columns of what a query reads."""
    if options.metadata is not None:
        return metadata_schema(options.metadata)
    return change_schema(options) if options.reads_changes else row_schema(options)


class StateReader(DataSourceReader):
    """Plans on the driver, and reads partitions in tasks."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._where: dict[str, Any] = dict(options.where or {})

    def partitions(self) -> list[InputPartition]:
        """The key ranges to read."""
        options = self._options
        if options.metadata is not None:
            return [InputPartition(options.metadata)]
        found = (
            plan_changes(options, self._where) if options.reads_changes else plan_rows(options, self._where)
        )
        return [*found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        if self._options.metadata is not None:
            return iter(metadata_rows(self._options).cast(self._schema).to_batches())
        if not isinstance(partition, RowsOfPart):
            # Where there is no partition, Spark asks for the rows of none.
            return iter(())
        return partition.batches(self._where, self._schema)


class FilteringStateReader(StateReader):
    """A reader that Spark tells about the conditions of a query.

    Conditions on single columns are used to read less. Spark still evaluates all of them, so that what a
    query returns never depends on them.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take note of what helps."""
        for each in filters:
            wanted = allowed_values(each)
            if wanted is not None and self._is_usable(*wanted):
                self._where.setdefault(*wanted)
        return filters

    def _is_usable(self, column: str, values: list[Any]) -> bool:
        """False for values that are not exactly of the column's type: Spark knows how to compare them."""
        if self._options.metadata is not None or column == EPOCH or column not in self._schema.names:
            return False
        try:
            parse_where({column: values}, self._schema, str(self._options.table))
        except InvalidInputError:
            return False
        return True
