"""The options of `format("lakestate")`: text as users write it in Spark, checked and typed.

Spark passes options with their names in lower case. Nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from lakestate.config import StoreConfig, duration_us, store_url
from lakestate.errors import InvalidInputError
from lakestate.protocol.names import require_name
from lakestate.protocol.retention import RetentionPolicy
from lakestate.sinks.files.sink import FileSink
from lakestate.sinks.formats.format import FileFormat
from lakestate.sinks.formats.parquet.format import ParquetFormat
from lakestate.sinks.formats.registry import file_formats, require_file_format
from lakestate.sinks.partitioning.event_time import EventTime
from lakestate.sinks.rolling import Roll
from lakestate.sinks.text_options import (
    TextOption,
    declared_options,
    inferred_options,
    parse_flag,
    parse_number,
)
from lakestate.storage.opening import SCHEMES

STORE_PREFIX = "store."
"""Options with this prefix are passed to the object store of output and state, without the prefix."""

STATE_FOLDER = "lakestate"
"""The default location of the state, below the query's checkpoint location."""

_HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True)
class DataSourceOptions:
    """The options of a query, checked and typed."""

    sink: FileSink
    state: StoreConfig
    job_id: str
    event_time: str | None = None
    delay_us: int = 0
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    cache_dir: str | None = None
    checkpoint: StoreConfig | None = None
    """Where Spark's own logs of the query are, if they can be read."""
    log_files: bool = False
    """Print what happens to files: the process that commits has no logging of the user's."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DataSourceOptions:
        """Check and parse all options. Case does not matter in names.

        >>> found = DataSourceOptions.of({"path": "/data/out", "checkpointLocation": "/data/checkpoint"})
        >>> found.sink.url, found.state.url
        ('file:///data/out', 'file:///data/checkpoint/lakestate')
        """
        given = {name.lower(): value for name, value in options.items()}
        store = {
            name.removeprefix(STORE_PREFIX): value
            for name, value in given.items()
            if name.startswith(STORE_PREFIX)
        }
        if "shufflebypartition" in given:
            raise InvalidInputError(
                "a data source cannot ask Spark to shuffle rows",
                object_name="option shuffleByPartition",
                action="use lakestate.write_stream(df, shuffle_by_partition=8, …), or df.repartition(8, …)",
            )
        _check_known((name for name in given if not name.startswith(STORE_PREFIX)), _format_class(given))
        url = location_url(_require(given, "path", "where the files go"))
        state = _state_url(given)
        return cls(
            sink=_sink(url, given, store),
            state=StoreConfig(state, {} if _is_local(state) else store),
            job_id=_job_id(given, state),
            event_time=given.get("eventtime"),
            delay_us=_parse_option(given, "watermarkDelay", duration_us, 0),
            retention=_parse_option(
                given, "keepEpochs", lambda text: RetentionPolicy(parse_number(text)), RetentionPolicy()
            ),
            cache_dir=given.get("cachedir"),
            checkpoint=_checkpoint(given, store),
            log_files=_parse_option(given, "logFiles", parse_flag, False),
        )


def _sink(url: str, given: Mapping[str, str], store: Mapping[str, str]) -> FileSink:
    format_class = _format_class(given)
    partition_by = _partition_by(given.get("partitionby", ""))
    if any(isinstance(part, EventTime) for part in partition_by) and "eventtime" not in given:
        raise InvalidInputError(
            "files are partitioned by event time, but no column is named",
            object_name="option partitionBy",
            found=given["partitionby"],
            action="name the timestamp column with the option eventTime",
        )
    return FileSink(
        url,
        format=format_class(**_parse_options(given, inferred_options(format_class))),
        partition_by=partition_by,
        roll=_roll(given),
        options=None if _is_local(url) else store,
        **_parse_options(given, declared_options(FileSink)),
    )


def _format_class(given: Mapping[str, str]) -> type[FileFormat]:
    try:
        return require_file_format(given.get("format", ParquetFormat.name).lower())
    except InvalidInputError as cause:
        raise InvalidInputError(
            cause.summary,
            object_name="option format",
            found=cause.found,
            expected=cause.expected,
            action=cause.action,
        ) from cause


def _roll(given: Mapping[str, str]) -> Roll:
    found = _parse_options(given, declared_options(Roll))
    if found.get("past_watermark") is not None and "eventtime" not in given:
        raise InvalidInputError(
            "roll by watermark needs rows with event time",
            object_name="option rollPastWatermark",
            action="name the timestamp column with the option eventTime",
        )
    try:
        return Roll(**found)
    except InvalidInputError as cause:
        raise _bad_value_error("roll…", found, cause) from cause


def _partition_by(text: str) -> tuple[str | EventTime, ...]:
    """Parse column names and patterns of event time, separated by commas. A pattern contains a %."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tuple(EventTime(part) if "%" in part else part for part in parts)
    except InvalidInputError as cause:
        raise _bad_value_error("partitionBy", text, cause) from cause


