"""A Delta table: deltalake itself on a local folder, and the data files of the job in a simulated store.

Every file that appears in the store is copied to the folder, where deltalake finds it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from lakestate.errors import ConflictError, OutcomeUnknownError, StorageUnavailableError
from lakestate.protocol.values import Epoch
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.delta import epoch_log
from lakestate.sinks.delta.progress import EpochEntry
from lakestate.sinks.delta.sink import DeltaSink
from lakestate.sinks.delta.table import LOG_FOLDER
from lakestate.sinks.files.sink import FileSink
from lakestate.storage import open_store
from lakestate.storage.store import ObjectInfo
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.cluster.world import JOB_ID
from lakestate.testing.simulation.tables.target import KEY, Reach, Rows, SimulatedTable

if TYPE_CHECKING:
    from lakestate.sinks.delta.files import DeltaFiles
    from lakestate.sinks.sink import Sink
    from lakestate.testing.simulation.cluster.world import World

_URL = "s3://simulated/table"
_FAILED = (StorageUnavailableError, OutcomeUnknownError)


class SimulatedDelta(SimulatedTable):
    """The table in its folder."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.folder = Path(tempfile.mkdtemp(prefix="lakestate-simulation-"))
        DeltaTable.create(self.folder, self.schema)

    def sink_by(self, reach: Reach) -> Sink:
        """The sink, which reaches the table through a process."""
        sink = _Sink(_URL, **self.settings(), compression="snappy" if self.is_keyed else "none")
        object.__setattr__(sink, "reach", _DeltaReach(reach, self))
        return sink.for_stream(StreamKind(RowKind.UPSERT, (KEY,)), "the job") if self.is_keyed else sink

    def rows(self) -> Rows:
        """The newest version, as deltalake reads it."""
        return list(DeltaTable(self.folder).to_pyarrow_table().to_pylist())

    def recorded_epoch(self, fingerprint: str) -> int | None:
        """The entry of a transaction."""
        entry = EpochEntry(JOB_ID, fingerprint, Epoch(1), 0)
        return DeltaTable(self.folder).transaction_version(entry.app_id)

    def data_files(self) -> set[str]:
        """The files that the log names."""
        folder = f"{self.folder}/"
        return {each.removeprefix("file://").removeprefix(folder) for each in self._table().file_uris()}

    def appended_files(self) -> list[str]:
        """Those that change data, in the newest commit of the log."""
        log = self.folder / LOG_FOLDER / f"{self._table().version():020d}.json"
        added = [
            action["add"] for line in log.read_text().splitlines() if "add" in (action := json.loads(line))
        ]
        return [each["path"] for each in added if each["dataChange"]]

    def append(self, rows: Rows) -> None:
        """As deltalake writes."""
        write_deltalake(self.folder, self.arrow(rows), mode="append")

    def delete(self, column: str, value: int | str) -> None:
        """Write the files again that have such rows."""
        self._table().delete(f"{column} = {value!r}")

    def compact(self) -> None:
        """Merge files."""
        self._table().optimize.compact()

    def tidy(self) -> None:
        """Leave a checkpoint, from which readers begin."""
        self._table().create_checkpoint()

    def values_replaced(self) -> Sequence[tuple[Any, str, Any]]:
        """Nobody waits between tries."""
        return [(epoch_log, "_WAIT_MAX_S", 0.0)]

    def copy_file(self, path: str, data: bytes) -> None:
        """A file is in the store."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _table(self) -> DeltaTable:
        return DeltaTable(self.folder)


class _Sink(DeltaSink):
    """The only difference from production is how the table and the store are reached."""

    def load_table(self) -> DeltaTable:
        return cast(DeltaTable, self._reach.load())

    def file_sink(self) -> FileSink:
        files = super().file_sink()
        self._use_store(files)
        return files

    def _files_for(self, *args: Any) -> DeltaFiles:
        files = super()._files_for(*args)
        self._use_store(files)
        return files

    def _use_store(self, files: FileSink) -> None:
        # Not yet, while the sink itself checks its settings.
        if "reach" in self.__dict__:
            files.__dict__["store"] = self._reach.store

    @property
    def _reach(self) -> _DeltaReach:
        return cast(_DeltaReach, self.__dict__["reach"])


class _DeltaReach:
    """The table as deltalake reaches it for a process."""

    def __init__(self, reach: Reach, table: SimulatedDelta) -> None:
        self.call = reach.call
        self.table = table
        self.store = _WithLog(reach, table)

    def load(self) -> _ProcessTable:
        """Read the log. Errors are ours: that is what deltalake's become."""
        found = self.call(Operation.GET, "load", lambda: DeltaTable(self.table.folder))
        return _ProcessTable(self, found)

    def commit(self, table: DeltaTable, act: Callable[[DeltaTable], object]) -> None:
        """Try a commit once, on the version that the process has read, whenever it arrives."""
        version = table.version()

        def arrive() -> None:
            # A process that continues may have brought its table up to date since.
            same = table.version() == version
            try:
                act(table if same else DeltaTable(self.table.folder, version=version))
            except CommitFailedError as cause:
                raise ConflictError("the commit is refused", object_name=f"version {version + 1}") from cause
            if DeltaTable(self.table.folder).version() != version:
                self.table.on_commit()

        try:
            self.call(Operation.SWAP, f"commit version {version + 1}", arrive)
        except ConflictError as refused:
            raise CommitFailedError(str(refused.__cause__)) from refused
        except _FAILED as failed:
            raise DeltaError(str(failed)) from failed


class _WithLog:
    """The store of the data files, with the table's log in it."""

    def __init__(self, reach: Reach, table: SimulatedDelta) -> None:
        self._files = reach.client()
        self._call = reach.call
        self._log = open_store(str(table.folder))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def head(self, path: str) -> ObjectInfo:
        """What is known of a file, or of a commit."""
        if not path.startswith(f"{LOG_FOLDER}/"):
            return self._files.head(path)
        return cast(ObjectInfo, self._call(Operation.HEAD, path, lambda: self._log.head(path)))


class _ProcessTable:
    """A `DeltaTable` as one process has it."""

    def __init__(self, reach: _DeltaReach, table: DeltaTable) -> None:
        self._reach = reach
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def update_incremental(self) -> None:
        """Read the commits that it lacks."""
        self._reach.call(Operation.GET, "update", self._table.update_incremental)

    def create_write_transaction(self, *args: Any, **settings: Any) -> None:
        """Commit files."""
        self._reach.commit(self._table, lambda table: table.create_write_transaction(*args, **settings))

    def merge(self, *args: Any, **settings: Any) -> _ProcessMerge:
        """Begin a merge."""
        return _ProcessMerge(self._reach, self._table, (args, settings))


class _ProcessMerge:
    """A merge whose steps are done when it is executed: it may arrive twice."""

    def __init__(
        self, reach: _DeltaReach, table: DeltaTable, given: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> None:
        self._reach = reach
        self._table = table
        self._given = given
        self._steps: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., _ProcessMerge]:
        def step(*args: Any, **settings: Any) -> _ProcessMerge:
            self._steps.append((name, args, settings))
            return self

        return step

    def execute(self) -> None:
        """Merge and commit."""
        self._reach.commit(self._table, self._execute)

    def _execute(self, table: DeltaTable) -> None:
        args, settings = self._given
        merger: Any = table.merge(*args, **settings)
        for name, step_args, step_settings in self._steps:
            merger = getattr(merger, name)(*step_args, **step_settings)
        merger.execute()
