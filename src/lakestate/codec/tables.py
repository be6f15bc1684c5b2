"""Table declarations and table checkpoints between frozen values and Protobuf.

Both travel in an envelope that names the table type and holds the message of that type as bytes. The
name decides which codec reads those bytes, so metadata of one type is never decoded as another.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakestate.codec.messages import UnknownFields, with_unknown_fields
from lakestate.codec.table_codecs import GlobalKeyedCodec, KeyedCodec, TableCodec, TimeKeyCodec
from lakestate.errors import IncompatibleStateError
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.table_types import GLOBAL_KEYED, KEYED, TIME_KEY, TableType
from lakestate.v1 import tables_pb2


@dataclass(frozen=True, slots=True)
class RegisteredType:
    """A table type whose metadata can be read."""

    table_type: TableType
    codec: TableCodec


_REGISTERED: dict[str, RegisteredType] = {
    GLOBAL_KEYED.name: RegisteredType(GLOBAL_KEYED, GlobalKeyedCodec()),
    KEYED.name: RegisteredType(KEYED, KeyedCodec()),
    TIME_KEY.name: RegisteredType(TIME_KEY, TimeKeyCodec()),
}


def register_codec(table_type: TableType, codec: TableCodec) -> None:
    """Read and write metadata of this type from now on. The registry of tables decides who may."""
    _REGISTERED[table_type.name] = RegisteredType(table_type, codec)


def require_table_type(found: TableType, expected: TableType, object_name: str) -> None:
    """Refuse metadata of another table type, by name."""
    if found != expected:
        raise IncompatibleStateError(
            "table metadata is of another type",
            object_name=object_name,
            found=found.name,
            expected=expected.name,
            action="declare the table with the type it was stored with",
        )


def table_config_message(config: TableConfig) -> tables_pb2.TableConfig:
    """To Protobuf."""
    registered = _registered_type(config.table_type.name, f"table {config.name}")
    message = tables_pb2.TableConfig(
        name=config.name,
        table_type=config.table_type.name,
        state_version=config.state_version,
        description=config.description,
        config=registered.codec.encode_config(config),
    )
    return with_unknown_fields(message, config.unknown_fields)


def table_config(message: tables_pb2.TableConfig, object_name: str, unknown: UnknownFields) -> TableConfig:
    """From Protobuf. The object name is for the error."""
    where = f"{object_name} (table {message.name})"
    registered = _registered_type(message.table_type, where)
    plain = TableConfig(
        name=message.name,
        table_type=registered.table_type,
        state_version=message.state_version,
        description=message.description,
        unknown_fields=unknown(message),
    )
    return registered.codec.decode_config(plain, message.config, where)


def table_files_message(files: TableFiles) -> tables_pb2.TableCheckpointMetadata:
    """To Protobuf."""
    registered = _registered_type(files.table_type.name, f"table {files.table}")
    message = tables_pb2.TableCheckpointMetadata(
        table=files.table, table_type=files.table_type.name, data=registered.codec.encode_files(files)
    )
    return with_unknown_fields(message, files.unknown_fields)


def table_files(
    message: tables_pb2.TableCheckpointMetadata, object_name: str, unknown: UnknownFields
) -> TableFiles:
    """From Protobuf. The object name is for the error."""
    where = f"{object_name} (table {message.table})"
    registered = _registered_type(message.table_type, where)
    plain = TableFiles(message.table, registered.table_type, unknown_fields=unknown(message))
    return registered.codec.decode_files(plain, message.data, where)


def _registered_type(name: str, where: str) -> RegisteredType:
    registered = _REGISTERED.get(name)
    if registered is None:
        raise IncompatibleStateError(
            "unknown table type",
            object_name=where,
            found=name[:80] or "no name of a type, as before the first release",
            expected=", ".join(sorted(_REGISTERED)),
            action="import the module that registers this type, or use a newer version of Lakestate",
        )
    return registered
