"""Encodes and decodes manifests and subtask metadata.

These are the only two kinds of Protobuf objects in a job. Callers decode bytes immediately and work
with frozen values from then on.
"""

from __future__ import annotations

from lakestate.codec.files import key_range, key_range_message, object_ref, object_ref_message
from lakestate.codec.messages import (
    UnknownFields,
    convert,
    format_message,
    parse,
    require_format,
    serialise,
    unknown_fields_reader,
    with_unknown_fields,
)
from lakestate.codec.tables import table_config, table_config_message, table_files, table_files_message
from lakestate.errors import MisplacedObjectError
from lakestate.protocol.metadata import (
    CompletionStatus,
    EngineLog,
    ForkedFrom,
    FormatVersion,
    Manifest,
    NamedBytes,
    OperatorEntry,
    PartDuration,
    SinkPreCommit,
    SourceOffsets,
    StateSummary,
    SubtaskEntry,
    SubtaskMetadata,
    WentBack,
)
from lakestate.protocol.names import require_name
from lakestate.protocol.values import Epoch, Generation
from lakestate.v1 import checkpoint_pb2

MANIFEST = "manifest"
SUBTASK = "subtask metadata"


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest object."""
    message = checkpoint_pb2.Manifest(
        format=format_message(manifest.format, MANIFEST),
        job_id=manifest.job_id,
        epoch=manifest.epoch,
        generation=manifest.generation,
        parent=manifest.parent,
        started_ms=manifest.started_ms,
        finished_ms=manifest.finished_ms,
        status=checkpoint_pb2.CompletionStatus.ValueType(manifest.status),
        min_epoch=manifest.min_epoch,
        watermark_us=manifest.watermark_us,
        operators=[_operator_message(entry) for entry in manifest.operators],
        sources=[_source_message(source) for source in manifest.sources],
        sinks=[_sink_message(sink) for sink in manifest.sinks],
        engine_files=[_engine_file_message(file) for file in manifest.engine_files],
        engine_logs=[_engine_log_message(log) for log in manifest.engine_logs],
        state_id=manifest.state_id,
        went_back=_went_back_message(manifest.went_back),
        forked_from=_forked_from_message(manifest.forked_from),
        parent_parts=[_part_message(part) for part in manifest.parent_parts],
    )
    return serialise(with_unknown_fields(message, manifest.unknown_fields))


def decode_manifest(data: bytes, object_name: str, job_id: str) -> Manifest:
    """The manifest in an object's bytes. Errors name the object."""
    message = parse(checkpoint_pb2.Manifest(), data, object_name, MANIFEST)
    version = require_format(message.format, MANIFEST, object_name)
    _check_job(message.job_id, job_id, MANIFEST, object_name)
    return convert(lambda known: _manifest(known, version), message, object_name, MANIFEST)


def encode_subtask(metadata: SubtaskMetadata) -> bytes:
    """The bytes of a subtask metadata object."""
    message = checkpoint_pb2.SubtaskCheckpointMetadata(
        format=format_message(metadata.format, SUBTASK),
        job_id=metadata.job_id,
        operator_id=metadata.operator_id,
        subtask_index=metadata.subtask_index,
        parallelism=metadata.parallelism,
        epoch=metadata.epoch,
        generation=metadata.generation,
        attempt=metadata.attempt,
        key_range=key_range_message(metadata.key_range),
        started_ms=metadata.started_ms,
        finished_ms=metadata.finished_ms,
        watermark_us=metadata.watermark_us,
        then_stop=metadata.then_stop,
        bytes_written=metadata.bytes_written,
        configs=[table_config_message(config) for config in metadata.configs],
        tables=[table_files_message(files) for files in metadata.tables],
    )
    return serialise(with_unknown_fields(message, metadata.unknown_fields))


