"""`lakestate.spark.python_daemon` with what test modules import as well.

A Python worker imports the module that defines an operator. For an operator of a test, that means pytest: 0.6
seconds of processor time in every new worker, and every attempt of a task that fails ends its worker.
"""

from __future__ import annotations

import runpy
from importlib import import_module

from lakestate.spark import python_daemon

IMPORTED = ("pytest", "tests.support.spark.pipelines", "tests.support.spark.totals", "lakestate.testing")

if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    runpy.run_path(str(python_daemon.__file__), run_name="__main__")
