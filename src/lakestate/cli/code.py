"""Finding the code of a job by `module:name`, for what stored state does not say: its sinks and operators."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from lakestate.coordinator.commit import Committers
from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.protocol.names import did_you_mean
from lakestate.runtime.sink_step import sink_committer
from lakestate.sinks.sink import Sink
from lakestate.tables.contract import Table

if TYPE_CHECKING:
    from lakestate.spark.dry_run import PipelineDryRun


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
    return _sinks_of(load_named(spec), spec)


def _sinks_of(found: object, spec: str) -> dict[str, Sink]:
    sinks = found if isinstance(found, Mapping) else getattr(found, "sinks", None)
    if not isinstance(sinks, Mapping) or not all(isinstance(each, Sink) for each in sinks.values()):
        raise InvalidInputError(
            f"{spec} is neither a pipeline nor a dict of sinks by id", found=type(found).__name__
        )
    return dict(sinks)


class PipelineCode(Protocol):
    """What commands need of a `lakestate.Pipeline`: Spark is not imported for the sake of the type."""

    @property
    def job_id(self) -> str:
        """The job that it runs."""
        ...

    @property
    def backend(self) -> ParquetBackend:
        """Where its state is."""
        ...

    @property
    def sinks(self) -> dict[str, Sink]:
        """Its sinks, by id."""
        ...

    def committers(self) -> Committers:
        """Those of sinks and operators."""
        ...

    def declared_tables(self) -> Mapping[str, Sequence[Table]]:
        """The tables of its operators and sinks, by id."""
        ...

    def dry_run(self, *, drop: Collection[str] = (), reopen: bool = False) -> PipelineDryRun:
        """Everything that would keep it from starting."""
        ...


def load_pipeline(spec: str) -> PipelineCode:
    """The pipeline of a module."""
    found = load_named(spec)
    if not hasattr(found, "dry_run") or isinstance(found, type):
        raise InvalidInputError(
            f"{spec} is not a pipeline",
            found=found.__name__ if isinstance(found, type) else type(found).__name__,
            expected="a Pipeline, or a function without arguments that makes one",
        )
    return cast(PipelineCode, found)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The sinks of a job, and what commits them and its operators."""

    sinks: dict[str, Sink]
    committers: Committers


def load_outputs(spec: str | None) -> Outputs:
    """The outputs of a pipeline, or of a dict of sinks by id."""
    if spec is None:
        return Outputs({}, {})
    found = load_named(spec)
    if hasattr(found, "committers"):
        code = cast(PipelineCode, found)
        return Outputs(code.sinks, code.committers())
    sinks = _sinks_of(found, spec)
    return Outputs(sinks, {name: sink_committer(sink) for name, sink in sinks.items()})
