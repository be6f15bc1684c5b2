"""`Export`: where the rows of a state table go, and writing them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.inspection.exports.parquet_file import write_parquet
from lakestate.inspection.state_table import StateTable
from lakestate.protocol.values import Epoch
from lakestate.sinks.iceberg.catalog import IcebergCatalog, require_pyiceberg

SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class Exported:
    """What is at the destination now."""

    target: str
    epoch: Epoch
    rows: int
    is_new: bool = True
    """False if the table held this epoch, or a later one, already."""
    size_bytes: int | None = None
    """Of a Parquet file."""


@dataclass(frozen=True)
class Export:
    """A copy of a state table that any engine reads, with `Pipeline(exports=[…])` kept fresh by the job.

    `dest` is the path or URL of a Parquet file, or, with a `catalog`, the name of an Iceberg table; the
    catalog is given as for `IcebergSink`. An export is the whole table at one epoch, and replaces the one
    before in one act. A job exports after its first epoch, then after every epoch that swapped in merged
    files of the operator or, with `every`, as soon as so many epochs have passed. That reads and writes the
    whole table, in the driver, beside the stream.

    >>> Export("count", "totals", "shop.totals", catalog="file:///data/warehouse", every=100).dest
    'shop.totals'
    """

    operator: str
    table: str
    dest: str
    _: KW_ONLY
    catalog: IcebergCatalog | Mapping[str, str] | str | Path | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the store of a Parquet file, as for `StoreConfig`."""
    every: int | None = None

    def __post_init__(self) -> None:
        if self.catalog is not None:
            object.__setattr__(self, "catalog", IcebergCatalog.of(self.catalog))
        is_named = "." in self.dest.strip(".") if self.catalog else self.dest.endswith(SUFFIX)
        if not is_named:
            raise InvalidInputError(
                "not a destination of an export",
                found=repr(self.dest),
                expected="namespace.name of an Iceberg table" if self.catalog else f"a name with {SUFFIX}",
                action=None if self.catalog else "for an Iceberg table, name its catalog",
            )
        if self.every is not None and self.every < 1:
            raise InvalidInputError("an export every so many epochs", found=self.every, expected="at least 1")

    def write(
        self,
        table: StateTable,
        make_rows: Callable[[], pa.RecordBatchReader] | None = None,
        tell: Callable[[int], None] = lambda rows: None,
        *,
        overwrite: bool,
        part: str = "",
    ) -> Exported:
        """Write all rows of a table, or the `part` that `make_rows` returns, which may be called twice.

        Without `overwrite`, a Parquet file that exists is refused, and an Iceberg table that holds something
        else than earlier exports of the same state table.
        """
        read = make_rows or table.reader
        if isinstance(self.catalog, IcebergCatalog):
            require_pyiceberg()
            from lakestate.sinks.iceberg.replace import ExportIdentity, replace_rows

            manifest = table.source.manifest
            where = (manifest.job_id, self.operator, self.table)
            identity = ExportIdentity(*where, table.epoch, manifest.state_id, part)
            done = replace_rows(self.catalog, self.dest, identity, read, tell, overwrite=overwrite)
            return Exported(self.dest, Epoch(done.epoch), done.rows, done.is_new)
        written = write_parquet(read(), self.dest, dict(self.options), tell, overwrite=overwrite)
        return Exported(written.url, table.epoch, written.rows, size_bytes=written.size_bytes)
