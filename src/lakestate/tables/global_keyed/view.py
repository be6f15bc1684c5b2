"""`GlobalKeyedView`: what operator code holds to read and write a `GlobalKeyedTable`.

Reading decodes what it touches (`reader`). Writing takes a note of key and value (`writes`); types are
checked and values encoded at the checkpoint.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator
from typing import Any

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.rescale import carries
from lakestate.protocol.values import Epoch
from lakestate.tables.context import TableContext
from lakestate.tables.contract import EpochCheckpointer, View, require_checkpointer
from lakestate.tables.global_keyed.checkpointer import GlobalKeyedCheckpointer
from lakestate.tables.global_keyed.files import entry_rows
from lakestate.tables.global_keyed.layer import last_of_each_key
from lakestate.tables.global_keyed.packing import pack_bytes
from lakestate.tables.global_keyed.reader import MISSING, EntryReader
from lakestate.tables.global_keyed.value_codec import EntryCodec
from lakestate.tables.global_keyed.writes import WriteLog


class GlobalKeyedView(View):
    """One subtask's view of a `GlobalKeyedTable`: it reads all entries and writes its own.

    Entries that other subtasks write become visible with the next restore. A value that is changed in
    place is stored only if it is inserted again.
    """

    def __init__(
        self, config: TableConfig, codec: EntryCodec, files: TableFiles, context: TableContext
    ) -> None:
        self._config = config
        self._codec = codec
        self._context = context
        self._files = files.files
        self._stored = EntryReader(files.files, config, codec, context)
        """What the files held when the view was opened."""
        self._kept = WriteLog()
        """What earlier epochs of this view wrote, which hides what is stored; MISSING for a removed key."""
        self._written = WriteLog()
        """Everything inserted since the last checkpoint; hides both."""
        self._removed: dict[Any, bytes] = {}
        """Keys of earlier epochs that were removed since the last checkpoint, with their stored bytes."""
        self._commit_data: bytes | None = None
        self._first_epoch: Epoch | None = None
        """The first epoch stored through this view. It refers to all files that were opened."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or the default."""
        found = self._written.entries.get(key, MISSING)
        if found is MISSING:
            found = self._find_earlier(key)
        return default if found is MISSING else found

    def insert(self, key: Any, value: Any) -> None:
        """Set the value of a key. It is stored with the next checkpoint, which checks its type."""
        written = self._written
        written.current[key] = value
        if len(written.current) > written.current_max:
            written.set_aside()

    def remove(self, key: Any) -> Any:
        """Remove a key, and return the value it had; None if there was none.

        Raises InvalidInputError for a key that equals a stored one and is of another class, as
        True equals 1.
        """
        earlier = self._find_earlier(key)
        if earlier is not MISSING:
            self._removed[key] = self._codec.encode_removed_key(key)
        return self._written.entries.pop(key, None if earlier is MISSING else earlier)

    def get_all(self) -> dict[Any, Any]:
        """All entries, in a dict of their own. Every entry is decoded."""
        found = dict(self._stored.load())
        for key, value in self._changes().items():
            if value is MISSING:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def items(self) -> ItemsView[Any, Any]:
        """All keys and values as they are now. The table may be changed during iteration."""
        return self.get_all().items()

    def to_pylist(self) -> list[dict[str, Any]]:
        """All entries as `{"key": …, "value": …}`. For tests and tools."""
        return [{"key": key, "value": value} for key, value in self.items()]

    def set_commit_data(self, data: bytes) -> None:
        """Set the data to commit, in the operator's own format, once the next checkpoint is published."""
        if not self._config.uses_two_phase_commit:
            raise InvalidInputError(
                "table was not declared for two-phase commit",
                object_name=f"table {self._config.name}",
                action="declare it with two_phase_commit=True",
            )
        self._commit_data = bytes(data)

    def __contains__(self, key: Any) -> bool:
        if key in self._written.entries:
            return True
        if key in self._removed:
            return False
        kept = self._kept.entries
        return kept[key] is not MISSING if key in kept else self._stored.contains(key)

    def __len__(self) -> int:
        changes = self._changes()
        there = sum(value is not MISSING for value in changes.values())
        return self._stored.count() + there - sum(map(self._stored.contains, changes))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_all())

    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Hand over what was written since the last checkpoint, if all of it can be stored."""
        checkpointer = require_checkpointer(checkpointer, GlobalKeyedCheckpointer)
        self._first_epoch = self._first_epoch or checkpointer.epoch
        checkpointer.commit_data = self._commit_data
        if self._written or self._removed:
            checkpointer.insert_data(self._changed_rows())

    def begin_next_epoch(self, files: TableFiles, context: TableContext) -> None:
        """Continue with the next epoch."""
        if self._kept or self._removed:
            self._kept.entries.update(dict.fromkeys(self._removed, MISSING) | self._written.entries)
        else:
            self._kept = self._written
        self._written, self._removed = WriteLog(), {}
        self._context = context
        self._commit_data = None

    def forget_before(self, min_epoch: Epoch) -> None:
        """Fetch what other subtasks stored before retention may remove it.

        After this view's first epoch their files may have been merged. Then no epoch from `min_epoch`
        on refers to files that are not fetched yet.
        """
        if self._first_epoch is not None and min_epoch > self._first_epoch and self._reads_others():
            self._stored.fetch()

    def _reads_others(self) -> bool:
        return any(not carries(self._context.task, file) for file in self._files)

    def _find_earlier(self, key: Any) -> Any:
        """The value that a key had at the last checkpoint, unless it was removed since; or MISSING."""
        if key in self._removed:
            return MISSING
        kept = self._kept.entries
        return kept[key] if key in kept else self._stored.find(key)

    def _changes(self) -> dict[Any, Any]:
        """What hides the stored entries; MISSING for a removed key."""
        return {**self._kept.entries, **dict.fromkeys(self._removed, MISSING), **self._written.entries}

    def _changed_rows(self) -> pa.Table:
        """What changed since the last checkpoint, each key once."""
        rows = self._rows_of_parts() if self._written.is_in_parts else None
        if rows is not None:
            return rows
        written = self._written.entries
        keys, values = self._codec.encode(list(written), list(written.values()))
        removed = [stored for key, stored in self._removed.items() if key not in written]
        return pa.concat_tables(
            [entry_rows(keys, values), entry_rows(pack_bytes(removed), pack_bytes([None] * len(removed)))]
        )

    def _rows_of_parts(self) -> pa.Table | None:
        """What was written in parts. None if it is too large, or an entry cannot be stored."""
        try:
            keys, values = self._codec.encode(*self._written.columns())
        except InvalidInputError:
            # It may have been overwritten.
            return None
        return last_of_each_key(entry_rows(keys, values))
