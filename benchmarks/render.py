"""Makes the page, the figures and the tables of the README from the stored results.

python -m benchmarks.render [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.core.catalogue import RESULTS, declared_benchmarks
from benchmarks.core.declaration import Benchmark
from benchmarks.core.figures import draw_question
from benchmarks.core.page import figure_name, results_page
from benchmarks.core.readme import readme_block, splice
from benchmarks.core.result import BenchmarkResult, load_result

README = Path(__file__).parents[1] / "README.md"
Results = list[tuple[Benchmark, BenchmarkResult | None]]


def load_results(folder: Path) -> Results:
    """All benchmarks with the results in a folder."""
    return [(benchmark, load_result(folder, benchmark.name)) for benchmark in declared_benchmarks()]


def render_folder(folder: Path, results: Results) -> None:
    """Write the page and the figures beside the results."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    (folder / "README.md").write_text(results_page(results))
    for benchmark, result in results:
        for question in benchmark.questions:
            if result is not None and result.of_question(question.name):
                draw_question(benchmark, question, result, folder / figure_name(benchmark, question))


def spliced_readme(results: Results) -> str:
    """The README with the tables that the results give."""
    return splice(README.read_text(), {each.name: readme_block(each, result) for each, result in results})


def out_of_date(folder: Path, results: Results) -> list[str]:
    """What differs from what the results give. Figures are only looked for: fonts differ between machines."""
    wanted = {README: spliced_readme(results), folder / "README.md": results_page(results)}
    found = [file.name for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    figures = {
        figure_name(benchmark, question)
        for benchmark, result in results
        for question in benchmark.questions
        if result is not None and result.of_question(question.name)
    }
    return found + sorted(figures ^ {file.name for file in folder.glob("*.svg")})


def main(arguments: list[str]) -> None:
    results = load_results(RESULTS)
    if "--check" in arguments:
        if found := out_of_date(RESULTS, results):
            sys.exit(
                f"run python -m benchmarks.render: {', '.join(found)} differ from benchmarks/results/*.json"
            )
        return
    render_folder(RESULTS, results)
    README.write_text(spliced_readme(results))


if __name__ == "__main__":
    main(sys.argv[1:])
