"""Rows in PostgreSQL, as an outside reader sees them: appended, kept by key, deleted, each epoch once."""

from __future__ import annotations

import logging
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.support.servers.postgres import PostgresServer

import lakestate as ls
from lakestate.errors import ConflictError, InvalidInputError, OperatorError, StorageUnavailableError
from lakestate.repair.going_back import go_back
from lakestate.row_kind import CHANGE, RowKind, StreamKind
from lakestate.sinks.output_owner import OutputClaim, OutputOwner
from lakestate.sinks.postgres import delivery
from lakestate.sinks.postgres.delivery import Merge
from lakestate.testing.sink_contract import SinkContract
from lakestate.testing.sink_harness import CrashPoint, SinkHarness

TOTALS = pa.schema([("user", pa.string()), ("n", pa.int64())])
CHANGES = TOTALS.append(pa.field(CHANGE, pa.string()))
UPSERT = StreamKind(RowKind.UPSERT, ("user",))
CHANGED = StreamKind(RowKind.CHANGES, ("user",))


def query(postgres: PostgresServer, text: str) -> list[tuple[Any, ...]]:
    with postgres.connect() as connection:
        return connection.execute(text).fetchall()  # type: ignore[arg-type]


def execute(postgres: PostgresServer, text: str) -> None:
    with postgres.connect() as connection:
        connection.execute(text)  # type: ignore[arg-type]


def total(user: str, n: int | None, change: str | None = None) -> dict[str, Any]:
    return {"user": user, "n": n} if change is None else {"user": user, "n": n, CHANGE: change}


@pytest.fixture
def totals(postgres: PostgresServer, schema: str) -> ls.PostgresSink:
    return ls.PostgresSink(postgres.url, f"{schema}.totals", key=["user"], create=True)


class TestContract(SinkContract):
    @pytest.fixture
    def sink(self, postgres: PostgresServer, schema: str) -> ls.PostgresSink:
        self._server = postgres
        return ls.PostgresSink(postgres.url, f"{schema}.rows", create=True)

    def read(self, sink: Any) -> list[dict[str, Any]]:
        return [{"id": row[0], "name": row[1]} for row in query(self._server, f"SELECT * FROM {sink.table}")]


class TestByKey(SinkContract):
    @pytest.fixture
    def sink(self, postgres: PostgresServer, schema: str) -> ls.PostgresSink:
        self._server = postgres
        return ls.PostgresSink(postgres.url, f"{schema}.rows", key=["id"], create=True)

    def read(self, sink: Any) -> list[dict[str, Any]]:
        return [{"id": row[0], "name": row[1]} for row in query(self._server, f"SELECT * FROM {sink.table}")]


def read_totals(postgres: PostgresServer, sink: ls.PostgresSink) -> list[tuple[Any, ...]]:
    return query(postgres, f'SELECT "user", n FROM {sink.table} ORDER BY 1')


def test_an_update_replaces_the_row_of_its_key(postgres: PostgresServer, totals: ls.PostgresSink) -> None:
    harness = SinkHarness(totals, TOTALS, kind=UPSERT, parallelism=2)
    harness.epoch([total("ann", 1)], [total("bob", 1)])
    harness.epoch([total("ann", 2)])
    assert read_totals(postgres, totals) == [("ann", 2), ("bob", 1)]


def test_of_several_rows_of_a_key_the_last_counts(postgres: PostgresServer, totals: ls.PostgresSink) -> None:
    harness = SinkHarness(totals, TOTALS, kind=UPSERT, parallelism=2)
    harness.epoch([total("ann", 3), total("ann", 1)], [total("ann", 2)])
    assert read_totals(postgres, totals) == [("ann", 2)]


def test_changes_insert_update_and_delete(postgres: PostgresServer, totals: ls.PostgresSink) -> None:
    harness = SinkHarness(totals, CHANGES, kind=CHANGED)
    harness.epoch([total("ann", 1, "insert"), total("bob", 1, "insert"), total("cy", 1, "insert")])
    harness.epoch(
        [
            total("ann", 1, "update_preimage"),
            total("ann", 2, "update_postimage"),
            total("bob", 1, "delete"),
            total("cy", 1, "delete"),
            total("cy", 5, "insert"),
            total("dan", 1, "insert"),
            total("dan", 1, "delete"),
        ]
    )
    assert read_totals(postgres, totals) == [("ann", 2), ("cy", 5)]


