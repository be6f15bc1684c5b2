"""An Iceberg table: pyiceberg itself, with a catalog in memory, and all files in a simulated store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitStateUnknownException, ServiceUnavailableError
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation as SnapshotOperation
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.utils.concurrent import ExecutorFactory

from lakestate.errors import OutcomeUnknownError, StorageUnavailableError
from lakestate.protocol.values import Epoch
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks.iceberg import catalog_calls
from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.commits.progress import IcebergEpoch
from lakestate.sinks.iceberg.sink import IcebergSink
from lakestate.sinks.iceberg.table import new_table_layout
from lakestate.storage.parallel import InlineExecutor
from lakestate.testing.faults import Operation
from lakestate.testing.simulation.cluster.world import JOB_ID
from lakestate.testing.simulation.tables.iceberg_files import Call, SimulatedFileIO
from lakestate.testing.simulation.tables.target import KEY, Reach, Rows, SimulatedTable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakestate.sinks.iceberg.files import IcebergFiles
    from lakestate.sinks.sink import Sink
    from lakestate.testing.simulation.cluster.world import World

APPEND = SnapshotOperation.APPEND
NAME = ("simulated", "table")
LOCATION = "memory://table"
_METADATA = f"{LOCATION}/metadata/00000.metadata.json"
"""The name of the newest metadata, which the catalog holds itself."""


class SimulatedIceberg(SimulatedTable):
    """The catalog of one table, and its files."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        layout, _ = new_table_layout(self.schema, ())
        self.metadata: TableMetadata = new_table_metadata(
            layout, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, LOCATION, {}
        )
        self.new_snapshots: list[Snapshot] = []
        """Of the newest commit."""

    def sink_by(self, reach: Reach) -> Sink:
        """The sink, which reaches catalog and files through a process."""
        catalog = _ReachedCatalog("simulated")
        object.__setattr__(catalog, "opened", SimulatedCatalog(self, reach.call, self.on_job_commit))
        sink = _Sink(".".join(NAME), catalog=catalog, **self.settings())
        object.__setattr__(sink, "reach", reach)
        return sink.for_stream(StreamKind(RowKind.UPSERT, (KEY,)), "the job") if self.is_keyed else sink

    def on_job_commit(self) -> None:
        """The job has changed the table."""
        self.on_commit()

    def rows(self) -> Rows:
        """The newest snapshot, as pyiceberg reads it."""
        return list(self._table().scan().to_arrow().to_pylist())

    def recorded_epoch(self, fingerprint: str) -> int | None:
        """The property of the table."""
        found = self.metadata.properties.get(IcebergEpoch(JOB_ID, fingerprint, Epoch(1), ()).property_name)
        return None if found is None else int(found)

    def data_files(self) -> set[str]:
        """The files of the newest snapshot."""
        return {
            task.file.file_path.removeprefix(f"{LOCATION}/data/")
            for task in self._table().scan().plan_files()
        }

    def appended_files(self) -> list[str]:
        """Those of snapshots that append, in the newest commit."""
        io = self._table().io
        appends = [each for each in self.new_snapshots if each.summary and each.summary.operation is APPEND]
        return [
            entry.data_file.file_path.removeprefix(f"{LOCATION}/data/")
            for snapshot in appends
            for manifest in snapshot.manifests(io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(io)
            if entry.snapshot_id == snapshot.snapshot_id
        ]

    def append(self, rows: Rows) -> None:
        """As pyiceberg writes."""
        self._table().append(self._in_types_of_table(self.arrow(rows)))

    def delete(self, column: str, value: int | str) -> None:
        """Write the files again that have such rows."""
        self._table().delete(f"{column} == {value!r}")

    def compact(self) -> None:
        """Merge files, as an overwrite: what most tools do."""
        table = self._table()
        files = [task.file for task in table.scan().plan_files()]
        written = _dataframe_to_data_files(
            table_metadata=table.metadata, df=table.scan().to_arrow(), io=table.io
        )
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            for file in files:
                snapshot.delete_data_file(file)
            for file in written:
                snapshot.append_data_file(file)

    def tidy(self) -> None:
        """Expire all snapshots but the newest."""
        newest = self.metadata.current_snapshot_id
        old = [each.snapshot_id for each in self.metadata.snapshots if each.snapshot_id != newest]
        if old:
            self._table().maintenance.expire_snapshots().by_ids(old).commit()

    def values_replaced(self) -> Sequence[tuple[Any, str, Any]]:
        """Nobody waits between tries, and the scheduler alone decides who acts."""
        inline = staticmethod(InlineExecutor)
        return [(catalog_calls, "_WAIT_MAX_S", 0.0), (ExecutorFactory, "get_or_create", inline)]

    def _table(self) -> Table:
        """The table without faults, for other writers and readers."""
        return SimulatedCatalog(self, _at_once, lambda: None).load_table(NAME)

    def _in_types_of_table(self, rows: pa.Table) -> pa.Table:
        return rows.cast(pa.schema([(field.name, field.type) for field in rows.schema]))


class _Sink(IcebergSink):
    """The only difference from production is how the catalog and the store are reached."""

    def files(self, *args: Any, **settings: Any) -> IcebergFiles:
        files = super().files(*args, **settings)
        files.__dict__["store"] = cast(Reach, self.__dict__["reach"]).client()
        return files


class _ReachedCatalog(IcebergCatalog):
    """A catalog that is open."""

    def load(self) -> Catalog:
        return cast("Catalog", self.__dict__["opened"])


class SimulatedCatalog(NoopCatalog):
    """The catalog as one process reaches it. A commit is one call, which the catalog answers or does not."""

    def __init__(self, target: SimulatedIceberg, call: Call, on_commit: Callable[[], None]) -> None:
        super().__init__("simulated")
        self._target = target
        self._call = call
        self._on_commit = on_commit

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """The table as it is now."""
        try:
            metadata = self._call(Operation.GET, "load", lambda: self._target.metadata)
        except StorageUnavailableError as failed:
            raise ServiceUnavailableError(str(failed)) from failed
        return Table(
            NAME, metadata, _METADATA, SimulatedFileIO(self._target.store, LOCATION, self._call), self
        )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Change the table, if it is as required."""
        try:
            changed = self._call(Operation.SWAP, "commit", partial(self._commit, requirements, updates))
        except StorageUnavailableError as failed:
            raise ServiceUnavailableError(str(failed)) from failed
        except OutcomeUnknownError as lost:
            raise CommitStateUnknownException(str(lost)) from lost
        return CommitTableResponse.model_construct(metadata=changed, metadata_location=_METADATA)

    def _commit(
        self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> TableMetadata:
        target = self._target
        for requirement in requirements:
            requirement.validate(target.metadata)
        before = target.metadata
        target.metadata = update_table_metadata(before, updates, metadata_location=_METADATA)
        known = {each.snapshot_id for each in before.snapshots}
        target.new_snapshots = [each for each in target.metadata.snapshots if each.snapshot_id not in known]
        if target.metadata != before:
            self._on_commit()
        return target.metadata


def _at_once(operation: Operation, what: str, act: Callable[[], Any]) -> Any:
    return act()
