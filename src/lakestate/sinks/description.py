"""A sink on one line: where it writes, and the settings that are not at their defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any


def describe_sink(sink: Any, location: str) -> str:
    """A sink that is a dataclass. `location` names the field that says where it writes.

    Of a mapping only the names are shown: values may be secrets.

    >>> import lakestate as ls
    >>> ls.ParquetSink("s3://bucket/out", partition_by=["day"], options={"secret_access_key": "s3cr3t"})
    ParquetSink('s3://bucket/out', options=<secret_access_key>, partition_by=['day'])
    """
    settings = [each for each in fields(sink) if each.init and each.name != location]
    shown = [repr(getattr(sink, location)), *_changed(sink, settings)]
    return f"{type(sink).__name__}({', '.join(shown)})"


def _changed(sink: Any, settings: list[Field[Any]]) -> Iterator[str]:
    for setting in settings:
        value = getattr(sink, setting.name)
        factory = setting.default_factory
        default = setting.default if factory is MISSING else factory()
        if isinstance(value, Mapping):
            if value:
                yield f"{setting.name}=<{', '.join(sorted(value))}>"
        elif value != default:
            yield f"{setting.name}={value!r}"
