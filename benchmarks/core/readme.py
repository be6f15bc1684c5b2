"""The parts of the README that are made from results.

They are between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from benchmarks.core.declaration import Benchmark
from benchmarks.core.page import aims_table, anchor, figure_name, misses
from benchmarks.core.result import BenchmarkResult

PAGE = "benchmarks/results/README.md"
BLOCK = re.compile(r"(<!-- bench:([a-z_]+) -->\n).*?(<!-- /bench:\2 -->)", re.DOTALL)


def splice(text: str, blocks: Mapping[str, str]) -> str:
    """A text with each marked part replaced by the block of its name.

    >>> print(splice("a\\n<!-- bench:x -->\\nold\\n<!-- /bench:x -->\\nb", {"x": "new\\n"}))
    a
    <!-- bench:x -->
    new
    <!-- /bench:x -->
    b
    """
    opened, closed = re.findall(r"<!-- bench:(\S+) -->", text), re.findall(r"<!-- /bench:(\S+) -->", text)
    if opened != closed:
        raise ValueError(f"the markers do not match: {opened} are opened, {closed} are closed")
    if unknown := sorted({*opened} - {*blocks}):
        raise ValueError(
            f"no benchmark is named {', '.join(unknown)}; there are: {', '.join(sorted(blocks))}"
        )
    return BLOCK.sub(lambda match: match[1] + blocks[match[2]] + match[3], text)


def readme_block(benchmark: Benchmark, result: BenchmarkResult | None) -> str:
    """The figures and aims of a benchmark that the README shows."""
    link = f"[{benchmark.title}]({PAGE}#{anchor(benchmark.title)})"
    if result is None:
        return f"{link}: not measured yet.\n"
    there = result.environment
    scale = "" if result.scale == "whole" else f"; a {result.scale} run, with small sizes"
    parts = [f"**{link}** ({there.date}, {there.machine.split(',')[0]}{scale})\n"]
    for question in benchmark.questions:
        aims = [aim for aim in question.aims if aim.in_readme]
        if question.in_readme and result.of_question(question.name):
            parts.append(f"![{question.title}](benchmarks/results/{figure_name(benchmark, question)})\n")
        if aims:
            parts.append(aims_table(question, aims, result))
            parts.append(misses(question, aims, result))
    return "\n".join(part for part in parts if part)
