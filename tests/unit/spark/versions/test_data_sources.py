"""What older versions of Spark lack of Python data sources. A pyspark without the modules stands for one."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pyspark
import pytest

pytest.importorskip("pyspark.sql.datasource")

from lakestate.errors import InvalidInputError

NAME = "lakestate.spark.versions.data_sources"


def import_again(monkeypatch: pytest.MonkeyPatch, version: str) -> ModuleType:
    """The module as a program on that version imports it."""
    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return importlib.import_module(NAME)


def test_on_3_5_the_format_says_which_version_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    with pytest.raises(InvalidInputError) as raised:
        import_again(monkeypatch, "3.5.9")
    assert str(raised.value) == (
        'format("lakestate") needs a newer Spark; found Spark 3.5.9; expected Spark 4.0 or later; '
        "write with a Pipeline, and read with ls.open or the command line, which need no newer Spark "
        "[invalid_input]"
    )


def test_on_4_0_a_stream_writer_is_one_that_spark_gives_arrow_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark.sql import datasource

    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter", raising=False)
    writer = import_again(monkeypatch, "4.0.5").DataSourceStreamArrowWriter
    assert writer.__bases__ == (datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter)


def test_before_4_2_a_stream_of_changes_says_which_version_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    module = import_again(monkeypatch, "4.1.4")
    with pytest.raises(InvalidInputError) as raised:
        module.require_read_limits("a stream", "read a table")
    assert str(raised.value) == (
        "a stream needs a newer Spark; found Spark 4.1.4; expected Spark 4.2 or later; read a table "
        "[invalid_input]"
    )
