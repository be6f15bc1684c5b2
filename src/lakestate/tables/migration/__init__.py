"""State of older versions, converted to the declared version when it is read.

`migrations` is what table types use; the other modules are the kinds of steps. May import `arrow`, `runs`
and the contract of tables, but no table type.
"""

from lakestate.tables.migration.columns import ColumnChanges
from lakestate.tables.migration.steps import ArrowMigration, Migration, RowMigration
from lakestate.tables.migration.values import MigratableState

__all__ = ["ArrowMigration", "ColumnChanges", "MigratableState", "Migration", "RowMigration"]
