"""Finding the code of a job by `module:name`, for what stored state does not say: its sinks and operators."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.protocol.names import did_you_mean
from lakestate.sinks.sink import Sink


def load_named(spec: str) -> object:
    """The object of a module. A function is called without arguments, and what it returns counts.

    Modules are looked for in the working directory first, as `python -m` does.
    """
    module_name, colon, name = spec.partition(":")
    if not colon or not module_name or not name:
        raise InvalidInputError(
            "not the name of a pipeline", found=repr(spec), expected="module:name, such as shop.jobs:pipeline"
        )
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise
        raise NotFoundError(
            "no such module",
            object_name=module_name,
            action="run the command where python -c 'import …' finds it, or set PYTHONPATH",
        ) from missing
    if not hasattr(module, name):
        public = [each for each in dir(module) if not each.startswith("_")]
        raise NotFoundError(
            f"module {module_name} has no such name", object_name=name, action=did_you_mean(name, public)
        )
    found = getattr(module, name)
    is_function = callable(found) and not isinstance(found, type) and not hasattr(found, "dry_run")
    return found() if is_function else found


def load_sinks(spec: str | None) -> dict[str, Sink]:
    """The sinks of a pipeline, or of a dict, by id; none if no code is named."""
    if spec is None:
        return {}
    found = load_named(spec)
    sinks = found if isinstance(found, Mapping) else getattr(found, "sinks", None)
    if not isinstance(sinks, Mapping) or not all(isinstance(each, Sink) for each in sinks.values()):
        raise InvalidInputError(
            f"{spec} is neither a pipeline nor a dict of sinks by id", found=type(found).__name__
        )
    return dict(sinks)
