"""Which finished files can take the place of the small files that show their rows. Pure.

A small file is in the table until then, and everybody may touch it: compact it, delete rows of it. Then the
large file would bring rows back, or add them twice. It is left out: all of its rows are, or were, visible.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakestate.errors import CorruptionError
from lakestate.sinks.files.pre_commit import FilePreCommit

_log = logging.getLogger("lakestate.files")


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The small files that a table holds."""

    rows: Mapping[str, int | None]
    """Of each one that is in the table, or that the commit adds; None if the table does not say."""

    def reason_touched(self, file: FilePreCommit) -> str | None:
        """How rows of its small files were deleted although these are in the table; None if none were."""
        return None

    def reason_to_stay(self, file: FilePreCommit) -> str | None:
        """Why the file cannot take their place; None if it can."""
        missing = [path for path in file.replaces if path not in self.rows]
        if missing:
            return f"{missing[0]} is no longer in the table"
        touched = self.reason_touched(file)
        if touched is not None:
            return touched
        counts = [self.rows[path] for path in file.replaces]
        if None in counts:
            return f"the table does not say how many rows {file.replaces[counts.index(None)]} has"
        rows, expected = sum(count or 0 for count in counts), file.statistics.row_count
        if rows < expected:
            raise CorruptionError(
                "small files in the table hold fewer rows than the file that is to take their place",
                object_name=file.path,
                found=f"{rows} rows in {len(file.replaces)} files",
                expected=f"{expected} rows",
            )
        # After going back to an earlier epoch, a small file may hold rows of epochs that were given up.
        return None if rows == expected else f"they hold {rows:,} rows, and it holds {expected:,}"


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What a commit does with files that are finished."""

    appended: tuple[FilePreCommit, ...] = ()
    replacing: tuple[FilePreCommit, ...] = ()
    """Each takes the place of the small files that it names."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The paths of files whose rows stay in other files, and why."""

    @classmethod
    def of(cls, files: Sequence[FilePreCommit], find: Callable[[set[str]], SmallFiles]) -> FilePlan:
        """What to do with files. `find` looks for small files, by their paths, in the table as it is."""
        appended = tuple(file for file in files if not file.replaces)
        large = [file for file in files if file.replaces]
        if not large:
            return cls(appended)
        new = {file.path: file.statistics.row_count for file in appended}
        found = find({path for file in large for path in file.replaces if path not in new})
        found = replace(found, rows={**found.rows, **new})
        reasons = {file.path: found.reason_to_stay(file) for file in large}
        return cls(
            appended,
            tuple(file for file in large if reasons[file.path] is None),
            {path: reason for path, reason in reasons.items() if reason is not None},
        )

    def warn_of_left_out(self) -> None:
        """Name the files that do not get into the table."""
        for path, reason in self.left_out.items():
            _log.warning(
                "the rows of %s stay in the files that show them: %s. It is not in the table", path, reason
            )
