"""What names in `drop` mean."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from lakestate.errors import InvalidInputError, LakestateError, NotFoundError
from lakestate.spark.graph.dropped import Dropped, resolve_dropped

STORED = {"gone": [], "totals": ["spend", "old"], "v2.totals": ["n"], "v2": ["totals"]}
DECLARED = {"totals": ["spend"], "v2": [], "v2.totals": ["n"]}
WHERE = "epoch 3 of job shop"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], Dropped()),
        (["gone"], Dropped(frozenset({"gone"}))),
        (["totals.old"], Dropped(tables={"totals": ("old",)})),
        (("gone", "totals.old"), Dropped(frozenset({"gone"}), {"totals": ("old",)})),
    ],
)
def test_a_name_is_an_operator_or_a_table_of_one(names: list[str], expected: Dropped) -> None:
    assert resolve_dropped(names, STORED, DECLARED, WHERE) == expected


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("totals.odl", NotFoundError, r"epoch 3 of job shop has no such state to drop: totals\.odl; .*"),
        ("totals.odl", NotFoundError, r"did you mean totals\.old"),
        ("gnoe", NotFoundError, r"did you mean gone\?"),
        ("xyz", NotFoundError, "it may have been dropped already"),
        ("totals", InvalidInputError, "still in the pipeline: totals"),
        ("totals.spend", InvalidInputError, r"still declared: totals\.spend"),
        ("v2.totals", InvalidInputError, r"found operator v2\.totals, and table totals of operator v2"),
    ],
)
def test_what_cannot_be_dropped_is_refused(name: str, kind: type[LakestateError], message: str) -> None:
    with pytest.raises(kind, match=message):
        resolve_dropped([name], STORED, DECLARED, WHERE)


def test_a_single_name_is_not_taken_for_its_letters() -> None:
    with pytest.raises(InvalidInputError, match=r"a list of names; found 'gone'; write \['gone'\]"):
        resolve_dropped("gone", STORED, DECLARED, WHERE)
