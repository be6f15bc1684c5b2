"""Copies of state tables for other tools: plain Parquet files, and Iceberg tables; by hand or kept fresh.

May import what `inspection` may. An export is a whole table at one epoch; readers see it, or the one before.
"""

from lakestate.inspection.exports.export import Export, Exported
from lakestate.inspection.exports.fresh import keep_fresh

__all__ = ["Export", "Exported", "keep_fresh"]
