"""Which workers are asked to load the code of a pipeline, and what becomes of their answers."""

from __future__ import annotations

import collections
import decimal
import pickle
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from lakestate.errors import InvalidInputError
from lakestate.spark.execution import code_check
from lakestate.spark.execution.code_check import check_code


class Answer(NamedTuple):
    worker: str
    module: str | None
    problem: str | None


class Session:
    """Answers as its workers would, and counts the tasks of each job."""

    def __init__(self, master: str, *answers: Answer) -> None:
        self.conf = {"spark.master": master}
        self.sparkContext = SimpleNamespace(applicationId="app-1", defaultParallelism=200)
        self.answers = answers
        self.jobs: list[int] = []

    def range(self, first: int, last: int, step: int, tasks: int) -> Any:
        self.jobs.append(tasks)
        return SimpleNamespace(mapInArrow=lambda load, schema: SimpleNamespace(collect=lambda: self.answers))


def pipeline(code: Any) -> Any:
    return SimpleNamespace(stages=[SimpleNamespace(code=SimpleNamespace(data=pickle.dumps(code)))])


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_check, "_LOADED", set())


def test_a_local_worker_is_asked_once_for_each_module() -> None:
    session: Any = Session("local[2]")
    for code in (collections.Counter, collections.OrderedDict, decimal.Decimal, collections.Counter):
        check_code(session, pipeline(code))
    assert session.jobs == [1, 1]


def test_a_cluster_is_asked_at_every_start_in_a_bounded_number_of_tasks() -> None:
    session: Any = Session("spark://host:7077")
    check_code(session, pipeline(collections.Counter))
    check_code(session, pipeline(collections.Counter))
    assert session.jobs == [64, 64]


def test_what_one_worker_lacks_is_told_and_asked_for_again() -> None:
    good = Answer("host-1, python", None, None)
    bad = Answer("host-2, python", "shop", "ModuleNotFoundError: No module named 'shop'")
    session: Any = Session("local[2]", good, bad)
    for _ in range(2):
        with pytest.raises(
            InvalidInputError, match=r"module shop; found .*'shop', on host-2, python; expected"
        ):
            check_code(session, pipeline(collections.Counter))
    assert session.jobs == [1, 1]
