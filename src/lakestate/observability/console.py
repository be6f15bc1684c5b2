"""Whether a query shows its progress unasked: to people who sit in front of it, and to nobody else."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from lakestate.errors import InvalidInputError
from lakestate.observability.listeners import Listener
from lakestate.observability.progress_line import ProgressLine

PROGRESS = "LAKESTATE_PROGRESS"
"""The environment variable: `0` never shows progress, `1` always."""

_MEANINGS = {
    "0": False,
    "false": False,
    "off": False,
    "no": False,
    "1": True,
    "true": True,
    "on": True,
    "yes": True,
}


def with_progress(listeners: Sequence[Listener], wanted: bool | None) -> tuple[Listener, ...]:
    """The listeners, and a line for people unless there is one or nobody would see it.

    `wanted` decides if it is given; otherwise the environment variable, and then whether standard error is
    a terminal or the output of a notebook.
    """
    if any(isinstance(listener, ProgressLine) for listener in listeners):
        return tuple(listeners)
    if wanted is None:
        wanted = _said_by(os.environ)
    if wanted is None:
        wanted = is_watched(sys.stderr)
    return (*listeners, ProgressLine()) if wanted else tuple(listeners)


def is_watched(stream: TextIO | None) -> bool:
    """Whether people see at once what is written to a stream."""
    return stream is not None and (stream.isatty() or _is_notebook())


def _said_by(environment: Mapping[str, str]) -> bool | None:
    text = environment.get(PROGRESS, "").strip().lower()
    if not text:
        return None
    if text not in _MEANINGS:
        raise InvalidInputError(
            "not a value of this environment variable",
            object_name=PROGRESS,
            found=repr(text),
            expected=", ".join(_MEANINGS),
        )
    return _MEANINGS[text]


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whose standard error is no terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