def decode_subtask(data: bytes, object_name: str, job_id: str) -> SubtaskMetadata:
    """The subtask metadata in an object's bytes. Errors name the object."""
    message = parse(checkpoint_pb2.SubtaskCheckpointMetadata(), data, object_name, SUBTASK)
    version = require_format(message.format, SUBTASK, object_name)
    _check_job(message.job_id, job_id, SUBTASK, object_name)
    return convert(lambda known: _subtask(known, version, object_name), message, object_name, SUBTASK)


def _check_job(found: str, expected: str, kind: str, object_name: str) -> None:
    if found != expected:
        raise MisplacedObjectError(
            f"{kind} of another job", object_name=object_name, found=repr(found), expected=repr(expected)
        )


def _manifest(message: checkpoint_pb2.Manifest, version: FormatVersion) -> Manifest:
    unknown = unknown_fields_reader(message)
    return Manifest(
        job_id=message.job_id,
        epoch=Epoch(message.epoch),
        generation=Generation(message.generation),
        parent=Epoch(message.parent) if message.HasField("parent") else None,
        started_ms=message.started_ms,
        finished_ms=message.finished_ms,
        min_epoch=Epoch(message.min_epoch),
        watermark_us=message.watermark_us if message.HasField("watermark_us") else None,
        status=CompletionStatus(message.status),
        operators=tuple(_operator(entry, unknown) for entry in message.operators),
        sources=tuple(_source(source, unknown) for source in message.sources),
        sinks=tuple(SinkPreCommit(sink.sink_id, sink.data, unknown(sink)) for sink in message.sinks),
        engine_files=tuple(NamedBytes(file.name, file.data, unknown(file)) for file in message.engine_files),
        engine_logs=tuple(
            EngineLog(log.name, tuple(object_ref(piece) for piece in log.pieces), unknown(log))
            for log in message.engine_logs
        ),
        state_id=message.state_id,
        went_back=_went_back(message.went_back, unknown) if message.HasField("went_back") else None,
        forked_from=_forked_from(message.forked_from, unknown) if message.HasField("forked_from") else None,
        parent_parts=tuple(
            PartDuration(each.part, each.microseconds, unknown(each)) for each in message.parent_parts
        ),
        format=version,
        unknown_fields=unknown(message),
    )


def _went_back_message(value: WentBack | None) -> checkpoint_pb2.WentBack | None:
    if value is None:
        return None
    message = checkpoint_pb2.WentBack(to=value.to, epoch=value.epoch)
    return with_unknown_fields(message, value.unknown_fields)


def _went_back(message: checkpoint_pb2.WentBack, unknown: UnknownFields) -> WentBack:
    return WentBack(Epoch(message.to), Epoch(message.epoch), unknown(message))


def _forked_from_message(value: ForkedFrom | None) -> checkpoint_pb2.ForkedFrom | None:
    if value is None:
        return None
    message = checkpoint_pb2.ForkedFrom(job_id=value.job_id, epoch=value.epoch, is_muted=value.is_muted)
    return with_unknown_fields(message, value.unknown_fields)


def _part_message(value: PartDuration) -> checkpoint_pb2.PartDuration:
    message = checkpoint_pb2.PartDuration(part=value.part, microseconds=value.microseconds)
    return with_unknown_fields(message, value.unknown_fields)


def _forked_from(message: checkpoint_pb2.ForkedFrom, unknown: UnknownFields) -> ForkedFrom:
    job_id = require_name("job", message.job_id)
    return ForkedFrom(job_id, Epoch(message.epoch), message.is_muted, unknown(message))


def _subtask(
    message: checkpoint_pb2.SubtaskCheckpointMetadata, version: FormatVersion, object_name: str
) -> SubtaskMetadata:
    unknown = unknown_fields_reader(message)
    return SubtaskMetadata(
        job_id=message.job_id,
        operator_id=message.operator_id,
        subtask_index=message.subtask_index,
        parallelism=message.parallelism,
        epoch=Epoch(message.epoch),
        generation=Generation(message.generation),
        attempt=message.attempt,
        key_range=key_range(message.key_range),
        started_ms=message.started_ms,
        finished_ms=message.finished_ms,
        watermark_us=message.watermark_us if message.HasField("watermark_us") else None,
        then_stop=message.then_stop,
        bytes_written=message.bytes_written,
        configs=tuple(table_config(config, object_name, unknown) for config in message.configs),
        tables=tuple(table_files(files, object_name, unknown) for files in message.tables),
        format=version,
        unknown_fields=unknown(message),
    )


