"""Runs: immutable sorted files of rows, and how they are written, searched, merged and cached.

For `KeyedTable` and `TimeKeyTable`, which build on `RunTable` in `runs.table`. May import `arrow`, `hashing`,
`migration` and the contract of tables, but no table type.
"""

from lakestate.tables.runs.layout import RunLayout
from lakestate.tables.runs.parquet import decode_run, encode_run
from lakestate.tables.runs.run import Run
from lakestate.tables.runs.run_set import RunSet

__all__ = ["Run", "RunLayout", "RunSet", "decode_run", "encode_run"]
