"""Tables by their stored type: access for code that knows a table only from metadata.

The driver merges, rescales, compacts and cleans up tables of every type without the code that
declared them. Metadata of one type is never handled as another, and a type that is not registered is
refused: nothing is deleted or merged by guessing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from lakestate.codec import register_codec, require_table_type
from lakestate.errors import CorruptionError, IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import SubtaskMetadata, TableConfig, TableFiles
from lakestate.protocol.table_types import TableType
from lakestate.protocol.values import TaskInfo
from lakestate.tables.contract import Table
from lakestate.tables.global_keyed.table import GlobalKeyedTable
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.staged.table import StagedTable
from lakestate.tables.time_key.table import TimeKeyTable

T = TypeVar("T", bound=Table)

_BUILT_IN: tuple[type[Table], ...] = (GlobalKeyedTable, KeyedTable, StagedTable, TimeKeyTable)
_TABLE_CLASSES: dict[str, type[Table]] = {}


def register_table_type(table_class: type[T]) -> type[T]:
    """Make a type of table known under the name in its `table_type`. Use it as a class decorator.

    Every process that reads the type's metadata needs it: import the module that defines the class. A
    second class under one name is refused; the same class again, also defined anew as a notebook
    does, is not.
    """
    table_type = getattr(table_class, "table_type", None)
    if not isinstance(table_type, TableType):
        raise InvalidInputError(
            "a class without a table type cannot be registered",
            object_name=table_class.__qualname__,
            found=repr(table_type),
            expected='table_type = TableType("…") in the class',
        )
    known = _TABLE_CLASSES.get(table_type.name)
    if known is not None and known.table_type == table_type and issubclass(table_class, known):
        return table_class
    if known is not None and _full_name(known) != _full_name(table_class):
        raise InvalidInputError(
            "two classes are registered as one table type",
            object_name=table_type.name,
            found=_full_name(table_class),
            expected=_full_name(known),
            action="give the new type another name",
        )
    register_codec(table_type, table_class.codec)
    _TABLE_CLASSES[table_type.name] = table_class
    return table_class


def register_declared(tables: Iterable[Table]) -> None:
    """Register the classes of declared tables: a process may get them by value, without an import."""
    for table in tables:
        register_table_type(type(table))


def table_of(config: TableConfig) -> Table:
    """The table of a stored declaration."""
    return _table_class(config).from_config(config)


def merge_table(config: TableConfig, parts: Mapping[int, TableFiles]) -> TableFiles:
    """One table's files over the subtasks of an operator, by subtask index."""
    for index, part in parts.items():
        require_table_type(part.table_type, config.table_type, f"table {part.table} of subtask {index}")
    return _table_class(config).merge_checkpoint_metadata(config, parts)


def subtask_part(config: TableConfig, merged: TableFiles, task: TaskInfo) -> TableFiles:
    """What a subtask reads of a merged table."""
    return _table_class(config).subtask_metadata_from_table(config, merged, task)


def files_to_keep(metadata: SubtaskMetadata, object_name: str) -> frozenset[str]:
    """The data files that restoring a subtask needs, as the types of its tables say.

    Raises CorruptionError for files of a table that the metadata does not declare: nobody can say what
    they are needed for.
    """
    paths: set[str] = set()
    for files in metadata.tables:
        config = metadata.config(files.table)
        if config is None:
            raise CorruptionError(
                "metadata holds files of a table that it does not declare",
                object_name=object_name,
                found=f"table {files.table}",
                expected=", ".join(known.name for known in metadata.configs) or "no table",
            )
        require_table_type(files.table_type, config.table_type, f"{object_name} (table {files.table})")
        paths |= _table_class(config).files_to_keep(config, files)
    return frozenset(paths)


def _table_class(config: TableConfig) -> type[Table]:
    table_class = _TABLE_CLASSES.get(config.table_type.name)
    if table_class is None:
        raise IncompatibleStateError(
            "unknown table type",
            object_name=f"table {config.name}",
            found=config.table_type.name,
            expected=", ".join(sorted(_TABLE_CLASSES)),
            action="import the module that registers this type",
        )
    return table_class


def _full_name(table_class: type[Table]) -> str:
    return f"{table_class.__module__}.{table_class.__qualname__}"


for _table_class_built_in in _BUILT_IN:
    register_table_type(_table_class_built_in)