def _operator_message(entry: OperatorEntry) -> checkpoint_pb2.OperatorCheckpointMetadata:
    message = checkpoint_pb2.OperatorCheckpointMetadata(
        operator_id=entry.operator_id,
        parallelism=entry.parallelism,
        subtasks=[_entry_message(subtask) for subtask in entry.subtasks],
        watermark_us=entry.watermark_us,
    )
    return with_unknown_fields(message, entry.unknown_fields)


def _operator(message: checkpoint_pb2.OperatorCheckpointMetadata, unknown: UnknownFields) -> OperatorEntry:
    return OperatorEntry(
        operator_id=message.operator_id,
        parallelism=message.parallelism,
        subtasks=tuple(_entry(subtask, unknown) for subtask in message.subtasks),
        watermark_us=message.watermark_us if message.HasField("watermark_us") else None,
        unknown_fields=unknown(message),
    )


def _entry_message(entry: SubtaskEntry) -> checkpoint_pb2.SubtaskEntry:
    summary = entry.summary
    message = checkpoint_pb2.SubtaskEntry(
        subtask_index=entry.subtask_index,
        key_range=key_range_message(entry.key_range),
        metadata=object_ref_message(entry.metadata),
        summary=checkpoint_pb2.StateSummary(
            file_count=summary.file_count,
            row_count=summary.row_count,
            size_bytes=summary.size_bytes,
            bytes_written=summary.bytes_written,
        ),
        watermark_us=entry.watermark_us,
    )
    return with_unknown_fields(message, entry.unknown_fields)


def _entry(message: checkpoint_pb2.SubtaskEntry, unknown: UnknownFields) -> SubtaskEntry:
    summary = message.summary
    return SubtaskEntry(
        subtask_index=message.subtask_index,
        key_range=key_range(message.key_range),
        metadata=object_ref(message.metadata),
        summary=StateSummary(
            summary.file_count, summary.row_count, summary.size_bytes, summary.bytes_written
        ),
        watermark_us=message.watermark_us if message.HasField("watermark_us") else None,
        unknown_fields=unknown(message),
    )


def _source_message(source: SourceOffsets) -> checkpoint_pb2.SourceOffsets:
    message = checkpoint_pb2.SourceOffsets(
        source=source.source,
        offsets=source.offsets,
        watermark_us=source.watermark_us,
        rows_at_us=source.rows_at_us,
    )
    return with_unknown_fields(message, source.unknown_fields)


def _source(message: checkpoint_pb2.SourceOffsets, unknown: UnknownFields) -> SourceOffsets:
    return SourceOffsets(
        source=message.source,
        offsets=message.offsets,
        watermark_us=message.watermark_us if message.HasField("watermark_us") else None,
        rows_at_us=message.rows_at_us if message.HasField("rows_at_us") else None,
        unknown_fields=unknown(message),
    )


def _sink_message(sink: SinkPreCommit) -> checkpoint_pb2.SinkPreCommit:
    return with_unknown_fields(
        checkpoint_pb2.SinkPreCommit(sink_id=sink.sink_id, data=sink.data), sink.unknown_fields
    )


def _engine_file_message(file: NamedBytes) -> checkpoint_pb2.NamedBytes:
    return with_unknown_fields(checkpoint_pb2.NamedBytes(name=file.name, data=file.data), file.unknown_fields)


def _engine_log_message(log: EngineLog) -> checkpoint_pb2.EngineLog:
    message = checkpoint_pb2.EngineLog(
        name=log.name, pieces=[object_ref_message(piece) for piece in log.pieces]
    )
    return with_unknown_fields(message, log.unknown_fields)
