"""Names that a shell completes: jobs, operators, tables, tags and epochs.

Somebody is typing: what cannot be read in time, or at all, completes to nothing, and nothing is said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from threading import Thread
from typing import Any

import click
from click.shell_completion import CompletionItem

from lakestate.cli.session import Session
from lakestate.inspection import EpochState
from lakestate.job.named_epochs import NEWEST

PATIENCE_SECONDS = 2.0
"""How long a shell waits at most."""

NAMES_MAX = 100
EPOCHS_MAX = 20
"""How many names are offered; of epochs, the newest."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(find: Callable[[Session, Mapping[str, Any]], Iterable[str]]) -> Completer:
    """What click calls, from what finds names for a session and the arguments so far."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        names = _find_in_time(lambda: find(context.obj, _given(context)))
        fitting = (name for name in names if name.startswith(begun))
        return [CompletionItem(name) for name in islice(fitting, NAMES_MAX)]

    return complete


def _given(context: click.Context) -> Mapping[str, Any]:
    """The arguments so far, by name.

    An option that has no value yet ends click's parsing: what stood before it is then left over.
    """
    names = [each.name or "" for each in context.command.params if isinstance(each, click.Argument)]
    left_over = dict(zip(names, context.args, strict=False))
    return left_over | {name: value for name, value in context.params.items() if value is not None}


def _find_in_time(find: Callable[[], Iterable[str]]) -> list[str]:
    found: list[str] = []

    def look() -> None:
        with suppress(Exception):
            found.extend(find())

    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(PATIENCE_SECONDS)
    if looking.is_alive():
        end_process()
    return found


def end_process() -> None:
    """End with no names. Python would wait for threads that wait for the store, and the shell for Python."""
    os._exit(0)


def _jobs(session: Session, given: Mapping[str, Any]) -> Iterable[str]:
    return session.checkpoint.job_names()


def _tags(session: Session, given: Mapping[str, Any]) -> Iterable[str]:
    return sorted(session.checkpoint.job(given["job_id"]).tags())


def _epochs(session: Session, given: Mapping[str, Any]) -> Iterable[str]:
    numbers = session.checkpoint.job(given["job_id"]).open_epochs()
    return [NEWEST, *_tags(session, given), *map(str, reversed(numbers[-EPOCHS_MAX:]))]


def _operators(session: Session, given: Mapping[str, Any]) -> Iterable[str]:
    return [entry.operator_id for entry in _epoch(session, given).manifest.operators]


def _tables(session: Session, given: Mapping[str, Any]) -> Iterable[str]:
    return [info.table for info in _epoch(session, given).tables(given["operator"])]


def _full_tables(session: Session, given: Mapping[str, Any]) -> Iterable[str]:
    return [f"{info.operator}.{info.table}" for info in _epoch(session, given).tables()]


def _epoch(session: Session, given: Mapping[str, Any]) -> EpochState:
    return session.checkpoint.job(given["job_id"]).epoch(given.get("epoch") or NEWEST)


complete_job = _completer(_jobs)
complete_tag = _completer(_tags)
complete_epoch = _completer(_epochs)
complete_operator = _completer(_operators)
complete_table = _completer(_tables)
complete_full_table = _completer(_full_tables)
