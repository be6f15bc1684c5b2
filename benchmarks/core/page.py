"""The Markdown of results: tables of all measurements, of aims, and the page that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.core.declaration import Aim, Benchmark, Question
from benchmarks.core.result import BenchmarkResult
from benchmarks.core.shown import shown_number, shown_parameter, shown_parameters, shown_spread, shown_value

INTRODUCTION = """\
# Results of the benchmarks

`make bench` measured what is shown here, and `python -m benchmarks.render` made this page, its figures and
the tables of the README from the JSON files beside it: do not edit them by hand. [How to repeat, read and
extend them](../README.md).

Each figure is a median, with the quartiles in parentheses, over all repetitions without warm-up. All
contenders of a question get the same data in the same run, and their order alternates. A contender that is
missing somewhere is named with the reason.
"""


def results_page(results: Sequence[tuple[Benchmark, BenchmarkResult | None]]) -> str:
    """The whole page."""
    parts = [INTRODUCTION, _contents(results), _verdicts(results)]
    parts += [_section(benchmark, result) for benchmark, result in results]
    return "\n".join(parts)


def _contents(results: Sequence[tuple[Benchmark, BenchmarkResult | None]]) -> str:
    lines = [f"- [{benchmark.title}](#{anchor(benchmark.title)})" for benchmark, _ in results]
    return "\n".join(lines) + "\n"


def _verdicts(results: Sequence[tuple[Benchmark, BenchmarkResult | None]]) -> str:
    """How many aims are reached, and all that are missed."""
    rows, reached = [], 0
    for benchmark, result in results:
        for question in benchmark.questions if result is not None else ():
            for aim in question.aims:
                figure, _ = figure_of(question, aim, result)  # type: ignore[arg-type]
                if figure is not None and aim.is_reached(figure):
                    reached += 1
                elif figure is not None:
                    where = f"[{benchmark.title}](#{anchor(benchmark.title)})"
                    rows.append((where, aim.what, f"{aim.shortfall(figure):.0%}"))
    if not rows:
        return f"Aims reached: {reached}. Missed: none.\n"
    text = f"Aims reached: {reached}. Missed: {len(rows)}.\n"
    return text + "\n" + table(("benchmark", "aim", "missed by"), rows)


def anchor(title: str) -> str:
    """The anchor that GitHub gives a title.

    >>> anchor("Running totals, on Spark")
    'running-totals-on-spark'
    """
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _section(benchmark: Benchmark, result: BenchmarkResult | None) -> str:
    parts = [f"## {benchmark.title}\n", benchmark.text.strip() + "\n"]
    if result is None:
        parts.append(f"Not measured yet: `make bench ONLY={benchmark.name}`.\n")
        return "\n".join(parts)
    parts.append(provenance(benchmark, result) + "\n")
    if result.failure:
        parts.append(f"**The run failed before its end**, and the rest is missing: {result.failure}\n")
    if result.later_failure:
        parts.append(f"**A later run failed**, and this is the last whole one: {result.later_failure}\n")
    parts.append(
        table(("contender", "settings"), [(each.name, each.settings) for each in benchmark.contenders])
    )
    parts += [_answer(benchmark, question, result) for question in benchmark.questions]
    return "\n".join(parts)


def provenance(benchmark: Benchmark, result: BenchmarkResult) -> str:
    """Where, when and with what a result was measured."""
    there, versions = (
        result.environment,
        ", ".join(f"{k} {v}" for k, v in result.environment.versions.items()),
    )
    scale = "" if result.scale == "whole" else f" **A {result.scale} run**: fewer repetitions, smaller sizes."
    return (
        f"Measured at {there.date}, commit {there.commit}, in {shown_value(result.seconds * 1000, 'ms')}, "
        f"by `make bench ONLY={benchmark.name}`, on {there.machine}; {versions}.{scale}"
    )


def _answer(benchmark: Benchmark, question: Question, result: BenchmarkResult) -> str:
    parts = [f"### {question.title}\n"]
    if question.text:
        parts.append(question.text.strip() + "\n")
    if result.of_question(question.name):
        parts.append(f"![{question.title}]({figure_name(benchmark, question)})\n")
        parts.append(measurements_table(benchmark, question, result))
    parts.append(_absences(question, result))
    if question.aims:
        parts.append(aims_table(question, question.aims, result))
        parts.append(misses(question, question.aims, result))
    return "\n".join(part for part in parts if part)


def figure_name(benchmark: Benchmark, question: Question) -> str:
    """The file of a question's figure."""
    return f"{benchmark.name}-{question.name}.svg"


