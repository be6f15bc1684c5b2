"""Declarations of columns: what people write, what Arrow gets, what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakestate.errors import InvalidInputError
from lakestate.protocol.metadata import Column
from lakestate.tables.arrow.schema import arrow_type, columns_of, ddl_of

EVERY_TYPE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(12,3)": pa.decimal128(12, 3),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<int>": pa.list_(pa.field("element", pa.int32())),
    "map<string,array<double>>": pa.map_(pa.string(), pa.list_(pa.field("element", pa.float64()))),
    "struct<a:int,b:struct<c:string>>": pa.struct(
        [("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]
    ),
}


@pytest.mark.parametrize("ddl", EVERY_TYPE)
def test_a_type_in_words_and_in_arrow_are_the_same_type(ddl: str) -> None:
    assert arrow_type(ddl) == EVERY_TYPE[ddl]
    assert ddl_of(EVERY_TYPE[ddl]) == ddl


def test_a_declaration_is_read_as_spark_reads_it() -> None:
    columns = columns_of(
        "`user name` STRING NOT NULL, n Long, tags array < string >, d decimal", what="value"
    )
    assert columns == (
        Column("user name", "string", nullable=False),
        Column("n", "bigint"),
        Column("tags", "array<string>"),
        Column("d", "decimal(10,0)"),
    )


def test_an_arrow_schema_is_a_declaration_too() -> None:
    schema = pa.schema([pa.field("a", pa.large_string(), nullable=False), ("b", pa.int64())])
    assert columns_of(schema, what="key") == (Column("a", "string", nullable=False), Column("b", "bigint"))


@pytest.mark.parametrize("name", ["my field", "a string", "größe", "x-y", "a int,b", "a`b", "1a", "a.b", "9"])
def test_a_field_of_a_struct_may_have_any_name(name: str) -> None:
    struct = pa.struct([pa.field(name, pa.int32()), pa.field("n", pa.list_(pa.struct([(name, pa.int64())])))])
    (column,) = columns_of(pa.schema([("s", struct)]), what="value")
    parsed = arrow_type(column.type)
    assert [field.name for field in parsed] == [name, "n"]
    assert [field.name for field in parsed.field("n").type.value_type] == [name]
    quoted = name.replace("`", "``")
    assert columns_of(f"s struct<`{quoted}`:int,n:array<struct<`{quoted}`:bigint>>>", what="value") == (
        column,
    )
    assert columns_of(f"`{quoted}` int", what="value") == (Column(name, "int"),)


def test_a_name_is_quoted_in_words_only_where_it_has_to_be() -> None:
    struct = pa.struct([("a", pa.int32()), ("a.b", pa.int32()), ("a b", pa.int32())])
    assert ddl_of(struct) == "struct<a:int,a.b:int,`a b`:int>"


@pytest.mark.parametrize("type_", [pa.decimal128(5, -2), pa.decimal256(60, 2), pa.struct([("", pa.int32())])])
def test_an_arrow_type_that_cannot_be_written_in_words_is_refused_where_it_is_declared(
    type_: pa.DataType,
) -> None:
    with pytest.raises(InvalidInputError, match="not a declaration of value columns"):
        columns_of(pa.schema([("v", type_)]), what="value")


@pytest.mark.parametrize(
    "declaration",
    [
        "",
        "user",
        "user strin",
        "user string,",
        "user string n bigint",
        "a int, a int",
        "__key bigint",
        "d decimal(40,2)",
        "d decimal(5,6)",
        "a array<int",
        "a map<int>",
        "s struct<a>",
        "a int; drop table b",
        "a int not",
        42,
    ],
)
def test_what_is_not_a_declaration_is_refused_with_its_text(declaration: str) -> None:
    with pytest.raises(InvalidInputError, match=r"columns"):
        columns_of(declaration, what="value")


def test_an_arrow_type_that_spark_has_not_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="uint32"):
        columns_of(pa.schema([("a", pa.uint32())]), what="value")
