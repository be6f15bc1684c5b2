"""What a sink needs to know about a Delta table, and the few calls that load, create and extend one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lakestate.config import StoreConfig
from lakestate.errors import IncompatibleStateError, InvalidInputError, LakestateError, NotFoundError
from lakestate.protocol.names import did_you_mean
from lakestate.sinks.delta.library import call_deltalake, storage_options, table_uri
from lakestate.sinks.delta.types import leaf_types, storable_schema
from lakestate.sinks.files.pre_commit import FilePreCommit
from lakestate.sinks.partitioning.paths import check_partition_type
from lakestate.storage.store import ObjectStore

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG_FOLDER = "_delta_log"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as it is now. It is sent to every subtask, which therefore need not read the table."""

    url: str
    table_id: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    properties: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, table: DeltaTable, url: str) -> TableFacts:
        """The facts of a loaded table."""
        metadata = table.metadata()
        schema = pa.schema(table.schema().to_arrow())
        by = tuple(metadata.partition_columns)
        return cls(url, str(metadata.id), schema, by, dict(metadata.configuration))

    @property
    def partition_fields(self) -> list[pa.Field]:
        """The columns that are in the paths of files."""
        return [self.schema.field(name) for name in self.partition_by]

    @property
    def data_schema(self) -> pa.Schema:
        """The columns that are in files."""
        return pa.schema([each for each in self.schema if each.name not in self.partition_by])

    def format_key(self, columns: pa.Schema, format_key: str) -> str:
        """Only files with the same key can continue: it covers the table, its partitions and the columns."""
        return f"delta-{self._identity}-{_layout_digest(leaf_types(columns))}-{format_key}"

    def check_file(self, file: FilePreCommit) -> None:
        """Refuse a finished file that was begun for another table, or for columns of other types."""
        self.check_is_table_of(file.format, file.path)
        known = leaf_types(self.data_schema)
        found = {each.path: known.get(each.path, "no such column") for each in file.statistics.columns}
        if file.format.split("-")[2] != _layout_digest(found):
            raise IncompatibleStateError(
                "the columns of the table have changed under a file that was open",
                object_name=f"{self.url}, file {file.path}",
                found=", ".join(f"{path} {kind}" for path, kind in sorted(found.items())),
                expected="the columns and types that the table had when the file was begun",
                action="put them back and start again: the next start commits the file",
            )

    def check_is_table_of(self, file_format: str, path: str) -> None:
        """Refuse a file that was begun for another table, location or partitioning."""
        if not file_format.startswith(f"delta-{self._identity}-"):
            raise IncompatibleStateError(
                "a file was begun for another table than there is now",
                object_name=f"{self.url}, file {path}",
                found=file_format or "a file of another kind of sink",
                expected=f"table {self.table_id}, partitioned by {', '.join(self.partition_by) or 'nothing'}",
                action="restore the old table and stop with finish_files=True; or use a new job",
            )

    @property
    def _identity(self) -> str:
        text = "\n".join([self.table_id, self.url, *self.partition_by])
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def load_table(config: StoreConfig) -> DeltaTable:
    """The table as it is now. Raises NotFoundError."""
    from deltalake import DeltaTable

    uri, options = table_uri(config), storage_options(config)
    return call_deltalake(lambda: DeltaTable(uri, storage_options=options), config)


def create_table(
    config: StoreConfig, rows: pa.Schema, by: Sequence[str], properties: Mapping[str, str]
) -> DeltaTable:
    """A new table for such rows. If another process creates it first, that one."""
    from deltalake import DeltaTable

    schema = new_table_schema(config.url, rows, by)
    uri, options = table_uri(config), storage_options(config)
    try:
        call_deltalake(
            lambda: DeltaTable.create(
                uri,
                schema,
                partition_by=list(by),
                configuration=dict(properties),
                storage_options=options,
                raise_if_key_not_exists=False,
            ),
            config,
        )
    except LakestateError as failure:
        try:
            return load_table(config)
        except NotFoundError:
            raise failure from None
    return load_table(config)


def new_table_schema(url: str, rows: pa.Schema, by: Sequence[str]) -> pa.Schema:
    """The schema of a table for such rows. Refuses those that no table can hold."""
    schema = storable_schema(rows)
    for name in by:
        if name not in schema.names:
            raise InvalidInputError(
                "a table is partitioned by a column that rows do not have",
                object_name=f"{url}, column {name}",
                found=", ".join(schema.names),
                action=did_you_mean(name, schema.names),
            )
        check_partition_type(name, schema.field(name).type)
    if len(set(by)) != len(by):
        raise InvalidInputError("a partition column is given twice", object_name=url, found=", ".join(by))
    if len(by) == len(schema):
        raise InvalidInputError("no column is left to write", object_name=url, found=schema.names)
    return schema


def add_columns(config: StoreConfig, table: DeltaTable, columns: pa.Schema) -> None:
    """Add columns to the table, in a commit of their own."""
    from deltalake import Schema

    call_deltalake(lambda: table.alter.add_columns(Schema.from_arrow(columns).fields), config)


class TableReader:
    """The table, kept between commits and brought up to date by the commits that it lacks.

    A table that was removed and created again may have as many commits as the one before it. So the
    newest commit that was read is looked at again first: if it is another one, everything is read anew.
    """

    def __init__(self, config: StoreConfig, store: ObjectStore, load_table: Callable[[], DeltaTable]) -> None:
        self._config = config
        self._store = store
        self._load_table = load_table
        self._table: DeltaTable | None = None
        self._newest = (-1, "")

    def read(self) -> DeltaTable:
        """The table as it is now. Raises NotFoundError."""
        if self._table is not None and self._token(self._newest[0]) == self._newest[1]:
            return self.read_on()
        return self._load()

    def read_on(self) -> DeltaTable:
        """The same table, as it is now."""
        table = self._table
        if table is None or table.version() != self._newest[0]:
            # A merge has advanced it by what it knows itself. What counts is what the store has.
            return self._load()
        call_deltalake(table.update_incremental, self._config)
        return table if table.version() == self._newest[0] else self._remember(table)

    def _load(self) -> DeltaTable:
        self._table = self._load_table()
        return self._remember(self._table)

    def _remember(self, table: DeltaTable) -> DeltaTable:
        version = table.version()
        self._newest = (version, self._token(version))
        return table

    def _token(self, version: int) -> str:
        try:
            return self._store.head(f"{LOG_FOLDER}/{version:020d}.json").version.token
        except NotFoundError:
            return ""


def _layout_digest(leaves: Mapping[str, str]) -> str:
    text = "\n".join(f"{path} {kind}" for path, kind in sorted(leaves.items()))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
