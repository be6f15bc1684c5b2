"""`GlobalKeyedView`: what operator code holds to read and write a `GlobalKeyedTable`.

Entries are held in memory as decoded Python objects, loaded when first needed. Writing is one insertion
into a dict; types are checked and values encoded at the checkpoint.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator
from typing import Any

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import TableConfig, TableFiles
from lakestate.protocol.rescale import carries
from lakestate.protocol.values import Epoch
from lakestate.tables.context import TableContext
from lakestate.tables.contract import EpochCheckpointer, View, require_checkpointer
from lakestate.tables.global_keyed.checkpointer import GlobalKeyedCheckpointer
from lakestate.tables.global_keyed.files import entry_rows, live_entries, newest_first
from lakestate.tables.global_keyed.value_codec import EntryCodec

_ABSENT: Any = object()


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
        self._written: dict[Any, Any] = {}
        """Everything inserted since the last checkpoint; hides what is stored."""
        self._loaded: dict[Any, Any] | None = None if files.files else {}
        """What the files hold, without what was removed since; None until it is needed."""
        self._removed: dict[Any, bytes] = {}
        """Keys in the files that were removed since the last checkpoint, with their stored bytes."""
        self._commit_data: bytes | None = None
        self._first_epoch: Epoch | None = None
        """The first epoch stored through this view. It refers to all files that were opened."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or the default."""
        found = self._written.get(key, _ABSENT)
        return self._load().get(key, default) if found is _ABSENT else found

    def insert(self, key: Any, value: Any) -> None:
        """Set the value of a key. It is stored with the next checkpoint, which checks its type."""
        self._written[key] = value

    def remove(self, key: Any) -> Any:
        """Remove a key, and return the value it had; None if there was none.

        Raises InvalidInputError for a key that equals a stored one and is of another class, as
        True equals 1.
        """
        stored = self._load()
        if key in stored:
            self._removed[key] = self._codec.encode_removed_key(key)
        return self._written.pop(key, stored.pop(key, None))

    def get_all(self) -> dict[Any, Any]:
        """All entries, in a dict of their own."""
        return {**self._load(), **self._written}

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
        return key in self._written or key in self._load()

    def __len__(self) -> int:
        stored = self._load()
        return len(stored) + len(self._written) - len(stored.keys() & self._written.keys())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_all())

    def checkpoint_into(self, checkpointer: EpochCheckpointer) -> None:
        """Hand over what was written since the last checkpoint, if all of it can be stored."""
        checkpointer = require_checkpointer(checkpointer, GlobalKeyedCheckpointer)
        self._first_epoch = self._first_epoch or checkpointer.epoch
        checkpointer.commit_data = self._commit_data
        removed = [stored for key, stored in self._removed.items() if key not in self._written]
        if self._written or removed:
            keys, values = self._codec.encode(self._written)
            checkpointer.insert_data(entry_rows([*keys, *removed], [*values, *[None] * len(removed)]))

    def begin_next_epoch(self, files: TableFiles, context: TableContext) -> None:
        """Continue with the next epoch."""
        # The files of other subtasks are not among those this subtask stored, and are still valid.
        others = [file for file in self._files if not carries(context.task, file)]
        self._files = newest_first([*files.files, *others])
        if self._loaded:
            self._loaded.update(self._written)
        elif self._loaded is not None:
            self._loaded = self._written
        self._written, self._removed = {}, {}
        self._context = context
        self._commit_data = None

    def forget_before(self, min_epoch: Epoch) -> None:
        """Load what other subtasks stored before retention may remove it.

        After this view's first epoch their files may have been merged. Then no epoch from `min_epoch`
        on refers to files that are not loaded yet.
        """
        if self._first_epoch is not None and min_epoch > self._first_epoch and self._reads_others():
            self._load()

    def _reads_others(self) -> bool:
        return any(not carries(self._context.task, file) for file in self._files)

    def _load(self) -> dict[Any, Any]:
        if self._loaded is None:
            self._loaded = live_entries(self._files, self._config, self._codec, self._context)
        return self._loaded
