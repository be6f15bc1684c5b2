"""Two epochs of a table side by side: which key ranges can differ, and in which pieces they are compared.

A range in which both epochs have the same files is skipped without reading. Where only some files differ,
only keys of those can have changed, unless rows have expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakestate.inspection.state import StateSource
from lakestate.protocol.key_ranges import ALL_KEYS, KEY_MAX, KeyRange
from lakestate.protocol.metadata import TableFiles
from lakestate.protocol.rescale import clip_files
from lakestate.protocol.values import FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.runs.partial_read import key_pieces, narrow_range
from lakestate.tables.runs.table import RunTable, ScannedView

LISTED_KEYS_MAX = 2_000_000
"""If files with more rows than this are new, their keys are not listed first."""


@dataclass(frozen=True)
class Part:
    """What a subtask of one epoch has of a table, for some of its keys."""

    table: RunTable
    files: TableFiles
    context: TableContext

    @cached_property
    def view(self) -> ScannedView:
        """The rows. Nothing is read yet."""
        return self.table.open_view(self.files, self.context)

    @property
    def expired_before_us(self) -> int | None:
        """The time before which its rows have expired."""
        return self.table.expired_before_us(self.files, self.context)

    def rows(self, keys: KeyRange) -> tuple[ScannedView, pa.Table]:
        """The rows with routing keys in a range."""
        part = self.view.stored_part(keys)
        schema = pa.schema([field.with_nullable(True) for field in self.table.layout.row_schema])
        return part, pa.Table.from_batches(part.scan(), schema)


@dataclass(frozen=True)
class Span:
    """A key range that one subtask of each epoch holds. None stands for an epoch without the table."""

    keys: KeyRange
    before: Part | None
    after: Part | None

    def pieces(self, wanted: np.ndarray | None) -> Iterator[KeyRange]:
        """The ranges to compare, each of about one row group, without those in which nothing can differ.

        `wanted` are routing keys, ascending: ranges without any of them are left out.
        """
        if self.is_same or (wanted is not None and narrow_range(self.keys, wanted) is None):
            return
        changed = self._changed_keys
        if wanted is not None:
            changed = wanted if changed is None else np.intersect1d(changed, wanted)
        for keys in self._all_pieces():
            found = keys if changed is None else narrow_range(keys, changed)
            if found is not None:
                yield found

    @cached_property
    def is_same(self) -> bool:
        """Whether both epochs have the same rows, as far as files can tell."""
        return _identities(self.before) == _identities(self.after) and not self._may_have_expired

    @cached_property
    def _may_have_expired(self) -> bool:
        """Whether a row can have expired between the epochs, in either order, without being rewritten."""
        if self.before is None or self.after is None:
            return False
        old, new = self.before.expired_before_us, self.after.expired_before_us
        if old == new:
            return False
        floor = max(each for each in (old, new) if each is not None)
        version = self.after.table.config.state_version
        files = (*self.before.files.files, *self.after.files.files)
        return any(
            file.times is None or file.times.first_us < floor or file.state_version != version
            for file in files
        )

    @cached_property
    def _changed_keys(self) -> np.ndarray | None:
        """The routing keys that may have changed; None if it could be any."""
        if self.before is None or self.after is None or self._may_have_expired:
            return None
        old, new = _identities(self.before), _identities(self.after)
        common = set(old) & set(new)
        if [each for each in old if each in common] != [each for each in new if each in common]:
            return None
        gone = _files_other_than(common, self.before)
        came = _files_other_than(common, self.after)
        if sum(file.row_count for file in (*gone, *came)) > LISTED_KEYS_MAX:
            return None
        return np.union1d(
            self.before.table.routing_keys_in(gone, self.before.context),
            self.after.table.routing_keys_in(came, self.after.context),
        )

    def _all_pieces(self) -> Iterator[KeyRange]:
        """The span, cut where row groups of the largest files of both epochs end."""
        sides = [part.files.files for part in (self.before, self.after) if part is not None]
        ends = {keys.last for files in sides for keys in key_pieces(files)} | {self.keys.last}
        first = self.keys.first
        for last in sorted(ends):
            if first <= last <= self.keys.last:
                yield KeyRange(first, last)
                first = last + 1


def spans_of(before: StateSource | None, after: StateSource | None) -> Iterator[Span]:
    """The key space, cut where a subtask of either epoch begins, in ascending order."""
    sides = [{} if source is None else _by_range(source) for source in (before, after)]
    starts = {0} | {keys.first for parts in sides for keys in parts}
    starts |= {keys.last + 1 for parts in sides for keys in parts if keys.last < KEY_MAX}
    ordered = sorted(starts)
    for first, stop in zip(ordered, [*ordered[1:], ALL_KEYS.last + 1], strict=True):
        keys = KeyRange(first, stop - 1)
        old, new = (_part_of(parts, keys) for parts in sides)
        if old is not None or new is not None:
            yield Span(keys, old, new)


def _by_range(source: StateSource) -> dict[KeyRange, Part]:
    table = source.table
    assert isinstance(table, RunTable)
    return {
        metadata.key_range: Part(table, files, source.context(metadata)) for metadata, files in source.parts
    }


def _part_of(parts: Mapping[KeyRange, Part], keys: KeyRange) -> Part | None:
    for held, part in parts.items():
        if held.contains(keys):
            clipped = replace(part.files, files=clip_files(part.files.files, keys))
            return replace(part, files=clipped)
    return None


def _identities(part: Part | None) -> Sequence[tuple[str, KeyRange, int | None]]:
    return [] if part is None else [_identity(file) for file in part.files.files]


def _identity(file: FileRef) -> tuple[str, KeyRange, int | None]:
    return file.path, file.valid_keys, file.valid_from_us


def _files_other_than(common: set[tuple[str, KeyRange, int | None]], part: Part) -> list[FileRef]:
    return [file for file in part.files.files if _identity(file) not in common]