def _state_url(given: Mapping[str, str]) -> str:
    if "statelocation" in given:
        return location_url(given["statelocation"])
    if "checkpointlocation" not in given:
        raise InvalidInputError(
            "no option says where to keep the state of the sink",
            object_name="option checkpointLocation",
            action="set checkpointLocation as an option of this query, or stateLocation",
        )
    checkpoint = location_url(given["checkpointlocation"])
    if not _is_local(checkpoint) and urlsplit(checkpoint).scheme not in SCHEMES:
        raise InvalidInputError(
            "state cannot be kept beside Spark's checkpoint at this location",
            object_name=checkpoint,
            expected="a local path, or a URL of s3, gs, az or abfss",
            action="set the option stateLocation",
        )
    return f"{checkpoint}/{STATE_FOLDER}"


def _checkpoint(given: Mapping[str, str], store: Mapping[str, str]) -> StoreConfig | None:
    """Where Spark's own logs are: on a local disk, or beside the state.

    Other locations are opened by Spark, and we may know neither their kind nor their credentials.
    """
    if "checkpointlocation" not in given:
        return None
    url = location_url(given["checkpointlocation"])
    if _is_local(url):
        return StoreConfig(url)
    return None if "statelocation" in given else StoreConfig(url, store)


def _job_id(given: Mapping[str, str], state: str) -> str:
    # File names contain the job id, and clean-up finds files by it: two queries that write to one
    # directory must not share it.
    digest = blake2b(state.encode(), digest_size=6).hexdigest()
    return require_name("job", given.get("jobid", f"sink-{digest}"))


def location_url(location: str) -> str:
    """A location in Spark's notation, as a URL for `open_store`.

    >>> location_url("s3a://bucket/out/"), location_url("file:/data/out"), location_url("/data/o t")
    ('s3://bucket/out', 'file:///data/out', 'file:///data/o%20t')
    """
    scheme, colon, rest = store_url(location).partition(":")
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}{colon}{rest}".rstrip("/")


def _is_local(url: str) -> bool:
    return url.startswith("file://")


def _require(given: Mapping[str, str], name: str, what: str) -> str:
    value = given.get(name.lower(), "")
    if not value:
        raise InvalidInputError(f"no option says {what}", object_name=f"option {name}", action="set it")
    return value


def _parse_option(
    given: Mapping[str, str], option: str, read: Callable[[str], Any], default: Any = None
) -> Any:
    text = given.get(option.lower())
    if text is None:
        return default
    try:
        return read(text)
    except InvalidInputError as cause:
        raise _bad_value_error(option, text, cause) from cause


def _parse_options(given: Mapping[str, str], options: Iterable[TextOption]) -> dict[str, Any]:
    """The values of the given options, by the fields that they set."""
    return {
        option.field: _parse_option(given, option.name, option.parse)
        for option in options
        if option.name.lower() in given
    }


def _bad_value_error(option: str, found: object, cause: InvalidInputError) -> InvalidInputError:
    return InvalidInputError(
        f"bad value of an option: {cause.summary}",
        object_name=f"option {option}",
        found=repr(found) if isinstance(found, str) else found,
        expected=cause.expected,
    )


_OTHER_OPTIONS = (
    "path",
    "checkpointLocation",
    "stateLocation",
    "jobId",
    "format",
    "partitionBy",
    "eventTime",
    "watermarkDelay",
    "keepEpochs",
    "cacheDir",
    "logFiles",
)

_SINK_OPTIONS = tuple(option.name for settings in (FileSink, Roll) for option in declared_options(settings))


def known_options(format_class: type[FileFormat]) -> tuple[str, ...]:
    """The names of all options of a query that writes a format, as users write them."""
    return (*_OTHER_OPTIONS, *_SINK_OPTIONS, *(option.name for option in inferred_options(format_class)))


def _check_known(names: Iterable[str], format_class: type[FileFormat]) -> None:
    known = known_options(format_class)
    unknown = sorted(set(names) - {name.lower() for name in known})
    for name in unknown:
        _check_no_other_format_has(name, format_class)
    if unknown:
        raise InvalidInputError(
            "unknown option",
            object_name=", ".join(unknown),
            expected=", ".join(sorted(known, key=str.lower)) + f", or {STORE_PREFIX}… for the object store",
        )


def _check_no_other_format_has(name: str, format_class: type[FileFormat]) -> None:
    owners = {
        other.name: option.name
        for other in file_formats().values()
        for option in inferred_options(other)
        if option.name.lower() == name
    }
    if owners:
        raise InvalidInputError(
            f"the format {format_class.name} has no such option",
            object_name=f"option {next(iter(owners.values()))}",
            expected=f"format {' or '.join(owners)}",
        )
