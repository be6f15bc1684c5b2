"""Checks of initial state when the pipeline is built: its tables, their columns and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.operators.operator import Operator
from lakestate.protocol.compatibility import widens
from lakestate.protocol.names import did_you_mean
from lakestate.spark.graph.schemas import spark_ddl
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.contract import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_initial_state(
    operator_id: str, operator: Operator, initial: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The initial state by the names of tables, if it fits them."""
    tables = operator.tables()
    filled: dict[str, DataFrame] = {}
    for attribute, frame in initial.items():
        where = f"initial state of {operator_id}.{attribute}"
        table = tables.get(attribute)
        if table is None:
            raise NotFoundError(
                f"operator {operator_id} has no such table",
                object_name=attribute,
                found=", ".join(tables) or "no table",
                action=did_you_mean(attribute, tables),
            )
        _check_frame(frame, table, where)
        filled[table.name] = frame
    return filled


def _check_frame(frame: DataFrame, table: Table, where: str) -> None:
    if table.table_type.is_replicated:
        raise InvalidInputError(
            "a replicated table cannot be filled from a DataFrame",
            object_name=where,
            action="use a KeyedTable or a TimeKeyTable, or insert its entries in on_start of the first epoch",
        )
    if getattr(frame, "isStreaming", None) is not False:
        raise InvalidInputError(
            "initial state is not a batch DataFrame",
            object_name=where,
            found="a streaming DataFrame" if hasattr(frame, "isStreaming") else type(frame).__name__,
            action="read it with spark.read",
        )
    found = {column.name: column.type for column in columns_of(spark_ddl(frame.schema), what="row")}
    declared = (*table.config.key_columns, *table.config.value_columns)
    wrong = [
        str(column)
        for column in declared
        if column.name not in found or not widens(found[column.name], column.type)
    ]
    if wrong:
        raise InvalidInputError(
            "the columns of an initial state do not fit its table",
            object_name=where,
            found=", ".join(f"{name} {type_}" for name, type_ in found.items()),
            expected=", ".join(map(str, declared)),
            action=f"select {', '.join(wrong)}, with casts where needed",
        )