def test_a_column_named_like_a_change_is_data_in_a_stream_of_final_rows(
    postgres: PostgresServer, schema: str
) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    harness = SinkHarness(sink, CHANGES)
    harness.epoch([total("ann", 1, "insert"), total("ann", 1, "delete")])
    found = query(postgres, f"SELECT _change FROM {sink.table}")
    assert found == [("insert",), ("delete",)]


def test_columns_that_rows_lack_keep_their_values(postgres: PostgresServer, schema: str) -> None:
    execute(
        postgres,
        f'CREATE TABLE {schema}.t ("user" varchar(5) PRIMARY KEY, n numeric(20), '
        "note text DEFAULT 'new', at timestamptz NOT NULL DEFAULT now())",
    )
    harness = SinkHarness(ls.PostgresSink(postgres.url, f"{schema}.t", key=["user"]), TOTALS, kind=UPSERT)
    harness.epoch([total("ann", 1)])
    execute(postgres, f"UPDATE {schema}.t SET note = 'seen'")
    harness.epoch([total("ann", 2), total("bob", None)])
    found = query(postgres, f'SELECT "user", n, note FROM {schema}.t ORDER BY 1')
    assert found == [("ann", Decimal(2), "seen"), ("bob", None, "new")]


def test_values_of_every_type_are_read_back(postgres: PostgresServer, schema: str) -> None:
    instant = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "bool": (pa.bool_(), [True, False, None]),
        "int8": (pa.int8(), [-128, 127, None]),
        "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
        "float32": (pa.float32(), [1.5, float("inf"), None]),
        "float64": (pa.float64(), [0.1, -1e308, None]),
        "decimal": (
            pa.decimal128(38, 10),
            [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0E-10"), None],
        ),
        "text": (pa.string(), ['a "quoted", line\nand\\more\t\u00e9', "", None]),
        "null like text": (pa.string(), ["NULL", "\\N", None]),
        "binary": (pa.binary(), [b"\x00\xff\\x", b"", None]),
        "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
        "instant": (pa.timestamp("us", "UTC"), [instant, datetime(1, 1, 1, tzinfo=UTC), None]),
        "local": (pa.timestamp("us"), [instant.replace(tzinfo=None), datetime(1969, 12, 31, 23, 59), None]),
        "list": (pa.list_(pa.string()), [["a", None, "\u2028"], [], None]),
        "struct": (
            pa.struct([("n", pa.int32()), ("at", pa.date32())]),
            [{"n": 1, "at": None}, {"n": None, "at": None}, None],
        ),
        "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], [], None]),
    }
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    sink = ls.PostgresSink(postgres.url, f"{schema}.types", create=True)
    harness = SinkHarness(sink, table.schema)
    harness.epoch(table)
    found = query(postgres, f"SELECT * FROM {sink.table}")
    expected = {name: values for name, (_, values) in columns.items()} | {"map": [{"k": 1}, {}, None]}
    assert [list(column) for column in zip(*found, strict=True)] == list(expected.values())


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT])
def test_an_epoch_that_is_delivered_again_counts_once(
    postgres: PostgresServer, schema: str, point: CrashPoint
) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    harness = SinkHarness(sink, TOTALS, parallelism=2)
    harness.crash(point, [total("ann", 1)], [total("bob", 2)])
    harness.restart()
    harness.epoch([total("cy", 3)])
    assert read_totals(postgres, sink) == [("ann", 1), ("bob", 2), ("cy", 3)]


def test_a_zombie_does_not_bring_old_values_back(postgres: PostgresServer, totals: ls.PostgresSink) -> None:
    harness = SinkHarness(totals, TOTALS, kind=UPSERT)
    harness.epoch([total("ann", 1)])
    harness.epoch([total("ann", 2)])
    harness.commit_again(0)
    assert read_totals(postgres, totals) == [("ann", 2)]