def measurements_table(benchmark: Benchmark, question: Question, result: BenchmarkResult) -> str:
    """A row for each set of parameters, a column for each contender."""
    measured = result.of_question(question.name)
    names = [each.name for each in benchmark.contenders if any(m.contender == each.name for m in measured)]
    columns = list(dict.fromkeys(key for each in measured for key in each.parameters))
    cells: dict[tuple[tuple[str, object], ...], dict[str, str]] = {}
    for each in measured:
        row = cells.setdefault(tuple(each.parameters.items()), {})
        row[each.contender] = shown_spread(each.spread, each.unit)
    if question.axis is not None:
        cells = dict(sorted(cells.items(), key=lambda item: _place(item[0], question, [*cells])))
    rows = [
        [shown_parameter(dict(key).get(column, "")) for column in columns]  # type: ignore[arg-type]
        + [row.get(name, "–") for name in names]
        for key, row in cells.items()
    ]
    return table([*columns, *names], rows)


def _place(
    parameters: tuple[tuple[str, object], ...],
    question: Question,
    measured: list[tuple[tuple[str, object], ...]],
) -> tuple[int, float]:
    """Where a row belongs: by the parameters besides the axis as they were measured, then along the axis."""
    others = [tuple(pair for pair in each if pair[0] != question.axis) for each in measured]
    mine = tuple(pair for pair in parameters if pair[0] != question.axis)
    return others.index(mine), float(dict(parameters)[question.axis or ""])  # type: ignore[arg-type]


def _absences(question: Question, result: BenchmarkResult) -> str:
    lines = []
    for each in result.absences:
        if each.question == question.name:
            where = f" at {shown_parameters(each.parameters)}" if each.parameters else ""
            lines.append(f"- No figure of {each.contender}{where}: {each.reason}")
    return "\n".join(lines) + "\n" if lines else ""


def aims_table(question: Question, aims: Iterable[Aim], result: BenchmarkResult) -> str:
    """A row for each aim: both sides, their ratio, and whether the bound is kept."""
    rows = []
    for aim in aims:
        figure, sides = figure_of(question, aim, result)
        shown = [shown_value(side, question.unit) for side in sides] + [""] * (2 - len(sides))
        if figure is None:
            rows.append([aim.what, "not measured", "", "", _bound(aim, question)])
            continue
        text = f"{shown_number(figure)} ×" if aim.denominator else shown_value(figure, question.unit)
        verdict = "" if aim.is_reached(figure) else f", **missed by {aim.shortfall(figure):.0%}**"
        rows.append([aim.what, *shown, text, _bound(aim, question) + verdict])
    return table(("what", "measured", "compared with", "figure", "aim"), rows)


def _bound(aim: Aim, question: Question) -> str:
    bound = shown_number(aim.bound) if aim.denominator else shown_value(aim.bound, question.unit)
    return f"{aim.direction.value} {bound}"


def figure_of(question: Question, aim: Aim, result: BenchmarkResult) -> tuple[float | None, list[float]]:
    """The figure that an aim bounds, and the medians that it is made of."""
    points = [aim.numerator, *([aim.denominator] if aim.denominator else [])]
    found = [result.find(question.name, point) for point in points]
    medians = [each.spread.median for each in found if each is not None]
    if len(medians) < len(points):
        return None, []
    return (medians[0] / medians[1] if len(medians) == 2 else medians[0]), medians


def misses(question: Question, aims: Iterable[Aim], result: BenchmarkResult) -> str:
    """Why aims are missed, for those that are."""
    lines = []
    for aim in aims:
        figure, _ = figure_of(question, aim, result)
        if figure is not None and not aim.is_reached(figure):
            lines.append(f"- {aim.what}: {aim.why or 'not explained yet.'}")
    return "Missed:\n\n" + "\n".join(lines) + "\n" if lines else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(("a", "b"), [("1", "x|y")]), end="")
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    texts[1] = texts[1].replace(" ", "")
    return "\n".join(texts) + "\n"
