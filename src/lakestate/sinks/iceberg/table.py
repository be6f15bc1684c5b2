"""What a sink needs to know about an Iceberg table: where its files go and what they hold.

Also loading the table, and creating it. Changes nothing in a table that exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform

from lakestate.errors import IncompatibleStateError, InvalidInputError, NotFoundError
from lakestate.sinks.iceberg.catalog import store_url
from lakestate.sinks.iceberg.partition_values import PartitionField
from lakestate.sinks.iceberg.rows import assign_field_ids
from lakestate.sinks.iceberg.transforms import PartitionTerm

_PARTITION_IDS_START = 1000
_STORE_OPTIONS = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
}
"""What pyiceberg and our stores call the same setting."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as it is now."""

    name: str
    uuid: UUID
    location: str
    """Where data files go, as the table's metadata spells it."""
    schema_id: int
    spec_id: int
    schema: pa.Schema
    """With field ids."""
    fields: tuple[PartitionField, ...]
    options: Mapping[str, str]

    @classmethod
    def of(cls, table: Table) -> TableFacts:
        """The facts of a loaded table."""
        return cls(
            name=".".join(table.name()),
            uuid=table.metadata.table_uuid,
            location=table.location_provider().data_path,
            schema_id=table.schema().schema_id,
            spec_id=table.spec().spec_id,
            schema=schema_to_pyarrow(table.schema()),
            fields=partition_fields(table.spec(), table.schema()),
            options=_store_options(table.io.properties),
        )

    @property
    def url(self) -> str:
        """Where our stores find the data files."""
        return store_url(self.location)

    def format_key(self, columns: str) -> str:
        """Only files with the same key can continue: it covers table, location, schema, spec and columns."""
        return f"iceberg-{self._identity}-{self.schema_id}-{self.spec_id}-{columns}"

    def check_is_table_of(self, file_format: str, path: str) -> None:
        """Refuse a file that was begun for another table or location."""
        if not file_format.startswith(f"iceberg-{self._identity}-"):
            raise IncompatibleStateError(
                f"a file was begun for another table than {self.name} is now",
                object_name=path,
                found=file_format or "a file of another kind of sink",
                expected=f"table {self.uuid} at {self.location}",
                action="restore the old table or location and stop with finish_files=True; or use a new job",
            )

    @property
    def _identity(self) -> str:
        digest = hashlib.blake2b(f"{self.uuid} {self.location}".encode(), digest_size=6)
        return digest.hexdigest()


def schema_and_spec_of(file_format: str) -> tuple[int, int]:
    """The ids of the schema and of the partition spec that a file was begun with.

    >>> schema_and_spec_of("iceberg-0123456789ab-3-1-parquet-77")
    (3, 1)
    """
    _, _, schema_id, spec_id, _ = file_format.split("-", 4)
    return int(schema_id), int(spec_id)


def partition_fields(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    """The fields of a partition spec."""
    found = []
    for each in spec.fields:
        column = schema.find_column_name(each.source_id)
        source = pa.null() if column is None else schema_to_pyarrow(schema.find_type(column))
        found.append(PartitionField(each.name, column, str(each.transform), source))
    return tuple(found)


def load_table(catalog: Catalog, name: str) -> Table:
    """The table as it is now. Raises NotFoundError."""
    try:
        return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError) as cause:
        raise NotFoundError(
            "there is no such Iceberg table", object_name=name, action="create it, or pass create=True"
        ) from cause


def create_table(
    catalog: Catalog, name: str, rows: pa.Schema, by: Iterable[str], properties: Mapping[str, str]
) -> Table:
    """A new table for such rows. If another process creates it first, that one."""
    schema, spec = new_table_layout(rows, by)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    try:
        return catalog.create_table(name, schema, partition_spec=spec, properties=dict(properties))
    except TableAlreadyExistsError:
        return load_table(catalog, name)
    except NoSuchNamespaceError as cause:
        raise NotFoundError(
            "there is no namespace for an Iceberg table", object_name=name, action="create it first"
        ) from cause


def new_table_layout(rows: pa.Schema, by: Iterable[str]) -> tuple[Schema, PartitionSpec]:
    """The schema and partition spec of a table for such rows. Refuses those that no table can hold."""
    schema = pyarrow_to_schema(assign_field_ids(rows))
    return schema, partition_spec([PartitionTerm.of(each) for each in by], schema)


def partition_spec(terms: Iterable[PartitionTerm], schema: Schema) -> PartitionSpec:
    """The partition spec of terms in a schema."""
    fields = [_spec_field(term, number, schema) for number, term in enumerate(terms)]
    return PartitionSpec(*fields)


def _spec_field(term: PartitionTerm, number: int, schema: Schema) -> SpecField:
    try:
        source = schema.find_field(term.column)
    except ValueError as cause:
        raise InvalidInputError(
            "a table is partitioned by a column that it does not have",
            object_name=term.column,
            expected=", ".join(schema.column_names),
        ) from cause
    transform = parse_transform(term.transform_text)
    if not transform.can_transform(source.field_type):
        raise InvalidInputError(
            "a column cannot be partitioned this way",
            object_name=term.column,
            found=f"{transform} of {source.field_type}",
        )
    return SpecField(source.field_id, _PARTITION_IDS_START + number, transform, term.name)


def _store_options(properties: Mapping[str, str]) -> dict[str, str]:
    return {ours: properties[theirs] for theirs, ours in _STORE_OPTIONS.items() if properties.get(theirs)}
