"""A declared table on one line, as a user would write it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from lakestate.protocol.metadata import TableConfig


def describe_table(kind: str, config: TableConfig) -> str:
    """What the declaration says, without what it leaves at its default.

    >>> import lakestate as ls
    >>> ls.KeyedTable("totals", key="user string", value="n bigint", ttl="1 hour", version=2)
    KeyedTable('totals', key='user string', value='n bigint', ttl='1:00:00', version=2)
    """
    key, value = (", ".join(map(str, columns)) for columns in (config.key_columns, config.value_columns))
    return describe_typed_table(kind, config, key, value)


def describe_typed_table(kind: str, config: TableConfig, key: str, value: str) -> str:
    """The same, with other texts for key and value."""
    return f"{kind}({', '.join([repr(config.name), *_settings(config, key, value)])})"


def _settings(config: TableConfig, key: str, value: str) -> Iterator[str]:
    if key:
        yield f"key={key!r}"
    if value:
        yield f"value={value!r}"
    if config.routing_columns not in ((), tuple(column.name for column in config.key_columns)):
        yield f"route_by={list(config.routing_columns)}"
    if config.time_column is not None:
        yield f"time={config.time_column!r}"
    for name, duration_us in (("ttl", config.ttl_us), ("retention", config.retention_us)):
        if duration_us is not None:
            yield f"{name}={str(timedelta(microseconds=duration_us))!r}"
    if config.state_version != 1:
        yield f"version={config.state_version}"
    if config.uses_two_phase_commit:
        yield "two_phase_commit=True"
