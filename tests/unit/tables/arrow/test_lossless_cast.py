"""Columns in declared types: cast where nothing is lost, refused where something would be."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

import lakestate as ls
from lakestate.errors import InvalidInputError, OperatorError
from lakestate.runtime.conform import conform_input, conform_output
from lakestate.tables.arrow.conform import conform_columns
from lakestate.tables.arrow.schema import arrow_type
from lakestate.testing.operator_harness import OperatorHarness

INT = pa.int32()
LAT_LON = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])


def cast(column: pa.Array, ddl: str) -> list[object]:
    """As a view does with the columns that it is given."""
    (kept,) = conform_columns(pa.table({"v": column}), [pa.field("v", arrow_type(ddl))], "put into t")
    kept.validate(full=True)
    assert kept.type == arrow_type(ddl)
    values: list[object] = kept.to_pylist()
    return values


def struct(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


STRUCTS = [
    (struct(a=INT, b=INT, c=INT), "struct<a:int,b:int>", "v; found a, b, c; expected a, b"),
    (struct(a=INT), "struct<a:int,b:int>", "v; found a; expected a, b"),
    (struct(a=INT, B=INT), "struct<a:int,b:int>", "v; found a, B; expected a, b"),
    (pa.struct([("a", INT), ("a", INT)]), "struct<a:int,b:int>", "v; found a, a; expected a, b"),
    (pa.list_(struct(c=INT)), "array<struct<a:int>>", "v.element; found c; expected a"),
    (pa.large_list(struct(c=INT)), "array<struct<a:int>>", "v.element; found c; expected a"),
    (pa.map_(INT, struct(c=INT)), "map<int,struct<a:int>>", "v.value; found c; expected a"),
    (pa.map_(struct(c=INT), INT), "map<struct<a:int>,int>", "v.key; found c; expected a"),
    (pa.map_(INT, INT), "array<struct<k:int,value:int>>", "v.element; found key, value; expected k, value"),
    (
        struct(a=pa.list_(pa.map_(INT, struct(x=INT)))),
        "struct<a:array<map<int,struct<y:int>>>>",
        "v.a.element.value; found x; expected y",
    ),
]


@pytest.mark.parametrize(("found", "declared", "message"), STRUCTS, ids=[case[1] for case in STRUCTS])
@pytest.mark.parametrize("count", [0, 1])
def test_a_struct_with_other_fields_is_refused_wherever_it_is(
    found: pa.DataType, declared: str, message: str, count: int
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        cast(pa.nulls(count, found), declared)
    assert str(refused.value).startswith(
        f"put into t: a struct has other fields: {message}; give every field"
    )


def test_the_fields_of_a_struct_may_come_in_another_order_and_in_other_types() -> None:
    given = pa.array([{"b": 2, "a": 1}, None], struct(b=pa.int64(), a=pa.int16()))
    assert cast(given, "struct<a:int,b:int>") == [{"a": 1, "b": 2}, None]
    lists = pa.array([[{"b": 2.5, "a": None}], None, []], pa.large_list(struct(b=pa.float64(), a=pa.null())))
    assert cast(lists, "array<struct<a:int,b:float>>") == [[{"a": None, "b": 2.5}], None, []]


LONG = Decimal("12345678901234567891")
DAY_AND_HOUR = dt.datetime(2020, 1, 1, 10)
LOST = [
    (pa.array([1.0, 1e300]), "float", "v; found 1e+300 of type double; expected float"),
    (pa.array([-1e300]), "float", "v; found -1e+300"),
    (pa.array(["1e300"]), "float", "v; found 1e300 of type string"),
    (pa.array([Decimal(10) ** 60]), "float", "v; found 1"),
    (pa.array([[1.0], None, [1e300]]), "array<float>", "v.element; found 1e+300"),
    (pa.array([{"x": {"y": 1e300}}]), "struct<x:struct<y:float>>", "v.x.y; found 1e+300"),
    (pa.array([[(1, 1e300)]], pa.map_(INT, pa.float64())), "map<int,float>", "v.value; found 1e+300"),
    (pa.array([[(1e300, 1)]], pa.map_(pa.float64(), INT)), "map<float,int>", "v.key; found 1e+300"),
    (pa.array([1e300]).dictionary_encode(), "float", "v; found 1e+300"),
    (
        pa.StructArray.from_arrays([pa.array([1e300]).dictionary_encode()], ["x"]),
        "struct<x:float>",
        "v.x; found 1e+300",
    ),
    (pa.array([0, 1, 5]), "boolean", "v; found 5 of type int64; expected bool"),
    (pa.array([math.nan]), "boolean", "v; found nan"),
    (pa.array([DAY_AND_HOUR]), "date", "v; found 2020-01-01 10:00:00"),
    (pa.array([DAY_AND_HOUR], pa.timestamp("us", "Europe/Berlin")), "date", "v; found 2020-01-01 11:00:00"),
    (pa.array([1.5, 1.555]), "decimal(10,2)", "v; found 1.555 of type double"),
    (pa.array([Decimal(1), LONG]), "double", "v; found 12345678901234567891 of type decimal128(20, 0)"),
    (pa.array([[{"x": LONG}]]), "array<struct<x:double>>", "v.element.x; found 12345678901234567891"),
    (pa.array([LONG]).dictionary_encode(), "double", "v; found 12345678901234567891"),
    (pa.array([Decimal("16777217")]), "float", "v; found 16777217"),
    (pa.array(["9007199254740993"]), "double", "v; found 9007199254740993 of type string"),
    (pa.array(["0.1", None, "3.14159265"], pa.large_string()), "float", "v; found 3.14159265"),
    (pa.array(["0.1000000000000000055"]), "double", "v; found 0.1000000000000000055"),
    (pa.array(["1e-400"]), "double", "v; found 1e-400"),
    (pa.array(["1.2345e-322"]), "double", "v; found 1.2345e-322"),
    (pa.array([0.0, -1e-50]), "float", "v; found -1e-50 of type double"),
    (pa.array(["1e-60"]), "float", "v; found 1e-60"),
]


@pytest.mark.parametrize(
    ("column", "declared", "message"), LOST, ids=[f"{case[0].type} to {case[1]}" for case in LOST]
)
def test_a_value_that_would_not_be_the_same_is_refused(column: pa.Array, declared: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        cast(column, declared)
    assert str(refused.value).startswith(f"put into t: a value does not fit its column: {message}")


DOUBLES = [0.1, 0.1 + 0.2, 1e22, 5e-324, 1.7976931348623157e308, -123456.789, 0.0, 2.0**53, 1 / 3]
PRICES = pa.map_(pa.string(), pa.decimal128(4, 2))
KEPT = [
    (pa.array([math.inf, -math.inf, 0.5, None]), "float", [math.inf, -math.inf, 0.5, None]),
    (pa.array(["inf", "-Infinity", "2"]), "double", [math.inf, -math.inf, 2.0]),
    (pa.array([0.5], pa.float16()), "float", [0.5]),
    (pa.array([0.0, -0.0, 2**-149]), "float", None),
    (pa.array(["0.1", "+1.50", "1E+05", ".5", None]), "double", [0.1, 1.5, 1e5, 0.5, None]),
    (pa.array([repr(value) for value in DOUBLES]), "double", DOUBLES),
    (pa.array([f"{value:e}" for value in (0.5, 2e300)]), "double", [0.5, 2e300]),
    (pa.array([Decimal("0.07"), None], pa.decimal128(38, 18)), "double", [0.07, None]),
    (pa.array([[Decimal("0.07")], None]), "array<double>", [[0.07], None]),
    (pa.array([{"x": Decimal("0.07")}]), "struct<x:double>", [{"x": 0.07}]),
    (pa.array([Decimal("0.07")]).dictionary_encode(), "double", [0.07]),
    (pa.array([[("a", Decimal("0.07"))]], PRICES), "map<string,double>", [[("a", 0.07)]]),
    (pa.array([Decimal("0.5")], pa.decimal256(60, 2)), "float", [0.5]),
    (pa.array([0, 1, None]), "boolean", [False, True, None]),
    (pa.array([dt.datetime(2020, 1, 1)]), "date", [dt.date(2020, 1, 1)]),
    (pa.array([DAY_AND_HOUR]), "timestamp", [DAY_AND_HOUR.replace(tzinfo=dt.UTC)]),
    (pa.array([DAY_AND_HOUR], pa.timestamp("us", "Europe/Berlin")), "timestamp_ntz", [DAY_AND_HOUR]),
    (pa.array(["2020-01-01 12:00+02:00"]), "timestamp", [DAY_AND_HOUR.replace(tzinfo=dt.UTC)]),
    (pa.array([0.1 + 0.2, 1 - 0.9 - 0.1, None]), "decimal(10,2)", [Decimal("0.30"), Decimal("0.00"), None]),
    (pa.array([0.1], pa.float32()), "decimal(10,2)", [Decimal("0.10")]),
    (pa.array([[("a", 1.5)], None], pa.map_(pa.large_string(), pa.float64())), "map<string,float>", None),
    (pa.array([[1.5], None], pa.list_(pa.float64(), 1)), "array<float>", None),
    (pa.array([[], [None]]), "array<struct<a:int>>", None),
    (pa.array([None]), "struct<a:int>", None),
]


@pytest.mark.parametrize(
    ("column", "declared", "kept"), KEPT, ids=[f"{case[0].type} to {case[1]}" for case in KEPT]
)
def test_a_value_that_stays_the_same_is_cast(
    column: pa.Array, declared: str, kept: list[object] | None
) -> None:
    assert cast(column, declared) == (column.to_pylist() if kept is None else kept)


def test_text_without_an_offset_is_not_a_timestamp() -> None:
    with pytest.raises(InvalidInputError, match="expected a zone offset"):
        cast(pa.array(["2020-01-01 12:00"]), "timestamp")


def test_a_decimal_becomes_the_double_that_is_nearest_to_it() -> None:
    prices = [Decimal(cents).scaleb(-2) for cents in range(-2000, 2000)]
    assert cast(pa.array(prices), "double") == [float(price) for price in prices]


def test_two_keys_are_not_made_one() -> None:
    table = ls.KeyedTable("t", key="account double", value="n int")
    backend = ls.ParquetBackend("memory://two-keys")
    view = ls.TableManager.load(ls.TaskInfo("j", "o"), [table], backend, None).keyed("t")
    with pytest.raises(InvalidInputError, match="account; found 12345678901234567890"):
        view.put(pa.table({"account": pa.array([LONG - 1, LONG]), "n": [1, 2]}))


def test_what_is_hidden_behind_a_null_or_outside_a_slice_is_not_looked_at() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2]), pa.array([1e300, 1.0]), mask=pa.array([True, False])
    )
    assert cast(hidden, "array<float>") == [None, [1.0]]
    values = pa.array([[("a", 1e300)], [("b", 1.0)]], pa.map_(pa.string(), pa.float64()))
    assert cast(values.slice(1), "map<string,float>") == [[("b", 1.0)]]
    masked = pa.StructArray.from_arrays([pa.array([1e300, 1.0])], ["x"], mask=pa.array([True, False]))
    assert cast(masked, "struct<x:float>") == [None, {"x": 1.0}]


def test_views_of_lists_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="v; found list_view"):
        cast(pa.array([[1], [2, 3]], pa.list_view(pa.int64())), "array<bigint>")


def test_an_operator_that_names_a_field_otherwise_than_declared_fails() -> None:
    class Places(ls.Operator):
        output = "k bigint, v array<struct<lat:double,lon:double>>"

        def process_batch(self, batch, ctx):
            yield pa.table({"k": batch["k"], "v": [[{"lat": 1.0, "long": 2.0}]]})

    with pytest.raises(OperatorError, match=r"v\.element; found lat, long; expected lat, lon"):
        OperatorHarness(Places()).epoch([{"k": 1}])


def test_an_operator_is_given_only_the_fields_that_it_asked_for() -> None:
    class Latitudes(ls.Operator):
        input = output = "v array<struct<lat:double>>, m map<string,struct<b:bigint>>"

        def process_batch(self, batch, ctx):
            yield batch

    rows = pa.table(
        {
            "v": pa.array([[{"lat": 1.0, "lon": 2.0}]], pa.list_(LAT_LON)),
            "m": pa.array([[("k", {"a": 1, "b": 2})]], pa.map_(pa.string(), struct(a=INT, b=INT))),
        }
    )
    found = OperatorHarness(Latitudes()).epoch(rows)
    assert found == [{"v": [{"lat": 1.0}], "m": [("k", {"b": 2})]}]


def test_an_operator_is_not_given_null_for_a_field_that_the_rows_do_not_have() -> None:
    batch = pa.record_batch({"v": pa.array([{"lat": 1.0, "lon": 2.0}], LAT_LON)})
    schema = pa.schema([("v", struct(lat=pa.float64(), height=pa.float64()))])
    with pytest.raises(OperatorError, match="v; found lat; expected lat, height"):
        conform_input(batch, schema, "input of op")
    with pytest.raises(OperatorError, match="v; found lat, lon; expected lat"):
        conform_output(batch, pa.schema([("v", struct(lat=pa.float64()))]), "op")
