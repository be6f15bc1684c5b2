"""The paths that file sources of a pipeline read: no other file may be named to Spark.

Spark tells a path only in the text of its plans, and which file system it means only when it looks there:
so the plan is explained, and a file that cannot exist is asked for. That happens once for each driver, and
only if a source keeps a log of files.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from functools import cached_property
from threading import get_ident
from typing import TYPE_CHECKING, TextIO
from uuid import uuid4

from pyspark.errors import PySparkException

from lakestate.errors import CorruptionError
from lakestate.spark.checkpoint.path_pattern import PathPattern, split_pattern
from lakestate.spark.graph.nodes import SourceNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE_SOURCE = re.compile(r"StreamingRelation FileSource\[(.*?)\], \[")


class SourcePaths:
    """The paths of all file sources of a pipeline, and those that the user added."""

    def __init__(self, sources: Sequence[SourceNode]) -> None:
        self._sources = tuple(sources)

    def check(self, log: str, path: str) -> None:
        """Raise CorruptionError if a log names a file that is not below a path of a source."""
        if not any(pattern.contains(path) for pattern in self._patterns):
            shown = ", ".join(map(str, self._patterns)) or "no path that Spark tells"
            raise CorruptionError(
                "the log of a source names a file that the source does not read",
                object_name=log,
                found=path[:300],
                expected=f"a file below {shown}",
                action="if the input was moved, pass its earlier path: source(…, file_paths=[…]); otherwise "
                "restore the manifest, or start from an intact epoch with start(from_epoch=…)",
            )

    @cached_property
    def _patterns(self) -> tuple[PathPattern, ...]:
        return tuple(dict.fromkeys(self._find_patterns()))

    def _find_patterns(self) -> Iterator[PathPattern]:
        for source in self._sources:
            # The text holds each stage of the plan, and asking Spark about a path takes a tenth of a second.
            told = dict.fromkeys(_FILE_SOURCE.findall(explain_plan(source.frame)))
            for path in [*told, *source.file_paths]:
                base, rest = split_pattern(path)
                qualified = _qualify(source.frame.sparkSession, base)
                if qualified is not None:
                    yield PathPattern(qualified, rest)


def _qualify(session: SparkSession, folder: str) -> str | None:
    """A folder with its file system, as Spark understands it; None if Spark does not tell."""
    name = f".lakestate-{uuid4().hex}"
    asked = f"{folder.rstrip('/')}/{name}" if folder else name
    with suppress(PySparkException):
        try:
            session.read.option("ignoreMissingFiles", "false").schema("value string").text(asked)
        except PySparkException as missing:
            told = (missing.getMessageParameters() or {}).get("path", "")
            if told.endswith(f"/{name}"):
                return told[: -len(name) - 1] or "/"
    return None


def explain_plan(frame: DataFrame) -> str:
    """The text of the plan, which Spark only prints."""
    own, text = get_ident(), io.StringIO()
    with redirect_stdout(_OwnLines(sys.stdout, text, lambda: get_ident() == own)):
        frame.explain(extended=True)
    return text.getvalue()


class _OwnLines(io.TextIOBase):
    """Keeps what one thread prints, and lets through what others print meanwhile."""

    def __init__(self, others: TextIO, own: io.StringIO, is_own: Callable[[], bool]) -> None:
        self._others = others
        self._own = own
        self._is_own = is_own

    def write(self, text: str) -> int:
        return (self._own if self._is_own() else self._others).write(text)

    def flush(self) -> None:
        self._others.flush()
