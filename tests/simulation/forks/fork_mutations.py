"""Deliberate bugs of forks and of the tags that keep what others share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.mutations import Mutation, Patch

from lakestate.coordinator.retention import forks, retain
from lakestate.job import objects
from lakestate.job.objects import JobObjects
from lakestate.protocol import retention
from lakestate.protocol.paths import ObjectName, parse_object_name
from lakestate.protocol.records import GenerationRecord, TagRecord
from lakestate.protocol.values import FileRef


def _forget_tags(patch: Patch, is_forgotten: Callable[[TagRecord], bool]) -> None:
    real = JobObjects.read_tags

    def read_tags(job: JobObjects) -> tuple[TagRecord, ...]:
        return tuple(tag for tag in real(job) if not is_forgotten(tag))

    patch.setattr(JobObjects, "read_tags", read_tags)


def forget_forks(patch: Patch) -> None:
    """Retention of the parent does not see the tags of forks."""
    _forget_tags(patch, lambda tag: bool(tag.fork))


def forget_readers(patch: Patch) -> None:
    """Retention does not see the tags of registered readers."""
    _forget_tags(patch, lambda tag: tag.name.startswith("reader-"))


def release_early(patch: Patch) -> None:
    """A fork releases its parent while its epochs still refer to it."""
    real = forks.release_parent

    def release(job: JobObjects, claim: GenerationRecord, needed: Any) -> None:
        real(job, claim, ())

    patch.setattr(retain, "release_parent", release)


def delete_what_the_parent_owns(patch: Patch) -> None:
    """Retention of a fork deletes what goes with its epochs, whoever owns it."""

    def parse(path: str) -> ObjectName:
        return replace(parse_object_name(path), origin=None)

    patch.setattr(retention, "parse_object_name", parse)


def take_files_for_its_own(patch: Patch) -> None:
    """A fork looks for the files of its parent below its own root."""

    def unchanged(files: Sequence[FileRef], origin: str) -> tuple[FileRef, ...]:
        return tuple(files)

    patch.setattr(objects, "_with_origins", unchanged)


FORKS: Sequence[Mutation] = (
    Mutation("retention forgets forks", forget_forks),
    Mutation("retention forgets registered readers", forget_readers),
    Mutation("a fork releases its parent early", release_early),
    Mutation("retention of a fork deletes what its parent owns", delete_what_the_parent_owns),
    Mutation("a fork takes files of its parent for its own", take_files_for_its_own),
)
