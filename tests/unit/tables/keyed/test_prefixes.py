"""Looking up rows by the first columns of their key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

from lakestate.errors import InvalidInputError
from lakestate.tables.keyed.table import KeyedTable
from lakestate.tables.runs.run import Run

CARTS = KeyedTable("carts", key="user string, day int, item bigint", value="n bigint", route_by=["user"])


@pytest.fixture
def job() -> Iterator[TableJob]:
    started = TableJob([CARTS])
    yield started
    started.close()


def carts(*rows: tuple[str | None, int | None, int, int]) -> pa.Table:
    users, days, items, numbers = zip(*rows, strict=True)
    return pa.table(
        {"user": pa.array(users, pa.string()), "day": pa.array(days, pa.int32()), "item": items, "n": numbers}
    )


def found(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_all_rows_of_a_prefix_are_found_over_all_runs(job: TableJob) -> None:
    view = job.managers[0].keyed("carts")
    view.put(carts(("ann", 1, 1, 10), ("ann", 1, 2, 20), ("ann", 2, 1, 30), ("bob", 1, 1, 40)))
    job.checkpoint()
    view.put(carts(("ann", 1, 2, 21), (None, None, 5, 50)))
    view.delete(carts(("ann", 2, 1, 0)))
    job.checkpoint()
    view.put(carts(("ann", 3, 9, 60)))
    by_user = view.get_prefix(pa.table({"user": pa.array(["eve", None, "ann", "ann"])}))
    assert by_user.column_names == ["__query", "user", "day", "item", "n"]
    ann = [("ann", 1, 1, 10), ("ann", 1, 2, 21), ("ann", 3, 9, 60)]
    assert found(by_user) == [
        (1, None, None, 5, 50),
        *((2, *row) for row in ann),
        *((3, *row) for row in ann),
    ]
    asked = pa.table({"user": ["ann", "bob"], "day": pa.array([1, 2], pa.int32()), "amount": [1, 2]})
    assert found(view.get_prefix(asked)) == [(0, "ann", 1, 1, 10), (0, "ann", 1, 2, 21)]
    assert view.get_prefix(pa.table({"user": pa.array([], pa.string())})).num_rows == 0
    assert view.QUERY == "__query"


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            {"day": [1]},
            "found day; expected the first columns of \\(user, day, item\\), with user among them",
        ),
        ({"user": ["ann"], "item": [1]}, "found user, item; expected"),
        ({"other": [1]}, "found no key column"),
    ],
)
def test_other_columns_than_a_prefix_are_refused(
    job: TableJob, columns: dict[str, list[object]], told: str
) -> None:
    with pytest.raises(InvalidInputError, match=told):
        job.managers[0].keyed("carts").get_prefix(pa.table(columns))


def test_a_prefix_without_the_routing_columns_is_refused() -> None:
    table = KeyedTable("t", key="user string, item bigint", value="n bigint")
    job = TableJob([table])
    with pytest.raises(InvalidInputError, match="with user, item among them"):
        job.managers[0].keyed("t").get_prefix(pa.table({"user": ["ann"]}))
    job.close()


def test_keys_of_another_subtask_are_refused() -> None:
    job = TableJob([CARTS], parallelism=2)
    asked = pa.table({"user": [f"user-{number}" for number in range(20)]})
    with pytest.raises(InvalidInputError, match="keys of another subtask were looked up"):
        job.managers[0].keyed("carts").get_prefix(asked)
    job.close()


def test_only_the_rows_of_the_asked_users_are_compared(
    job: TableJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = job.managers[0].keyed("carts")
    users = np.repeat([f"user-{number}" for number in range(500)], 100)
    items = np.tile(np.arange(100), 500)
    days = pa.array(np.zeros(len(items), np.int32))
    view.put(pa.table({"user": users, "day": days, "item": items, "n": items}))
    job.checkpoint()
    taken: list[int] = []
    real = Run.take

    def counting(self: Run, name: str, places: pa.Array) -> pa.Array:
        taken.append(len(places))
        return real(self, name, places)

    monkeypatch.setattr(Run, "take", counting)
    asked = pa.table({"user": ["user-7", "user-300"]})
    assert view.get_prefix(asked).num_rows == 200
    assert max(taken) == 200
