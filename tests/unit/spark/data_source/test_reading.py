"""The readers of `format("lakestate")` without Spark: options, partitions, offsets, tags."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob

import lakestate as ls

pytest.importorskip("pyspark")
from pyspark.sql.datasource import EqualTo, GreaterThan, In, InputPartition, IsNull
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakestate.spark.data_source.reading import ChangeStreamReader, FilteringStateReader, ReadOptions
from lakestate.spark.data_source.reading.reader import schema_of

TABLE = ls.KeyedTable("t", key="k bigint", value="n bigint")
NAMES = {"job": "job", "operator": "op", "table": "t"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TableJob]:
    started = TableJob([TABLE], 1, f"file://{tmp_path}/state")
    yield started
    started.close()


def put(job: TableJob, rows: dict[int, int]) -> None:
    job.managers[0].keyed("t").put(pa.table({"k": list(rows), "n": list(rows.values())}))
    job.checkpoint()


def options(job: TableJob, **others: str) -> ReadOptions:
    return ReadOptions.of({"path": job.backend.url, **NAMES, **others})


def stream(job: TableJob, **others: str) -> ChangeStreamReader:
    read = options(job, readChangeFeed="true", **others).require_changes()
    return ChangeStreamReader(read, schema_of(read))


def rows_of(reader: Any, parts: list[InputPartition]) -> list[dict[str, Any]]:
    """The rows, with partitions that travel as Spark sends them."""
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    return [row for part in sent for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_stream_begins_with_all_rows_and_continues_epoch_by_epoch(job: TableJob) -> None:
    put(job, {1: 1})
    put(job, {2: 2})
    reader = stream(job)
    limit, offset = reader.getDefaultReadLimit(), reader.initialOffset()
    ends = []
    for n in (3, 4, 5):
        following = reader.latestOffset(offset, limit)
        ends.append(
            [offset["epoch"], following["epoch"], len(rows_of(reader, reader.partitions(offset, following)))]
        )
        offset = following
        put(job, {n: n})
    assert ends == [[0, 2, 2], [2, 3, 1], [3, 4, 1]]
    assert reader.latestOffset({"epoch": 2}, ReadAllAvailable()) == {"epoch": 5}
    assert reader.latestOffset({"epoch": 5}, limit) == {"epoch": 5}
    assert reader.partitions({"epoch": 5}, {"epoch": 5}) == []


def test_a_stream_of_a_job_without_new_epochs_waits(job: TableJob) -> None:
    put(job, {1: 1})
    reader = stream(job, startEpoch="2")
    assert reader.initialOffset() == {"epoch": 1}
    assert reader.latestOffset({"epoch": 1}, reader.getDefaultReadLimit()) == {"epoch": 1}


def test_a_range_that_is_read_again_gives_the_same_rows(job: TableJob) -> None:
    for n in range(1, 5):
        put(job, {1: n, n: n})
    first, again = (stream(job) for _ in range(2))
    found = [rows_of(each, each.partitions({"epoch": 1}, {"epoch": 4})) for each in (first, again)]
    assert found[0] == found[1]
    assert sorted({row["_epoch"] for row in found[0]}) == [2, 3, 4]


def test_every_micro_batch_ends_at_the_epoch_that_was_the_newest_at_the_start(job: TableJob) -> None:
    put(job, {1: 1})
    put(job, {2: 2})
    reader = stream(job, startEpoch="1")
    reader.prepareForTriggerAvailableNow()
    put(job, {3: 3})
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"epoch": 0}, limit) == {"epoch": 1}
    assert reader.latestOffset({"epoch": 2}, limit) == {"epoch": 2}


def test_epochs_that_are_gone_are_named_with_what_to_do(job: TableJob) -> None:
    for n in range(1, 6):
        put(job, {1: n})
    job.retain(2)
    with pytest.raises(ls.NotFoundError, match=r"found epochs 4, 5; expected epoch 2; .*startEpoch=5"):
        stream(job).partitions({"epoch": 2}, {"epoch": 5})
    with pytest.raises(ls.NotFoundError, match=r"expected epoch 1;"):
        stream(job, startEpoch="1").partitions({"epoch": 0}, {"epoch": 5})


def test_a_named_reader_keeps_the_epoch_that_it_has_reached(job: TableJob) -> None:
    for n in range(1, 3):
        put(job, {1: n})
    reader = stream(job, reader="copy")
    reader.partitions({"epoch": 0}, {"epoch": 2})
    for n in range(3, 8):
        put(job, {1: n})
    job.retain(1)
    parts = reader.partitions({"epoch": 2}, {"epoch": 7})
    assert [(row["_change"], row["n"], row["_epoch"]) for row in rows_of(reader, parts)] == [
        ("update_preimage", 2, 7),
        ("update_postimage", 7, 7),
    ]
    reader.partitions({"epoch": 2}, {"epoch": 7})
    assert {tag.name for tag in job.backend.tags("job")} == {"reader-copy-2", "reader-copy-7"}
    job.backend.create_tag("job", "reader-copy-x", epoch=7)
    reader.commit({"epoch": 7})
    reader.commit({"epoch": 7})
    assert {tag.name for tag in job.backend.tags("job")} == {"reader-copy-7", "reader-copy-x"}


def test_conditions_are_used_where_they_are_exact_and_always_left_to_spark(job: TableJob) -> None:
    put(job, {k: k for k in range(10)})
    read = options(job)
    reader = FilteringStateReader(read, schema_of(read))
    given = [
        In(("k",), (3, 4)),
        EqualTo(("k",), 3.5),
        GreaterThan(("n",), 3),
        EqualTo(("z",), 1),
        IsNull(("n", "x")),
    ]
    assert list(reader.pushFilters(given)) == given
    assert sorted(row["k"] for row in rows_of(reader, reader.partitions())) == [3, 4]


def test_changes_from_an_epoch_that_is_yet_to_come_are_none(job: TableJob) -> None:
    put(job, {1: 1})
    read = options(job, startEpoch="2")
    reader = FilteringStateReader(read, schema_of(read))
    assert reader.partitions() == []
    # Spark then asks for the rows of no partition.
    assert list(reader.read(None)) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"job": "job"}, "no option says which operator"),
        ({**NAMES, "epoch": "1", "startEpoch": "1"}, "either the rows of one epoch"),
        ({**NAMES, "startEpoch": "0"}, "bad value of an option: option startEpoch; found 0"),
        ({**NAMES, "where": "k = 1"}, "bad value of an option: option where"),
        ({**NAMES, "readChangeFeed": "yes"}, "bad value of an option: option readChangeFeed"),
        ({**NAMES, "epok": "1"}, "unknown option of a query that reads: epok"),
        ({"metadata": "job"}, "no such metadata table.*did you mean jobs"),
        ({}, "no option says which state table to read"),
    ],
    ids=range(8),
)
def test_options_that_cannot_be_meant_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ls.InvalidInputError, match=told):
        ReadOptions.of({"path": "/data/state", **given})
