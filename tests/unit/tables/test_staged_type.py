"""The table type of staged rows is known to every process, with or without sinks."""

from __future__ import annotations

import subprocess
import sys


def test_retention_knows_staged_rows_without_any_sink() -> None:
    code = "import lakestate.tables.registry as r, sys; assert 'staged' in r._TABLE_CLASSES; "
    code += "assert 'lakestate.sinks' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