def test_a_commit_whose_answer_is_lost_is_found_by_its_marker(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []
    real = delivery.deliver

    def deliver(epoch: Any, connection: Any, *more: Any) -> None:
        real(epoch, connection, *more)
        if not lost:
            lost.append(1)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("lakestate.sinks.postgres.sink.deliver", deliver)
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    SinkHarness(sink, TOTALS).epoch([total("ann", 1)])
    assert (lost, read_totals(postgres, sink)) == ([1], [("ann", 1)])


def test_a_session_that_ends_in_mid_transaction_is_repeated(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    real = Merge.run

    def run(merge: Merge, connection: Any) -> None:
        real(merge, connection)
        if len(ended) == 1:
            query(postgres, f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        ended.append(1)

    monkeypatch.setattr(Merge, "run", run)
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    SinkHarness(sink, TOTALS).epoch([total("ann", 1)])
    # Once with no rows when the table was checked, once in vain, once to the end.
    assert (len(ended), read_totals(postgres, sink)) == (3, [("ann", 1)])


def test_a_server_that_is_killed_before_the_commit_gets_the_epoch_after_its_restart(
    postgres: PostgresServer, schema: str
) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True, retry="0.2 seconds")
    harness = SinkHarness(sink, TOTALS)
    postgres.kill()
    try:
        with pytest.raises(StorageUnavailableError, match="PostgreSQL does not answer"):
            harness.epoch([total("ann", 1)])
    finally:
        postgres.start()
    harness.restart()
    assert read_totals(postgres, sink) == [("ann", 1)]


def test_two_drivers_that_deliver_at_once_write_once(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one delivers everything between our look at the marker and our lock."""
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    harness = SinkHarness(sink, TOTALS)
    real, calls = delivery._copy, []

    def copy(*arguments: Any) -> None:
        real(*arguments)
        calls.append(1)
        if len(calls) == 1:
            harness.restart()

    monkeypatch.setattr(delivery, "_copy", copy)
    harness.epoch([total("ann", 1)])
    assert (len(calls), read_totals(postgres, sink)) == (2, [("ann", 1)])


def test_a_copy_of_the_checkpoint_is_refused_until_it_takes_over(
    postgres: PostgresServer, schema: str
) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    first = SinkHarness(sink, TOTALS)
    first.epoch([total("ann", 1)])
    copy = ls.ParquetBackend(f"memory://copy-{schema}", cache_bytes=0)
    store = copy.objects("job").store
    for info in first.objects.store.list():
        store.put(info.path, first.objects.store.get(info.path).data)
    with pytest.raises(InvalidInputError, match="another job that has a copy of this state owns the output"):
        SinkHarness(sink, TOTALS, backend=copy)
    taken = SinkHarness.__new__(SinkHarness)
    taken.__dict__.update(first.__dict__, backend=copy)
    taken.restart(claim=OutputClaim.TAKE_OVER)
    taken.epoch([total("bob", 2)])
    assert read_totals(postgres, sink) == [("ann", 1), ("bob", 2)]
    with pytest.raises(ConflictError, match="holds another epoch 2"):
        first.epoch([total("cy", 3)])
    assert read_totals(postgres, sink) == [("ann", 1), ("bob", 2)]


def test_looking_for_another_owner_creates_nothing(postgres: PostgresServer, schema: str) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    owner = OutputOwner("job", "out", "4f1c", "file:///data/checkpoints")
    sink.claim_output(owner, OutputClaim.LOOK)
    execute(postgres, f'CREATE TABLE {schema}.log ("user" text, n bigint)')
    sink.claim_output(owner, OutputClaim.LOOK)
    sink.check(TOTALS)
    sink.claim_output(owner, OutputClaim.LOOK)
    assert query(postgres, f"SELECT * FROM {schema}.lakestate_epochs") == []


def test_a_database_that_was_restored_gets_what_it_lacks_once_the_job_goes_back(
    postgres: PostgresServer, schema: str
) -> None:
    sink = ls.PostgresSink(postgres.url, f"{schema}.log", create=True)
    harness = SinkHarness(sink, TOTALS)
    harness.epoch([total("ann", 1)])
    execute(postgres, f"CREATE TABLE {schema}.backup AS SELECT * FROM {schema}.log")
    execute(postgres, f"CREATE TABLE {schema}.markers AS SELECT * FROM {schema}.lakestate_epochs")
    harness.epoch([total("bob", 2)])
    harness.epoch([total("cy", 3)])
    for table, backup in (("log", "backup"), ("lakestate_epochs", "markers")):
        execute(postgres, f"DELETE FROM {schema}.{table}")
        execute(postgres, f"INSERT INTO {schema}.{table} SELECT * FROM {schema}.{backup}")
    go_back(harness.backend, "job", 1, sinks={"out": sink}, accept_visible_output=True)
    harness.restart()
    harness.epoch([total("bob", 2)])
    harness.epoch([total("cy", 3)])
    assert read_totals(postgres, sink) == [("ann", 1), ("bob", 2), ("cy", 3)]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (total("ann", None), r"a column that cannot be null has no value.*column n"),
        ({"user": None, "n": 1}, r"a key column has no value.*column user"),
        (total("a\0", 1), r"a text has a null character.*column user"),
        (
            total("too long", 1),
            r"a text is too long.*column user; found 8 characters; expected character varying\(5\)",
        ),
    ],
)
def test_a_row_that_the_table_cannot_hold_is_refused_before_it_is_published(
    postgres: PostgresServer, schema: str, row: dict[str, Any], found: str
) -> None:
    execute(postgres, f'CREATE TABLE {schema}.t ("user" varchar(5) PRIMARY KEY, n bigint NOT NULL)')
    harness = SinkHarness(ls.PostgresSink(postgres.url, f"{schema}.t", key=["user"]), TOTALS)
    harness.send_to_workers = lambda sink: pickle.loads(pickle.dumps(sink))
    with pytest.raises(OperatorError) as refused:
        harness.epoch([row])
    with pytest.raises(InvalidInputError, match=found):
        raise refused.value.__cause__ or refused.value
    harness.restart()
    harness.epoch([total("ok", 1)])
    assert query(postgres, f"SELECT * FROM {schema}.t") == [("ok", 1)]


def test_a_row_that_a_constraint_refuses_is_delivered_once_the_constraint_is_gone(
    postgres: PostgresServer, schema: str
) -> None:
    execute(postgres, f'CREATE TABLE {schema}.t ("user" text, n bigint CONSTRAINT small CHECK (n < 10))')
    sink = ls.PostgresSink(postgres.url, f"{schema}.t")
    harness = SinkHarness(sink, TOTALS)
    with pytest.raises(
        InvalidInputError, match=r"refuses to take epoch 1.*constraint small.*is published"
    ) as refused:
        harness.epoch([total("secret name", 77)])
    assert "secret name" not in str(refused.value)
    execute(postgres, f"ALTER TABLE {schema}.t DROP CONSTRAINT small")
    harness.restart()
    assert read_totals(postgres, sink) == [("secret name", 77)]


def test_a_password_is_nowhere(
    postgres: PostgresServer, schema: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("lakestate"), "level", logging.DEBUG)
    dsn = postgres.url.replace("lakestate@", "lakestate:s3cr3t-w0rd@")
    sink = ls.PostgresSink(dsn, f"{schema}.log", create=True)
    harness = SinkHarness(sink, TOTALS)
    harness.epoch([total("ann", 1)])
    stored = b"".join(harness.objects.store.get(info.path).data for info in harness.objects.store.list())
    refused = ls.PostgresSink(dsn.replace("/postgres", "/no-such-database"), "t", create=True)
    with pytest.raises(InvalidInputError, match="does not permit to connect") as error:
        refused.check(TOTALS)
    told = f"{sink!r}{error.value}{error.value.__cause__}{caplog.text}{pickle.dumps(sink)!r}{stored!r}"
    assert "s3cr3t-w0rd" not in told


def test_a_stream_of_updates_needs_a_key_of_its_own(postgres: PostgresServer) -> None:
    with pytest.raises(
        InvalidInputError, match=r"sink out cannot take rows that change.*pass key=\['user'\]"
    ):
        ls.PostgresSink(postgres.url, "t").for_stream(UPSERT, "sink out")
    with pytest.raises(InvalidInputError, match=r"another key than its rows.*key=\['item'\].*key=\['user'\]"):
        ls.PostgresSink(postgres.url, "t", key=["item"]).for_stream(CHANGED, "sink out")
