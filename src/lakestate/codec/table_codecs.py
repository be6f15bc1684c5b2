"""How each table type stores its declaration and its checkpoints: one codec per type.

A codec fills in and reads the message of its own type. The envelope around it, which names the type,
is in `codec.tables`. Types from outside this package use `GenericTableCodec`, or write their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from lakestate.codec.files import file_ref, file_ref_message
from lakestate.codec.messages import (
    UnknownFields,
    parse,
    serialise,
    unknown_fields_reader,
    with_unknown_fields,
)
from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column, TableConfig, TableFiles
from lakestate.protocol.values import FileRef
from lakestate.v1 import files_pb2, tables_pb2

_CONFIG = "table configuration"
_CHECKPOINT = "table checkpoint"


class TableCodec(Protocol):
    """Turns what only one table type stores into bytes, and back.

    Decoding gets a value that holds what the envelope says, and returns it completed. `where` names
    the object for errors. Raise `ValueError` for bytes that cannot be decoded.
    """

    def encode_config(self, config: TableConfig) -> bytes:
        """The declaration, without its name, type, version and description."""
        ...

    def decode_config(self, plain: TableConfig, data: bytes, where: str) -> TableConfig:
        """The declaration with what these bytes say."""
        ...

    def encode_files(self, files: TableFiles) -> bytes:
        """One subtask's part of a table, without the table's name and type."""
        ...

    def decode_files(self, plain: TableFiles, data: bytes, where: str) -> TableFiles:
        """One subtask's part of a table, with what these bytes say."""
        ...


class GlobalKeyedCodec:
    """Of `GlobalKeyedTable`: one key and one value, and data for a two-phase commit."""

    def encode_config(self, config: TableConfig) -> bytes:
        """To Protobuf."""
        message = tables_pb2.GlobalKeyedTableConfig(
            key=_at_most_one(config.key_columns, config),
            value=_at_most_one(config.value_columns, config),
            uses_two_phase_commit=config.uses_two_phase_commit,
        )
        return serialise(with_unknown_fields(message, config.typed_unknown_fields))

    def decode_config(self, plain: TableConfig, data: bytes, where: str) -> TableConfig:
        """From Protobuf."""
        message = parse(tables_pb2.GlobalKeyedTableConfig(), data, where, _CONFIG)
        unknown = unknown_fields_reader(message)
        return replace(
            plain,
            key_columns=_columns([message.key] if message.HasField("key") else [], unknown),
            value_columns=_columns([message.value] if message.HasField("value") else [], unknown),
            uses_two_phase_commit=message.uses_two_phase_commit,
            typed_unknown_fields=unknown(message),
        )

    def encode_files(self, files: TableFiles) -> bytes:
        """To Protobuf."""
        message = tables_pb2.GlobalKeyedTableCheckpoint(
            files=_file_messages(files), commit_data=files.commit_data
        )
        return serialise(with_unknown_fields(message, files.typed_unknown_fields))

    def decode_files(self, plain: TableFiles, data: bytes, where: str) -> TableFiles:
        """From Protobuf."""
        message = parse(tables_pb2.GlobalKeyedTableCheckpoint(), data, where, _CHECKPOINT)
        unknown = unknown_fields_reader(message)
        return replace(
            plain,
            files=_files(message.files, unknown),
            commit_data=message.commit_data if message.HasField("commit_data") else None,
            typed_unknown_fields=unknown(message),
        )


class KeyedCodec:
    """Of `KeyedTable`: its columns and its time to live."""

    def encode_config(self, config: TableConfig) -> bytes:
        """To Protobuf."""
        message = tables_pb2.KeyedTableConfig(
            key_columns=_column_messages(config.key_columns),
            value_columns=_column_messages(config.value_columns),
            routing_columns=config.routing_columns,
            ttl_us=config.ttl_us,
            time_column=config.time_column,
            removed_columns=config.removed_columns,
        )
        return serialise(with_unknown_fields(message, config.typed_unknown_fields))

    def decode_config(self, plain: TableConfig, data: bytes, where: str) -> TableConfig:
        """From Protobuf."""
        message = parse(tables_pb2.KeyedTableConfig(), data, where, _CONFIG)
        unknown = unknown_fields_reader(message)
        return replace(
            plain,
            key_columns=_columns(message.key_columns, unknown),
            value_columns=_columns(message.value_columns, unknown),
            routing_columns=tuple(message.routing_columns),
            ttl_us=message.ttl_us if message.HasField("ttl_us") else None,
            removed_columns=tuple(message.removed_columns),
            time_column=message.time_column if message.HasField("time_column") else None,
            typed_unknown_fields=unknown(message),
        )

    def encode_files(self, files: TableFiles) -> bytes:
        """To Protobuf."""
        message = tables_pb2.KeyedTableCheckpoint(files=_file_messages(files))
        return serialise(with_unknown_fields(message, files.typed_unknown_fields))

    def decode_files(self, plain: TableFiles, data: bytes, where: str) -> TableFiles:
        """From Protobuf."""
        message = parse(tables_pb2.KeyedTableCheckpoint(), data, where, _CHECKPOINT)
        unknown = unknown_fields_reader(message)
        return replace(plain, files=_files(message.files, unknown), typed_unknown_fields=unknown(message))


