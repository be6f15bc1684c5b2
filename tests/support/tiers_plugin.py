"""Which tests run: all but those marked `full` and `soak`, unless `--full` or `--soak` says so.

Tests marked `full` take too long for `make test`; `make test-full` runs them and nothing else. Tests marked
`soak` run with `--soak` only, and then for as long as SOAK_MINUTES says.

Tests marked `fuzz` run in ordinary runs with a bounded number of examples; with `--soak` they count as
soak tests too. What Hypothesis drives is bounded by examples: with `--soak` it is run again and again,
each time with other examples, until the time is over.
"""

from __future__ import annotations

import os
import sys
import time

import pytest

MARKERS = (
    "alone: takes all processors; runs before the others",
    "full: too long for `make test`; runs with --full only",
    "fuzz: hostile input; bounded, and without bound in soak",
    "slow: a unit test that takes more than a second; `make check` leaves it out",
    "soak: long randomised test; runs with --soak only",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the tests marked full")
    parser.addoption("--soak", action="store_true", help="also run the tests marked soak")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--soak"):
        os.environ.setdefault("SOAK_MINUTES", "10")
        _check_environment()
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        for item in items:
            if item.get_closest_marker("fuzz"):
                item.add_marker(pytest.mark.soak)
        return
    left_out = ["soak"] if config.getoption("--full") else ["soak", "full"]
    longer = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if longer:
        config.hook.pytest_deselected(items=longer)
        items[:] = [item for item in items if item not in set(longer)]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function):  # type: ignore[no-untyped-def]
    """Repeat what is bounded by examples until the time is over."""
    result = yield
    if pyfuncitem.config.getoption("--soak") and _is_driven_by_examples(pyfuncitem):
        ends_s = time.monotonic() + float(os.environ["SOAK_MINUTES"]) * 60
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        while time.monotonic() < ends_s:
            pyfuncitem.obj(**arguments)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    fuzzing = sys.modules.get("tests.support.fuzzing.hostile_bytes")
    if config.getoption("--soak") and fuzzing is not None and fuzzing.TRIED:
        tried = fuzzing.TRIED
        terminalreporter.write_line(f"{tried['inputs']:,} hostile inputs, {tried['refused']:,} refused")


def _check_environment() -> None:
    """Once and at the start: a wrong value would else fail in every test, or make a test run nothing."""
    seeds, minutes = os.environ.get("SEEDS", ""), os.environ["SOAK_MINUTES"]
    if seeds and not all(_is_number(int, seed) for seed in seeds.removesuffix(",").split(",")):
        raise pytest.UsageError(f"SEEDS={seeds} is not a list of seeds, as in SEEDS=7,8")
    if not _is_number(float, minutes) or not float(minutes) > 0:
        raise pytest.UsageError(f"SOAK_MINUTES={minutes} is not a number of minutes above 0")


def _is_number(kind: type[int] | type[float], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _is_driven_by_examples(item: pytest.Function) -> bool:
    """What Hypothesis has decorated, and the long lives of state machines, which it has not."""
    if item.get_closest_marker("soak") is None:
        return False
    is_machine = item.get_closest_marker("fuzz") is None and "property" in item.path.parts
    return hasattr(item.obj, "hypothesis") or is_machine
