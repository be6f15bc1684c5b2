"""Nexmark q0 to q22 beside Spark's own operators and Flink SQL, in cores × time; every answer is checked."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.nexmark.job import QUERIES

from benchmarks.core import Benchmark, Contender, Point, Question, Run, Unavailable, at_least
from benchmarks.nexmark.contenders import Contestant, FlinkSql, Lakestate, SparkStreaming
from benchmarks.nexmark.events import Events, write_events
from benchmarks.nexmark.exactness import Answers
from benchmarks.nexmark.flink import Flink, flink_version, why_unavailable
from benchmarks.spark_jobs.epochs import ROCKS_DB
from benchmarks.spark_jobs.local_spark import local_spark

EVENTS, EVENTS_PER_EPOCH, EVENT_US = 500_000, 250_000, 100
QUICK_EVENTS = 250_000
REPETITIONS = 2
CHECKED_EVENTS, CHECKED_PER_EPOCH, CHECKED_EVENT_US = 20_000, 5_000, 10_000
CHECKED_SEED = 1
"""Events among which no order is left to chance: no two last bids of a bidder at the same time."""

OURS, SPARK, FLINK = Lakestate.name, SparkStreaming.name, FlinkSql.name
BESIDE = "beside"
IN_THE_JVM = (
    "nine tenths of the processor time of a query without state are spent in Spark's JVM, on plans of each "
    "epoch and on rows as Arrow for Python"
)
SPARK_SETTINGS = {"spark.sql.shuffle.partitions": "2", **ROCKS_DB}

BENCHMARK = Benchmark(
    name="nexmark",
    title="Nexmark beside Spark and Flink",
    text=(
        f"The queries of an online auction, `examples/nexmark`, over {EVENTS:,} events (1 person : 3 "
        "auctions : 46 bids) in Parquet files, 10,000 events in a second of event time. Lakestate and Spark "
        f"read {EVENTS_PER_EPOCH:,} events in an epoch. Flink reads the same rows, in two files of each "
        "kind instead of two for each epoch, because it reads many files in any order. Result rows are "
        "computed and thrown away: by `noop` in Spark, by `blackhole` in Flink, and by a sink that forgets "
        "them in Lakestate; for q10, all write Parquet files. In q14, all call a vectorised Python "
        "function. All have two cores. What a query needs to start is counted; what an engine needs to "
        "start is not.\n\n"
        f"Before the first is timed, each contender runs them over {CHECKED_EVENTS:,} events, and its rows "
        "are compared with those of the same question in DuckDB over all events at once. One whose rows "
        "differ has no figure. Only the rows of q12 in Flink cannot be compared: it does not give out "
        "windows of processing time that are open when the input ends."
    ),
    contenders=(
        Contender(OURS, "2 subtasks, all defaults; Spark as below"),
        Contender(
            SPARK,
            "Structured Streaming, `local[2]`, 4 GB, 2 shuffle partitions, RocksDB state store with "
            "changelog checkpoints, watermarks as in Lakestate",
        ),
        Contender(
            FLINK,
            f"Flink SQL {flink_version()} through PyFlink, parallelism 2, 4 GB of heap and 1 GB of managed "
            "memory, RocksDB with incremental checkpoints every second, mini-batches (2 s, 50,000 rows) and "
            "split distinct aggregates as in Nexmark's own configuration, object reuse",
        ),
    ),
    questions=(
        Question(
            "cpu",
            "Cores × time for all events, by query",
            "ms",
            text="The processor time of all processes: JVMs, drivers and Python workers.",
        ),
        Question("clock", "Time until all events are processed, by query", "ms"),
        Question(
            "overall",
            "Cores × time, geometric mean over the queries that both can ask",
            "ms",
            aims=(
                at_least(
                    3,
                    "Spark's cores × time against Lakestate's",
                    Point(SPARK, {BESIDE: SPARK}),
                    Point(OURS, {BESIDE: SPARK}),
                    why=(
                        "eight of the queries keep no state. Most of them take one and a half to three times "
                        f"as long as in Spark: {IN_THE_JVM}."
                    ),
                ),
                at_least(
                    2,
                    "Flink's cores × time against Lakestate's",
                    Point(FLINK, {BESIDE: FLINK}),
                    Point(OURS, {BESIDE: FLINK}),
                    why=f"{IN_THE_JVM}. Flink plans a query once, and keeps rows in its JVM.",
                ),
            ),
        ),
    ),
    seconds=(300, 660),
)


@dataclass(frozen=True)
class Course:
    """What contenders run over."""

    run: Run
    timed: Events
    checked: Events
    answers: Answers
    folder: Path

    def check(self, contestant: Contestant, query: str) -> Callable[[int], Sequence[float]]:
        """Compares rows. This is also the warm-up: a new JVM compiles what it runs."""

        def take(number: int) -> Sequence[float]:
            if (reason := contestant.refusal(query)) is not None:
                raise Unavailable(reason)
            with self._place(contestant, query) as place:
                wrong = contestant.difference(query, self.checked, self.answers, place)
            if wrong is not None:
                raise RuntimeError(f"its rows are not those of the answer: {wrong}")
            return ()

        return take

    def turn(self, contestant: Contestant, query: str) -> Callable[[int], Sequence[float]]:
        """The cost of a repetition."""

        def take(number: int) -> Sequence[float]:
            with self._place(contestant, query) as place:
                usage = contestant.run(query, self.timed, place)
            self.run.record("clock", contestant.name, [usage.clock_s * 1000], {"query": query})
            return [usage.cpu_s * 1000]

        return take

    @contextmanager
    def _place(self, contestant: Contestant, query: str) -> Iterator[Path]:
        place = self.folder / f"{contestant.name}-{query}"
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def measure(run: Run) -> None:
    """Check and time all queries."""
    events = run.pick(whole=EVENTS, quick=QUICK_EVENTS)
    repetitions = run.pick(whole=REPETITIONS, quick=1)
    with run.folder() as folder, ExitStack() as stack:
        run.say("events")
        checked = write_events(
            folder / "checked", CHECKED_EVENTS, CHECKED_PER_EPOCH, CHECKED_EVENT_US, CHECKED_SEED
        )
        timed = write_events(folder / "timed", events, EVENTS_PER_EPOCH, EVENT_US)
        course = Course(run, timed, checked, Answers(checked), folder)
        contestants = _contestants(stack, folder)
        if why := why_unavailable():
            run.leave_out("cpu", FLINK, why)
        for query in QUERIES:
            checks = {each.name: course.check(each, query) for each in contestants}
            run.compare("cpu", checks, {"query": query}, repetitions=0, warm_up=1)
        out = {(each.contender, each.parameters.get("query")) for each in run.absences}
        for query in QUERIES:
            able = [each for each in contestants if (each.name, query) not in out]
            turns = {each.name: course.turn(each, query) for each in able}
            run.compare("cpu", turns, {"query": query}, repetitions=repetitions)
    _record_means(run, [each.name for each in contestants[1:]])


def _contestants(stack: ExitStack, folder: Path) -> list[Contestant]:
    flink = None if why_unavailable() else stack.enter_context(Flink(folder / "flink.log"))
    spark = local_spark(SPARK_SETTINGS)
    stack.callback(spark.stop)
    others = [] if flink is None else [FlinkSql(flink)]
    return [Lakestate(spark, flink), SparkStreaming(spark, flink), *others]


def _record_means(run: Run, others: Sequence[str]) -> None:
    """The geometric means of two contenders over the queries that both ran."""
    medians = {
        (each.contender, each.parameters["query"]): each.spread.median
        for each in run.measurements
        if each.question == "cpu"
    }
    for other in others:
        both = [query for query in QUERIES if (OURS, query) in medians and (other, query) in medians]
        for name in (OURS, other) if both else ():
            mean = statistics.geometric_mean(medians[name, query] for query in both)
            run.record("overall", name, [mean], {BESIDE: other, "queries": len(both)})
