"""The SVG of a question: lines along its axis, bars, or bars made of parts.

Lines have a panel for each set of the other parameters.

The same result gives the same bytes: no dates, no random names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

from benchmarks.core.declaration import Benchmark, Question
from benchmarks.core.result import BenchmarkResult, Measurement
from benchmarks.core.shown import shown_number, shown_parameters, shown_value

COLOURS = ("#0b6e99", "#d9730d", "#6940a5", "#0f7b6c", "#ad1a72", "#8c6d1f", "#5a6570", "#c0392b")
MARKERS = "osD^vPX*"
LOGARITHMIC_FROM = 9
"""The ratio of the greatest to the least value from which an axis is logarithmic."""
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lakestate",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "figure.facecolor": "white",
}
PANELS_PER_ROW = 2
LABELLED_SHARE = 0.06
"""A part that is smaller has its name in the legend only."""


def draw_question(benchmark: Benchmark, question: Question, result: BenchmarkResult, path: Path) -> None:
    """Write the figure of a question."""
    measured = result.of_question(question.name)
    panels = _panels(question, measured)
    with mpl.rc_context(STYLE):
        across = min(PANELS_PER_ROW, len(panels))
        down = -(-len(panels) // across)
        bars = question.axis is None
        height = 4.2 * down
        if bars:
            height = 2.4 + 0.6 * len(panels) if question.is_stacked else 0.9 + 0.32 * len(measured)
        figure, axes = plt.subplots(
            1 if bars else down,
            1 if bars else across,
            figsize=(9, height) if bars else (6.4 if across == 1 else 11, height),
            squeeze=False,
            sharey=not bars,
        )
        if question.is_stacked:
            _draw_parts(axes[0][0], benchmark, question, panels)
        elif bars:
            _draw_bars(axes[0][0], benchmark, question, measured)
        else:
            for place, (title, part) in enumerate(panels.items()):
                _draw_lines(axes[place // across][place % across], benchmark, question, title, part)
            # All panels share this axis, so all values decide.
            if not _scale(axes[0][0].set_yscale, [each.spread.median for each in measured]):
                axes[0][0].set_ylim(bottom=0)
            for place in range(len(panels), across * down):
                axes[place // across][place % across].set_visible(False)
        figure.suptitle(question.title, fontsize=11)
        figure.tight_layout()
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    # Trailing spaces, which matplotlib writes into paths, are noise to Git.
    path.write_text("".join(line.rstrip() + "\n" for line in path.read_text().splitlines()))


def _panels(question: Question, measured: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    panels: dict[str, list[Measurement]] = {}
    for each in measured:
        others = {name: value for name, value in each.parameters.items() if name != question.axis}
        panels.setdefault(shown_parameters(others), []).append(each)
    return panels


def _draw_lines(
    axes: Any, benchmark: Benchmark, question: Question, title: str, measured: list[Measurement]
) -> None:
    for place, contender in enumerate(benchmark.contenders):
        mine = [each for each in measured if each.contender == contender.name]
        if not mine:
            continue
        mine.sort(key=lambda each: float(each.parameters[question.axis or ""]))
        across = [float(each.parameters[question.axis or ""]) for each in mine]
        colour = COLOURS[place % len(COLOURS)]
        spreads = [each.spread for each in mine]
        axes.plot(
            across,
            [spread.median for spread in spreads],
            color=colour,
            marker=MARKERS[place % len(MARKERS)],
            markersize=5,
            label=contender.name,
        )
        low, high = [spread.low for spread in spreads], [spread.high for spread in spreads]
        axes.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)
    _scale(axes.set_xscale, [float(each.parameters[question.axis or ""]) for each in measured])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown_number(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown_value(value, question.unit)))
    if not title:
        axes.set_xlabel(question.axis)
    else:
        axes.set_xlabel(f"{question.axis} ({title})")
    axes.legend(fontsize=8, frameon=False)


def _scale(set_scale: Any, values: Sequence[float]) -> bool:
    positive = [value for value in values if value > 0]
    is_wide = len(positive) == len(values) and max(positive) > LOGARITHMIC_FROM * min(positive)
    if is_wide:
        set_scale("log")
    return is_wide


def _draw_bars(axes: Any, benchmark: Benchmark, question: Question, measured: Sequence[Measurement]) -> None:
    order = [each.name for each in benchmark.contenders]
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(order)}
    rows = list(dict.fromkeys(tuple(each.parameters.items()) for each in measured))
    measured = sorted(
        measured, key=lambda each: (rows.index(tuple(each.parameters.items())), order.index(each.contender))
    )
    several = len(rows) > 1
    labels = [
        f"{each.contender}: {shown_parameters(each.parameters)}" if several else each.contender
        for each in measured
    ]
    spreads = [each.spread for each in measured]
    medians = [spread.median for spread in spreads]
    errors = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
    places = [*range(len(measured))]
    axes.barh(places, medians, xerr=errors, color=[colours[each.contender] for each in measured], height=0.7)
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    _scale(axes.set_xscale, medians)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown_value(value, question.unit)))
    axes.grid(visible=False, axis="y")
    for place, spread in zip(places, spreads, strict=True):
        axes.annotate(
            shown_value(spread.median, question.unit),
            (spread.high, place),
            (4, 0),
            textcoords="offset points",
            va="center",
        )
    axes.margins(x=0.15)


def _draw_parts(
    axes: Any, benchmark: Benchmark, question: Question, panels: Mapping[str, Sequence[Measurement]]
) -> None:
    """A bar for each panel, all of one length: one compares shares, and wholes may differ greatly."""
    reached = [0.0] * len(panels)
    wholes = [sum(each.spread.median for each in part) for part in panels.values()]
    for number, contender in enumerate(benchmark.contenders):
        medians = [
            sum(each.spread.median for each in part if each.contender == contender.name)
            for part in panels.values()
        ]
        if not any(medians):
            continue
        shares = [median / whole for median, whole in zip(medians, wholes, strict=True)]
        axes.barh(
            [*range(len(panels))],
            shares,
            left=reached,
            height=0.6,
            color=plt.get_cmap("tab20")(number % 20),
            label=contender.name,
        )
        for place, share in enumerate(shares):
            if share >= LABELLED_SHARE:
                axes.annotate(
                    contender.name, (reached[place] + share / 2, place), ha="center", va="center", fontsize=7
                )
        reached = [before + share for before, share in zip(reached, shares, strict=True)]
    labels = [
        f"{name}: {shown_value(whole, question.unit)}" for name, whole in zip(panels, wholes, strict=True)
    ]
    axes.set_yticks([*range(len(panels))], labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.grid(visible=False, axis="y")
    axes.legend(fontsize=7, frameon=False, ncols=9, loc="upper center", bbox_to_anchor=(0.4, -0.12))
