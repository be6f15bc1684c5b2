"""The entry point. Nothing here needs click or rich, so that their absence is told in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

MISSING_EXTRA = 7
"""The exit code if a library of an extra is not installed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with the arguments of this process, and exit."""
    try:
        for library in ("click", "rich"):
            import_module(library)
    except ModuleNotFoundError as missing:
        sys.stderr.write(f"error: the lakestate command needs {missing.name}, which is not installed\n")
        sys.stderr.write('hint: install it with: pip install "lakestate[cli]"\n')
        sys.exit(MISSING_EXTRA)
    from lakestate.cli.app import run

    sys.exit(run(arguments))