class TimeKeyCodec:
    """Of `TimeKeyTable`: its columns, its retention, and the time up to which rows have expired."""

    def encode_config(self, config: TableConfig) -> bytes:
        """To Protobuf."""
        message = tables_pb2.TimeKeyTableConfig(
            key_columns=_column_messages(config.key_columns),
            value_columns=_column_messages(config.value_columns),
            routing_columns=config.routing_columns,
            time_column=config.time_column or "",
            retention_us=config.retention_us,
            removed_columns=config.removed_columns,
        )
        return serialise(with_unknown_fields(message, config.typed_unknown_fields))

    def decode_config(self, plain: TableConfig, data: bytes, where: str) -> TableConfig:
        """From Protobuf."""
        message = parse(tables_pb2.TimeKeyTableConfig(), data, where, _CONFIG)
        unknown = unknown_fields_reader(message)
        return replace(
            plain,
            key_columns=_columns(message.key_columns, unknown),
            value_columns=_columns(message.value_columns, unknown),
            routing_columns=tuple(message.routing_columns),
            time_column=message.time_column or None,
            retention_us=message.retention_us if message.HasField("retention_us") else None,
            removed_columns=tuple(message.removed_columns),
            typed_unknown_fields=unknown(message),
        )

    def encode_files(self, files: TableFiles) -> bytes:
        """To Protobuf."""
        message = tables_pb2.TimeKeyTableCheckpoint(
            files=_file_messages(files), expired_before_us=files.expired_before_us
        )
        return serialise(with_unknown_fields(message, files.typed_unknown_fields))

    def decode_files(self, plain: TableFiles, data: bytes, where: str) -> TableFiles:
        """From Protobuf."""
        message = parse(tables_pb2.TimeKeyTableCheckpoint(), data, where, _CHECKPOINT)
        unknown = unknown_fields_reader(message)
        return replace(
            plain,
            files=_files(message.files, unknown),
            expired_before_us=message.expired_before_us if message.HasField("expired_before_us") else None,
            typed_unknown_fields=unknown(message),
        )


class GenericTableCodec:
    """For types from outside this package: columns, `TableConfig.options`, files, commit data."""

    def encode_config(self, config: TableConfig) -> bytes:
        """To Protobuf. What it cannot store is refused, not lost."""
        _refuse_typed_fields(config)
        message = tables_pb2.GenericTableConfig(
            key_columns=_column_messages(config.key_columns),
            value_columns=_column_messages(config.value_columns),
            routing_columns=config.routing_columns,
            time_column=config.time_column,
            options=config.options,
        )
        return serialise(with_unknown_fields(message, config.typed_unknown_fields))

    def decode_config(self, plain: TableConfig, data: bytes, where: str) -> TableConfig:
        """From Protobuf."""
        message = parse(tables_pb2.GenericTableConfig(), data, where, _CONFIG)
        unknown = unknown_fields_reader(message)
        return replace(
            plain,
            key_columns=_columns(message.key_columns, unknown),
            value_columns=_columns(message.value_columns, unknown),
            routing_columns=tuple(message.routing_columns),
            time_column=message.time_column if message.HasField("time_column") else None,
            options=message.options,
            typed_unknown_fields=unknown(message),
        )

    def encode_files(self, files: TableFiles) -> bytes:
        """To Protobuf."""
        message = tables_pb2.GenericTableCheckpoint(
            files=_file_messages(files),
            commit_data=files.commit_data,
            expired_before_us=files.expired_before_us,
        )
        return serialise(with_unknown_fields(message, files.typed_unknown_fields))

    def decode_files(self, plain: TableFiles, data: bytes, where: str) -> TableFiles:
        """From Protobuf."""
        message = parse(tables_pb2.GenericTableCheckpoint(), data, where, _CHECKPOINT)
        unknown = unknown_fields_reader(message)
        return replace(
            plain,
            files=_files(message.files, unknown),
            commit_data=message.commit_data if message.HasField("commit_data") else None,
            expired_before_us=message.expired_before_us if message.HasField("expired_before_us") else None,
            typed_unknown_fields=unknown(message),
        )


def _refuse_typed_fields(config: TableConfig) -> None:
    settings = {
        "ttl_us": config.ttl_us is not None,
        "retention_us": config.retention_us is not None,
        "uses_two_phase_commit": config.uses_two_phase_commit,
    }
    found = [name for name, is_set in settings.items() if is_set]
    if found:
        raise InvalidInputError(
            "the generic table codec does not store these settings",
            object_name=f"table {config.name}",
            found=", ".join(found),
            action="encode them into TableConfig.options, or write a TableCodec",
        )


def _at_most_one(columns: Sequence[Column], config: TableConfig) -> tables_pb2.Column | None:
    if len(columns) > 1:
        raise InvalidInputError(
            "a global keyed table has one key and one value",
            object_name=config.name,
            found=f"{len(columns)} columns",
        )
    return _column_message(columns[0]) if columns else None


def _column_messages(columns: Iterable[Column]) -> list[tables_pb2.Column]:
    return [_column_message(column) for column in columns]


def _column_message(column: Column) -> tables_pb2.Column:
    message = tables_pb2.Column(
        name=column.name, type=column.type, nullable=column.nullable, meaning=column.meaning
    )
    return with_unknown_fields(message, column.unknown_fields)


def _columns(messages: Iterable[tables_pb2.Column], unknown: UnknownFields) -> tuple[Column, ...]:
    return tuple(
        Column(message.name, message.type, message.nullable, unknown(message), message.meaning)
        for message in messages
    )


def _file_messages(files: TableFiles) -> list[files_pb2.FileRef]:
    return [file_ref_message(file) for file in files.files]


def _files(messages: Iterable[files_pb2.FileRef], unknown: UnknownFields) -> tuple[FileRef, ...]:
    return tuple(file_ref(message, unknown) for message in messages)
