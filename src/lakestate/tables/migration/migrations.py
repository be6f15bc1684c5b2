"""Reading state of older versions: which versions a table can read, and how a file's rows are upgraded.

Files are migrated when they are read; nothing here writes. Table types use this module; the kinds of
steps are in `steps`, `columns` and `values`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column
from lakestate.tables.migration.columns import ColumnChanges
from lakestate.tables.migration.steps import (
    ArrowMigration,
    Migration,
    RowMigration,
    name_before_all,
    require_version,
)
from lakestate.tables.migration.upgrade import TableUpgrade
from lakestate.tables.migration.values import MigratableState, chain_of, migrate_value, version_of
from lakestate.tables.parquet_metadata import CheckpointParquetMetadata
from lakestate.tables.runs.files import Upgrade
from lakestate.tables.runs.hashes import add_hashes
from lakestate.tables.runs.layout import RunLayout

__all__ = [
    "ArrowMigration",
    "ColumnChanges",
    "MigratableState",
    "Migration",
    "RowMigration",
    "chain_of",
    "check_migrations",
    "count_migrated_rows",
    "migrate_value",
    "name_before_all",
    "upgrade_of",
    "version_of",
    "versions_covered",
]


def versions_covered(migrations: Sequence[Migration], version: int) -> frozenset[int]:
    """The older versions from which there is a step for every version up to `version`.

    >>> steps = [ColumnChanges(number, drop=[f"c{number}"]) for number in (1, 3, 4)]
    >>> sorted(versions_covered(steps, 5))
    [3, 4]
    """
    require_version(version)
    steps = [_require_migration(step).from_version for step in migrations]
    if steps != sorted(set(steps)) or any(step >= version for step in steps):
        raise InvalidInputError(
            "migrations do not lead up to the table's version",
            found=f"steps from versions {steps} for version {version}",
            expected=f"at most one step from each version, oldest first, the last from {version - 1}",
        )
    covered = version
    while covered - 1 in steps:
        covered -= 1
    return frozenset(range(covered, version))


def check_migrations(
    migrations: Sequence[Migration], version: int, keys: Sequence[Column], values: Sequence[Column]
) -> None:
    """Refuse steps that cannot lead to the declared columns, as far as declared changes show.

    Called where a table is declared, so that a mistake is reported before any state is read.
    """
    versions_covered(migrations, version)
    columns = {column.name: column for column in (*keys, *values)}
    names = [column.name for column in keys]
    expected = version - 1
    for step in reversed(migrations):
        # What code does to columns is unknown, and so are the columns before it.
        if not isinstance(step, ColumnChanges) or step.from_version != expected:
            return
        columns, names = step.columns_before(columns, names)
        expected -= 1


def upgrade_of(layout: RunLayout, migrations: Sequence[Migration] = ()) -> Upgrade:
    """The function that brings the rows of a file of any known version into the layout.

    A file of the current version with the current columns passes through at no cost. Rows that mark
    their key as removed stay so, and migrations do not see them.
    """
    config = layout.config
    check_migrations(migrations, config.state_version, config.key_columns, config.value_columns)
    return TableUpgrade(layout, {step.from_version: step for step in migrations})


def count_migrated_rows(
    layout: RunLayout,
    migrations: Sequence[Migration],
    rows: pa.Table,
    identity: CheckpointParquetMetadata,
    shown: str,
) -> int:
    """Try the upgrade of a file: what `Table.check_rows` is for tables of runs."""
    hashed = add_hashes(rows, layout, shown)
    upgraded = upgrade_of(layout, migrations)(hashed, identity, shown)
    return int(upgraded.num_rows) if identity.state_version < layout.config.state_version else 0


def _require_migration(step: object) -> Migration:
    if not isinstance(step, Migration):
        raise InvalidInputError(
            "not a migration",
            found=type(step).__name__,
            expected="ColumnChanges, ArrowMigration or RowMigration",
        )
    return step
