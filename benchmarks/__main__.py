"""Runs the benchmarks: all of them, or those named on the command line (`python -m benchmarks manifest`)."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

PREFIX = "bench_"


def available() -> list[str]:
    return sorted(file.stem.removeprefix(PREFIX) for file in Path(__file__).parent.glob(f"{PREFIX}*.py"))


def run(name: str) -> None:
    print(f"=== {name}", flush=True)
    start = time.perf_counter()
    importlib.import_module(f"benchmarks.{PREFIX}{name}").main()
    print(f"=== {name}: {time.perf_counter() - start:.1f} s\n", flush=True)


def main(arguments: list[str]) -> None:
    names = available()
    if "--list" in arguments:
        print("\n".join(names))
        return
    unknown = sorted(set(arguments) - set(names))
    if unknown or not names:
        sys.exit(
            f"no benchmark named {', '.join(unknown) or 'anything'}; there are: {', '.join(names) or 'none'}"
        )
    for name in arguments or names:
        run(name)


if __name__ == "__main__":
    main(sys.argv[1:])
