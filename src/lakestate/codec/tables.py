"""Table declarations and table checkpoints between frozen values and Protobuf.

Both travel in an envelope that names the table type and holds the message of that type as bytes.
`checked_table_type` is the guard: metadata of one type is never decoded as another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from lakestate.codec.files import file_ref, file_ref_message
from lakestate.codec.messages import (
    UnknownFields,
    parse,
    serialise,
    unknown_fields_reader,
    with_unknown_fields,
)
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.protocol.metadata import Column, TableConfig, TableFiles, TableType
from lakestate.protocol.values import FileRef
from lakestate.v1 import files_pb2, tables_pb2


def checked_table_type(found: int, expected: TableType, object_name: str) -> None:
    """Refuse metadata of another table type, by name."""
    if found == expected:
        return
    known = found in TableType.__members__.values()
    raise IncompatibleStateError(
        "table metadata is of another type",
        object_name=object_name,
        found=TableType(found).name if known else f"unknown table type {found}",
        expected=expected.name,
        action="declare the table with the type it was stored with",
    )


def table_config_message(config: TableConfig) -> tables_pb2.TableConfig:
    """To Protobuf."""
    message = tables_pb2.TableConfig(
        name=config.name,
        table_type=tables_pb2.TableType.ValueType(config.table_type),
        state_version=config.state_version,
        description=config.description,
        config=_typed_config_bytes(config),
    )
    return with_unknown_fields(message, config.unknown_fields)


def table_config(message: tables_pb2.TableConfig, object_name: str, unknown: UnknownFields) -> TableConfig:
    """From Protobuf. The object name is for the error."""
    table_type = _known_type(message.table_type, f"{object_name} (table {message.name})")
    plain = TableConfig(
        name=message.name,
        table_type=table_type,
        state_version=message.state_version,
        description=message.description,
        unknown_fields=unknown(message),
    )
    return _with_typed_config(plain, message.config, object_name)


def table_files_message(files: TableFiles) -> tables_pb2.TableCheckpointMetadata:
    """To Protobuf."""
    message = tables_pb2.TableCheckpointMetadata(
        table=files.table,
        table_type=tables_pb2.TableType.ValueType(files.table_type),
        data=_typed_files_bytes(files),
    )
    return with_unknown_fields(message, files.unknown_fields)


def table_files(
    message: tables_pb2.TableCheckpointMetadata, object_name: str, unknown: UnknownFields
) -> TableFiles:
    """From Protobuf. The object name is for the error."""
    where = f"{object_name} (table {message.table})"
    table_type = _known_type(message.table_type, where)
    plain = TableFiles(message.table, table_type, unknown_fields=unknown(message))
    match table_type:
        case TableType.GLOBAL_KEYED:
            data = parse(tables_pb2.GlobalKeyedTableCheckpoint(), message.data, where, "table checkpoint")
            return replace(
                plain,
                files=_files(data.files, typed_unknown := unknown_fields_reader(data)),
                commit_data=data.commit_data if data.HasField("commit_data") else None,
                typed_unknown_fields=typed_unknown(data),
            )
        case TableType.KEYED:
            keyed = parse(tables_pb2.KeyedTableCheckpoint(), message.data, where, "table checkpoint")
            return replace(
                plain,
                files=_files(keyed.files, typed_unknown := unknown_fields_reader(keyed)),
                typed_unknown_fields=typed_unknown(keyed),
            )
        case TableType.TIME_KEY:
            timed = parse(tables_pb2.TimeKeyTableCheckpoint(), message.data, where, "table checkpoint")
            return replace(
                plain,
                files=_files(timed.files, typed_unknown := unknown_fields_reader(timed)),
                expired_before_us=timed.expired_before_us if timed.HasField("expired_before_us") else None,
                typed_unknown_fields=typed_unknown(timed),
            )
        case _:
            assert_never(table_type)


def _files(messages: Iterable[files_pb2.FileRef], unknown: UnknownFields) -> tuple[FileRef, ...]:
    return tuple(file_ref(message, unknown) for message in messages)


def _typed_files_bytes(files: TableFiles) -> bytes:
    refs = [file_ref_message(file) for file in files.files]
    message: (
        tables_pb2.GlobalKeyedTableCheckpoint
        | tables_pb2.KeyedTableCheckpoint
        | tables_pb2.TimeKeyTableCheckpoint
    )
    match files.table_type:
        case TableType.GLOBAL_KEYED:
            message = tables_pb2.GlobalKeyedTableCheckpoint(files=refs, commit_data=files.commit_data)
        case TableType.KEYED:
            message = tables_pb2.KeyedTableCheckpoint(files=refs)
        case TableType.TIME_KEY:
            message = tables_pb2.TimeKeyTableCheckpoint(files=refs, expired_before_us=files.expired_before_us)
        case _:
            assert_never(files.table_type)
    return serialise(with_unknown_fields(message, files.typed_unknown_fields))


def _typed_config_bytes(config: TableConfig) -> bytes:
    keys = [_column_message(column) for column in config.key_columns]
    values = [_column_message(column) for column in config.value_columns]
    message: tables_pb2.GlobalKeyedTableConfig | tables_pb2.KeyedTableConfig | tables_pb2.TimeKeyTableConfig
    match config.table_type:
        case TableType.GLOBAL_KEYED:
            message = tables_pb2.GlobalKeyedTableConfig(
                key=_at_most_one(keys, config),
                value=_at_most_one(values, config),
                uses_two_phase_commit=config.uses_two_phase_commit,
            )
        case TableType.KEYED:
            message = tables_pb2.KeyedTableConfig(
                key_columns=keys,
                value_columns=values,
                routing_columns=config.routing_columns,
                ttl_us=config.ttl_us,
                time_column=config.time_column,
            )
        case TableType.TIME_KEY:
            message = tables_pb2.TimeKeyTableConfig(
                key_columns=keys,
                value_columns=values,
                routing_columns=config.routing_columns,
                time_column=config.time_column or "",
                retention_us=config.retention_us,
            )
        case _:
            assert_never(config.table_type)
    return serialise(with_unknown_fields(message, config.typed_unknown_fields))


def _with_typed_config(plain: TableConfig, data: bytes, object_name: str) -> TableConfig:
    where = f"{object_name} (table {plain.name})"
    match plain.table_type:
        case TableType.GLOBAL_KEYED:
            one = parse(tables_pb2.GlobalKeyedTableConfig(), data, where, "table configuration")
            unknown = unknown_fields_reader(one)
            return replace(
                plain,
                key_columns=_columns([one.key] if one.HasField("key") else [], unknown),
                value_columns=_columns([one.value] if one.HasField("value") else [], unknown),
                uses_two_phase_commit=one.uses_two_phase_commit,
                typed_unknown_fields=unknown(one),
            )
        case TableType.KEYED:
            keyed = parse(tables_pb2.KeyedTableConfig(), data, where, "table configuration")
            unknown = unknown_fields_reader(keyed)
            return replace(
                plain,
                key_columns=_columns(keyed.key_columns, unknown),
                value_columns=_columns(keyed.value_columns, unknown),
                routing_columns=tuple(keyed.routing_columns),
                ttl_us=keyed.ttl_us if keyed.HasField("ttl_us") else None,
                time_column=keyed.time_column if keyed.HasField("time_column") else None,
                typed_unknown_fields=unknown(keyed),
            )
        case TableType.TIME_KEY:
            timed = parse(tables_pb2.TimeKeyTableConfig(), data, where, "table configuration")
            unknown = unknown_fields_reader(timed)
            return replace(
                plain,
                key_columns=_columns(timed.key_columns, unknown),
                value_columns=_columns(timed.value_columns, unknown),
                routing_columns=tuple(timed.routing_columns),
                time_column=timed.time_column or None,
                retention_us=timed.retention_us if timed.HasField("retention_us") else None,
                typed_unknown_fields=unknown(timed),
            )
        case _:
            assert_never(plain.table_type)


def _known_type(number: int, where: str) -> TableType:
    if number in TableType.__members__.values():
        return TableType(number)
    raise IncompatibleStateError(
        "unknown table type",
        object_name=where,
        found=number,
        expected=", ".join(f"{known.value} ({known.name})" for known in TableType),
        action="use a newer version of Lakestate",
    )


def _at_most_one(columns: Sequence[tables_pb2.Column], config: TableConfig) -> tables_pb2.Column | None:
    if len(columns) > 1:
        raise InvalidInputError(
            "a global keyed table has one key and one value",
            object_name=config.name,
            found=f"{len(columns)} columns",
        )
    return columns[0] if columns else None


def _column_message(column: Column) -> tables_pb2.Column:
    message = tables_pb2.Column(name=column.name, type=column.type, nullable=column.nullable)
    return with_unknown_fields(message, column.unknown_fields)


def _columns(messages: Iterable[tables_pb2.Column], unknown: UnknownFields) -> tuple[Column, ...]:
    return tuple(
        Column(message.name, message.type, message.nullable, unknown(message)) for message in messages
    )
