"""Converts references to data files between frozen values and Protobuf."""

from __future__ import annotations

from lakestate.codec.messages import UnknownFields, with_unknown_fields
from lakestate.protocol.key_ranges import ALL_KEYS, KeyRange
from lakestate.protocol.values import Block, Epoch, FileRef, Generation, ObjectRef, TimeRange
from lakestate.v1 import files_pb2


def key_range_message(keys: KeyRange) -> files_pb2.KeyRange:
    """To Protobuf."""
    return files_pb2.KeyRange(first=keys.first, last=keys.last)


def key_range(message: files_pb2.KeyRange) -> KeyRange:
    """From Protobuf."""
    return KeyRange(message.first, message.last)


def object_ref_message(ref: ObjectRef) -> files_pb2.ObjectRef:
    """To Protobuf."""
    return files_pb2.ObjectRef(path=ref.path, size_bytes=ref.size_bytes, checksum=ref.checksum)


def object_ref(message: files_pb2.ObjectRef) -> ObjectRef:
    """From Protobuf."""
    return ObjectRef(message.path, message.size_bytes, message.checksum)


def file_ref_message(file: FileRef) -> files_pb2.FileRef:
    """To Protobuf."""
    message = files_pb2.FileRef(
        object=object_ref_message(file.object_ref),
        row_count=file.row_count,
        epoch=file.epoch,
        generation=file.generation,
        subtask_index=file.subtask_index,
        state_version=file.state_version,
        schema_fingerprint=file.schema_fingerprint,
        removed_count=file.removed_count,
        valid_from_us=file.valid_from_us,
        blocks=[_block_message(block) for block in file.blocks],
        footer_checksum=file.footer_checksum,
    )
    # Unknown fields come first, because they may be inside a range that the next lines fill.
    with_unknown_fields(message, file.unknown_fields)
    if file.keys is not None:
        message.keys.MergeFrom(key_range_message(file.keys))
    if file.times is not None:
        message.times.MergeFrom(files_pb2.TimeRange(first_us=file.times.first_us, last_us=file.times.last_us))
    if file.valid_keys != ALL_KEYS or message.HasField("valid_keys"):
        message.valid_keys.MergeFrom(key_range_message(file.valid_keys))
    return message


def file_ref(message: files_pb2.FileRef, unknown: UnknownFields) -> FileRef:
    """From Protobuf."""
    times = message.times
    return FileRef(
        path=message.object.path,
        size_bytes=message.object.size_bytes,
        checksum=message.object.checksum,
        row_count=message.row_count,
        epoch=Epoch(message.epoch),
        generation=Generation(message.generation),
        subtask_index=message.subtask_index,
        state_version=message.state_version,
        schema_fingerprint=message.schema_fingerprint,
        keys=key_range(message.keys) if message.HasField("keys") else None,
        times=TimeRange(times.first_us, times.last_us) if message.HasField("times") else None,
        removed_count=message.removed_count,
        valid_keys=key_range(message.valid_keys) if message.HasField("valid_keys") else ALL_KEYS,
        valid_from_us=message.valid_from_us if message.HasField("valid_from_us") else None,
        blocks=tuple(_block(block, unknown) for block in message.blocks),
        footer_checksum=message.footer_checksum,
        unknown_fields=unknown(message),
    )


def _block_message(block: Block) -> files_pb2.Block:
    message = files_pb2.Block(
        start=block.start,
        length=block.length,
        row_count=block.row_count,
        keys=key_range_message(block.keys),
        checksum=block.checksum,
    )
    return with_unknown_fields(message, block.unknown_fields)


def _block(message: files_pb2.Block, unknown: UnknownFields) -> Block:
    return Block(
        start=message.start,
        length=message.length,
        row_count=message.row_count,
        keys=key_range(message.keys),
        checksum=message.checksum,
        unknown_fields=unknown(message),
    )
