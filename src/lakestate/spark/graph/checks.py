"""Checks of a graph, made before anything starts and before the job is claimed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from lakestate.errors import IncompatibleStateError, InvalidInputError, NotFoundError
from lakestate.job.objects import JobObjects
from lakestate.operators.operator import TwoInputOperator, check_timers, has_on_commit, state_tables
from lakestate.protocol.metadata import Manifest, TableConfig
from lakestate.protocol.names import did_you_mean, require_name
from lakestate.sinks.sink import Sink
from lakestate.spark.graph.column_names import unknown_column_error
from lakestate.spark.graph.dropped import Dropped, resolve_dropped
from lakestate.spark.graph.nodes import ApplyNode, ConnectNode, Graph, SinkNode, SourceNode, ancestors_of
from lakestate.spark.graph.problems import OnProblem, raise_problem, report_problems
from lakestate.spark.graph.schemas import Schemas
from lakestate.tables.arrow.schema import columns_of
from lakestate.tables.contract import Table
from lakestate.tables.restore import check_compatible

_TIME_TYPES = ("timestamp", "timestamp_ntz")

CheckSink: TypeAlias = Callable[[Sink, pa.Schema, str | None], None]


def check_names(graph: Graph, on_problem: OnProblem = raise_problem) -> None:
    """Check that ids are valid and unique, that every source is read, and that there is a step."""
    if not graph.sources or not graph.steps:
        on_problem(InvalidInputError("a pipeline needs a source, and an operator or a sink"))
    for kind, names in (
        ("source", [node.name for node in graph.sources]),
        ("operator", [node.step_id for node in graph.steps]),
    ):
        for name in names:
            with report_problems(on_problem):
                require_name(kind, name)
    sources = [node.name for node in graph.sources]
    twice = sorted({name for name in sources if sources.count(name) > 1})
    if twice:
        on_problem(InvalidInputError("two sources have the same id", found=", ".join(twice)))
    read = {id(node) for step in graph.steps for node in ancestors_of(step)}
    idle = [node.name for node in graph.sources if id(node) not in read]
    if idle and graph.steps:
        on_problem(InvalidInputError("a source leads to no operator and no sink", found=", ".join(idle)))


def check_types(graph: Graph, schemas: Schemas) -> None:
    """Check that columns and types fit, from every source to every sink."""
    _check_types(graph, schemas, raise_problem, lambda sink, rows, event_time: sink.check(rows, event_time))


def try_types(graph: Graph, schemas: Schemas, on_problem: OnProblem) -> None:
    """The same as far as columns are known, without anything being created for a sink."""
    _check_types(graph, schemas, on_problem, lambda sink, rows, event_time: sink.dry_run(rows, event_time))


def _check_types(graph: Graph, schemas: Schemas, on_problem: OnProblem, check_sink: CheckSink) -> None:
    for source in graph.sources:
        with report_problems(on_problem):
            _check_event_time(source)
    for node in graph.steps:
        if not all(schemas.knows(each) for each in ancestors_of(node)):
            continue
        if isinstance(node, ApplyNode):
            _check_operator(node, schemas, on_problem)
            continue
        with report_problems(on_problem):
            _check_rows_exist(node, schemas)
            check_sink(node.sink, schemas.arrow(node.parent), event_time_of(node, schemas))


def check_stored(graph: Graph, manifest: Manifest, objects: JobObjects, drop: Collection[str]) -> Dropped:
    """Check that every stored table can be read with what is declared now. Returns what is dropped."""
    check_stored_sources(graph, manifest)
    where = f"epoch {manifest.epoch} of job {manifest.job_id}"
    declared = {node.step_id: tables_of(node) for node in graph.steps}
    stored = stored_declarations(manifest, objects, declared.keys())
    dropped = resolve_dropped(drop, names_of(stored), names_of(declared), where)
    check_stored_operators(graph, manifest, dropped)
    for step in (step for step in stored if step in declared):
        _check_tables(step, declared[step], stored[step], dropped.tables.get(step, ()), where)
    return dropped


def check_stored_operators(graph: Graph, manifest: Manifest, dropped: Dropped) -> None:
    """Refuse a pipeline that lacks a stored operator or sink, unless that is dropped."""
    declared = {node.step_id for node in graph.steps}
    forgotten = sorted({entry.operator_id for entry in manifest.operators} - declared - dropped.operators)
    if forgotten:
        raise IncompatibleStateError(
            "stored operators are no longer in the pipeline",
            object_name=f"epoch {manifest.epoch} of job {manifest.job_id}",
            found=", ".join(forgotten),
            expected=", ".join(sorted(declared)),
            action=f"put them back, or give up their state with drop={forgotten}",
        )


def names_of(tables: Mapping[str, Sequence[Table | TableConfig]]) -> dict[str, list[str]]:
    """The names of the tables of each operator."""
    return {step: [table.name for table in found] for step, found in tables.items()}


def stored_declarations(
    manifest: Manifest, objects: JobObjects, needed: Collection[str]
) -> dict[str, Sequence[TableConfig]]:
    """The stored operators, with the declarations of the tables of those that are needed.

    Of the others nothing is read: an operator whose metadata is damaged can still be dropped.
    """
    # One subtask is enough: every subtask stores the same declarations.
    entries = [entry for entry in manifest.operators if entry.operator_id in needed]
    first = objects.read_subtasks([entry.subtasks[0] for entry in entries])
    found = {entry.operator_id: metadata.configs for entry, metadata in zip(entries, first, strict=True)}
    return {entry.operator_id: found.get(entry.operator_id, ()) for entry in manifest.operators}


def check_stored_sources(graph: Graph, manifest: Manifest) -> None:
    """Refuse other sources: Spark finds offsets by position, so another source would read from them."""
    stored = [source.source for source in manifest.sources]
    declared = [node.name for node in graph.sources]
    if manifest.engine_files and stored != declared:
        raise IncompatibleStateError(
            "the sources of the job differ from those of its newest epoch",
            object_name=f"epoch {manifest.epoch} of job {manifest.job_id}",
            found=", ".join(declared),
            expected=f"{', '.join(stored)}, in this order",
            action="put them back, or start a job with another id",
        )


def event_time_of(node: Any, schemas: Schemas) -> str | None:
    """The event-time column of the rows that reach a node, if they still have it."""
    columns = {column.name: column.type for column in schemas.columns(node.parent)}
    for source in ancestors_of(node):
        if isinstance(source, SourceNode) and source.event_time is not None:
            return source.event_time if columns.get(source.event_time) in _TIME_TYPES else None
    return None


def _check_tables(
    step: str, tables: Sequence[Table], stored: Sequence[TableConfig], dropped: Collection[str], where: str
) -> None:
    by_name = {table.name: table for table in tables}
    kept = [config for config in stored if config.name not in dropped]
    gone = sorted(config.name for config in kept if config.name not in by_name)
    if gone:
        raise IncompatibleStateError(
            "stored tables are no longer declared",
            object_name=f"operator {step} in {where}",
            found=", ".join(gone),
            expected=", ".join(sorted(by_name)) or "no table",
            action=f"declare them, or give up their state with drop={[f'{step}.{name}' for name in gone]}",
        )
    for config in kept:
        check_compatible(by_name[config.name], config, f"operator {step} in {where}")


def tables_of(node: ApplyNode | SinkNode) -> Sequence[Table]:
    """The state tables of an operator or a sink."""
    return state_tables(node.operator) if isinstance(node, ApplyNode) else node.sink.tables()


def _check_event_time(source: SourceNode) -> None:
    """Check that the event time of a source is one of its columns, and a timestamp."""
    if source.event_time is None:
        return
    schema = source.frame.schema
    if source.event_time not in schema.names:
        raise unknown_column_error(f"event_time of source {source.name}", source.event_time, schema.names)
    found = schema[source.event_time].dataType.simpleString()
    if found not in _TIME_TYPES:
        raise InvalidInputError(
            f"the event time of source {source.name} is not a timestamp",
            object_name=source.event_time,
            found=found,
            expected="timestamp",
        )


def _check_operator(node: ApplyNode, schemas: Schemas, on_problem: OnProblem) -> None:
    where = f"operator {node.step_id}"
    with report_problems(on_problem):
        has_on_commit(node.operator, where)
    with report_problems(on_problem):
        timed = (each.event_time is not None for each in ancestors_of(node) if isinstance(each, SourceNode))
        check_timers(node.operator, where, has_event_time=any(timed))
    two = isinstance(node.operator, TwoInputOperator)
    if two != isinstance(node.parent, ConnectNode):
        on_problem(
            InvalidInputError(
                f"{where} takes {'two streams' if two else 'one stream'}",
                found="one stream" if two else "two streams",
                action="use left.connect(right).apply(…) with a TwoInputOperator",
            )
        )
        return
    inputs = (node.parent.left, node.parent.right) if isinstance(node.parent, ConnectNode) else (node.parent,)
    for name, parent in zip(node.operator.input_names, inputs, strict=True):
        with report_problems(on_problem):
            _check_rows_exist(node, schemas, parent)
            _check_needed(node, name, parent, schemas)
    with report_problems(on_problem):
        for table in state_tables(node.operator):
            if not table.table_type.is_replicated:
                with report_problems(on_problem):
                    _check_key(table, node.parent, schemas, where)


def _check_rows_exist(node: ApplyNode | SinkNode, schemas: Schemas, parent: Any = None) -> None:
    parent = node.parent if parent is None else parent
    if not schemas.of(parent).fields:
        raise InvalidInputError(
            f"{node.step_id} takes rows from an operator without output",
            object_name=getattr(parent, "step_id", None),
            action="declare its `output`",
        )


def _check_needed(node: ApplyNode, input_name: str, parent: Any, schemas: Schemas) -> None:
    needed = node.operator.needed_columns(input_name)
    if needed is None:
        return
    there = schemas.of(parent).names
    missing = [str(column) for column in columns_of(needed, what="input") if column.name not in there]
    if missing:
        raise NotFoundError(
            f"operator {node.step_id} needs columns that its input does not have",
            object_name=", ".join(missing),
            found=", ".join(there),
            action=did_you_mean(missing[0].partition(" ")[0], there),
        )


def _check_key(table: Table, parent: Any, schemas: Schemas, where: str) -> None:
    config = table.config
    types = {column.name: column.type for column in config.key_columns}
    wanted = [types[name] for name in config.routing_columns]
    # The output of an operator may lack the key columns: the key of the stage still applies.
    keyed = parent
    while isinstance(keyed, ApplyNode):
        keyed = keyed.parent
    sides = (keyed.left, keyed.right) if isinstance(keyed, ConnectNode) else (keyed,)
    for side in sides:
        there = {column.name: column.type for column in schemas.columns(side)}
        found = [there[name] for name in schemas.key(side)]
        if found != wanted:
            raise InvalidInputError(
                f"the key of table {table.name} differs from the key of the rows of {where}",
                found=f"rows with key ({_columns_text(schemas.key(side), found)})"
                if found
                else "rows without key",
                expected=f"({_columns_text(config.routing_columns, wanted)})",
                action="key_by columns of the same types, or change the table's key or its route_by",
            )


def _columns_text(names: Sequence[str], types: Sequence[str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in zip(names, types, strict=True))
