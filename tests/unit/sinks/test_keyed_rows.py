"""What sinks with a key take and refuse, whatever they write to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.row_kind import RowKind, StreamKind
from lakestate.sinks import DeltaSink, IcebergSink, ParquetSink, PostgresSink, Sink
from lakestate.sinks.keyed_rows import require_changes, require_key_columns

UPDATES = StreamKind(RowKind.UPSERT, ("user",))

SinkOf = Callable[[str | Sequence[str]], Sink]
SINKS: dict[str, SinkOf] = {
    "delta": lambda key: DeltaSink("/data/totals", key=key),
    "iceberg": lambda key: IcebergSink("shop.totals", catalog="file:///data/warehouse", key=key),
    "postgres": lambda key: PostgresSink("postgresql://db/shop", "totals", key=key),
}


def refusal(act: Callable[[], object]) -> tuple[str, object, object, object]:
    with pytest.raises(InvalidInputError) as raised:
        act()
    error = raised.value
    return error.summary, error.found, error.expected, error.action


@pytest.mark.parametrize("sink_of", SINKS.values(), ids=SINKS)
def test_a_key_of_one_column_can_be_given_as_text(sink_of: SinkOf) -> None:
    assert sink_of("user") == sink_of(["user"])


@pytest.mark.parametrize("sink_of", SINKS.values(), ids=SINKS)
def test_updates_are_refused_without_a_key(sink_of: SinkOf) -> None:
    assert refusal(lambda: sink_of([]).for_stream(UPDATES, "sink out")) == (
        "sink out cannot take rows that change",
        "updates by user",
        "final rows",
        (
            "call as_log() first, if each of these rows shall count as a row of its own; "
            "pass key=['user'] to keep one row for each key"
        ),
    )


@pytest.mark.parametrize("sink_of", SINKS.values(), ids=SINKS)
def test_updates_are_refused_by_another_key(sink_of: SinkOf) -> None:
    assert refusal(lambda: sink_of(["item"]).for_stream(UPDATES, "sink out")) == (
        "sink out has another key than its rows",
        "key=['item']",
        "key=['user'], by which these rows replace each other",
        None,
    )


def test_a_sink_that_only_appends_names_those_that_take_updates() -> None:
    assert refusal(lambda: ParquetSink("/data/totals").for_stream(UPDATES, "sink out")) == (
        "sink out cannot take rows that change",
        "updates by user",
        "final rows",
        (
            "call as_log() first, if each of these rows shall count as a row of its own; write them to a "
            "sink that takes them: DeltaSink(key=…), IcebergSink(key=…), KafkaSink(key=…) or "
            "PostgresSink(key=…)"
        ),
    )


def test_a_key_column_that_rows_lack_is_refused_with_the_one_that_may_be_meant() -> None:
    assert refusal(lambda: require_key_columns(["day", "User"], ["user", "day"], "table totals")) == (
        "key columns are not in the rows",
        "user, day",
        "day, User",
        "did you mean user?",
    )


@pytest.mark.parametrize("unknown", ["upsert", None])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_row_that_does_not_say_what_it_changes_is_refused(unknown: str | None, kind: pa.DataType) -> None:
    changes = pa.array(["insert", unknown], kind)
    assert refusal(lambda: require_changes(changes)) == (
        "a row does not say what it changes",
        unknown,
        "insert, delete, update_preimage, update_postimage",
        "correct it before the sink",
    )
    assert require_changes(changes[:1]).to_pylist() == ["insert"]
