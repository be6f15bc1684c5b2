"""Pages, tables and figures say what results say, and are the same each time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.core import Benchmark, Contender, Point, Question, at_least, at_most
from benchmarks.core.page import results_page
from benchmarks.core.progress import Estimate
from benchmarks.core.readme import readme_block, splice
from benchmarks.core.result import Absence, BenchmarkResult, Environment, Measurement

pytest.importorskip("matplotlib")
from benchmarks.core.figures import draw_question

REACHED = at_least(4, "fast", Point("ours", {"rows": 10}), Point("theirs", {"rows": 10}))
MISSED = at_most(5, "short", Point("ours", {"rows": 10}), why="the disk is slow.", in_readme=False)
UNKNOWN = at_most(5, "elsewhere", Point("ours", {"rows": 11}))
BENCHMARK = Benchmark(
    name="x",
    title="Some totals",
    text="How it is measured.",
    contenders=(Contender("ours", "defaults"), Contender("theirs", "recommended")),
    questions=(
        Question("q", "How fast", "rows/s", axis="rows", aims=(REACHED, MISSED, UNKNOWN), in_readme=True),
        Question("bars", "How many", "files"),
        Question("parts", "Of what", "files", is_stacked=True),
    ),
    seconds=(1, 1),
)
RESULT = BenchmarkResult(
    "x",
    "whole",
    Environment("2 cores, AMD", {"python": "3.11.0"}, "2026-01-01 00:00 UTC", "abc"),
    2.0,
    (
        Measurement("q", "ours", {"rows": 10}, "rows/s", (9, 10, 11)),
        Measurement("q", "theirs", {"rows": 10}, "rows/s", (2,)),
        Measurement("q", "ours", {"rows": 1000}, "rows/s", (5000,)),
        Measurement("bars", "ours", {}, "files", (1,)),
        Measurement("parts", "ours", {"rows": 10}, "files", (3,)),
        Measurement("parts", "theirs", {"rows": 10}, "files", (1,)),
    ),
    (Absence("q", "theirs", {"rows": 1000}, "takes hours"),),
)


def test_the_page_shows_medians_quartiles_and_dashes() -> None:
    page = results_page([(BENCHMARK, RESULT)])
    assert "| 10 | 10 rows/s (9–11) | 2 rows/s |" in page
    assert "| 1,000 | 5k rows/s | – |" in page


def test_rows_are_shown_along_the_axis() -> None:
    values = [("uniform", 20), ("skewed", 20), ("uniform", 3)]
    measurements = [
        Measurement("q", "ours", {"rows": rows, "keys": keys}, "rows/s", (1,)) for keys, rows in values
    ]
    page = results_page([(BENCHMARK, replace(RESULT, measurements=tuple(measurements), absences=()))])
    shown = [line.split(" | ")[:2] for line in page.splitlines() if line.endswith("| 1 rows/s |")]
    assert shown == [["| 3", "uniform"], ["| 20", "uniform"], ["| 20", "skewed"]]


def test_the_page_names_who_is_missing_and_why() -> None:
    assert "- No figure of theirs at 1,000 rows: takes hours" in results_page([(BENCHMARK, RESULT)])


def test_the_page_says_by_how_much_an_aim_is_missed_and_why() -> None:
    page = results_page([(BENCHMARK, RESULT)])
    assert "| fast | 10 rows/s | 2 rows/s | 5 × | at least 4 |" in page
    assert "| short | 10 rows/s |  | 10 rows/s | at most 5 rows/s, **missed by 100%** |" in page
    assert "- short: the disk is slow." in page
    assert "| elsewhere | not measured |" in page


def test_the_page_begins_with_the_aims_that_are_missed() -> None:
    page = results_page([(BENCHMARK, RESULT)])
    assert "Aims reached: 1. Missed: 1." in page
    assert "| [Some totals](#some-totals) | short | 100% |" in page


def test_the_page_shows_the_settings_of_contenders() -> None:
    assert "| theirs | recommended |" in results_page([(BENCHMARK, RESULT)])


def test_a_benchmark_without_a_result_says_how_to_get_one() -> None:
    assert "Not measured yet: `make bench ONLY=x`." in results_page([(BENCHMARK, None)])


def test_the_readme_shows_only_its_aims() -> None:
    block = readme_block(BENCHMARK, RESULT)
    assert "| fast |" in block
    assert "| short |" not in block
    assert "![How fast](benchmarks/results/x-q.svg)" in block


def test_a_block_is_put_between_its_markers() -> None:
    text = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb <!-- bench:y -->\n<!-- /bench:y -->\n"
    spliced = splice(text, {"x": "new\n", "y": "other\n"})
    assert spliced == (
        "a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb <!-- bench:y -->\nother\n<!-- /bench:y -->\n"
    )
    assert splice(spliced, {"x": "new\n", "y": "other\n"}) == spliced


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- bench:x -->\n", "do not match"),
        ("<!-- bench:z -->\n<!-- /bench:z -->", "no benchmark is named z"),
    ],
)
def test_markers_that_mean_nothing_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        splice(text, {"x": "new\n"})


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_figure_is_the_same_each_time(tmp_path: Path, place: int) -> None:
    question = BENCHMARK.questions[place]
    for name in ("one.svg", "two.svg"):
        draw_question(BENCHMARK, question, RESULT, tmp_path / name)
    first = (tmp_path / "one.svg").read_text()
    assert first == (tmp_path / "two.svg").read_text()
    assert "ours" in first


def test_what_is_left_is_estimated_from_the_last_run() -> None:
    estimate = Estimate({"a": 10, "b": 30, "c": 60})
    assert estimate.seconds_left("a", 4) == 96
    estimate.spent["a"] = 12
    assert estimate.seconds_left("b", 100) == 60
    assert estimate.done_share("b", 0) == pytest.approx(0.1)


def test_the_page_says_that_a_later_run_failed() -> None:
    page = results_page([(BENCHMARK, replace(RESULT, later_failure="2026-01-02, OSError: disk full"))])
    assert "this is the last whole one: 2026-01-02, OSError: disk full" in page
    assert "| 10 | 10 rows/s (9–11) | 2 rows/s |" in page


@pytest.mark.filterwarnings("error")
def test_panels_of_very_different_values_share_an_axis(tmp_path: Path) -> None:
    wide = [
        Measurement("q", "ours", {"rows": rows, "keys": keys}, "rows/s", (value,))
        for keys, rows, value in (("few", 1, 1), ("few", 9, 1000), ("many", 1, 50), ("many", 9, 60))
    ]
    result = replace(RESULT, measurements=tuple(wide))
    draw_question(BENCHMARK, BENCHMARK.questions[0], result, tmp_path / "x.svg")
    assert "many" in (tmp_path / "x.svg").read_text()
