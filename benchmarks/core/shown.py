"""How figures are written: values in their unit, ratios, and parameters."""

from __future__ import annotations

from benchmarks.core.declaration import Parameter, Parameters
from benchmarks.core.result import Spread


def shown_value(value: float, unit: str) -> str:
    """A value with its unit, short enough for a table.

    >>> shown_value(1_734, "ms"), shown_value(19.34, "ms"), shown_value(176_300, "rows/s")
    ('1.73 s', '19.3 ms', '176k rows/s')
    >>> shown_value(10_400_000, "bytes"), shown_value(50, "files"), shown_value(1.5, "requests")
    ('10.4MB', '50 files', '1.5 requests')
    """
    if unit == "ms":
        return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"
    if unit == "bytes":
        return f"{shown_number(value)}B" if value >= 1000 else f"{value:.0f} B"
    text = shown_number(value)
    return f"{text}{unit}" if text.endswith(" ") else f"{text} {unit}"


def shown_number(value: float) -> str:
    """A number in three digits or so; bytes continue with `B`.

    >>> [shown_number(each) for each in (0.94, 12, 999, 1_000, 176_300, 2_500_000, 3.2e9)]
    ['0.94', '12', '999', '1k', '176k', '2.5M', '3.2G']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def shown_spread(spread: Spread, unit: str) -> str:
    """A median, and the quartiles around it."""
    low, high = (shown_number(side) for side in (spread.low, spread.high))
    if low == high:
        return shown_value(spread.median, unit)
    if unit == "ms" and spread.median >= 1000:
        low, high = (f"{side / 1000:.3g}" for side in (spread.low, spread.high))
    return f"{shown_value(spread.median, unit)} ({low}–{high})"


def shown_parameter(value: Parameter) -> str:
    """A parameter's value, numbers with separators."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def shown_parameters(parameters: Parameters) -> str:
    """Parameters for the title of a panel.

    >>> shown_parameters({"rows per epoch": 1000, "keys": "strings"})
    '1,000 rows per epoch, keys: strings'
    """
    return ", ".join(
        f"{shown_parameter(value)} {name}" if isinstance(value, int | float) else f"{name}: {value}"
        for name, value in parameters.items()
    )
