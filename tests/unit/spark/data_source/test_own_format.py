"""A registered file format as an option of `format("lakestate")`, in processes that did not register it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from tests.support.sinks.sink_query import SinkQuery

import lakestate as ls
from lakestate.sinks import WriterState
from lakestate.sinks.formats import registry
from lakestate.spark.data_source import job, source

SCHEMA = pa.schema([("n", pa.int64()), ("country", pa.string())])


class NumbersWriter(ls.AppendingWriter):
    def __init__(self, schema: pa.Schema, unit: str, state: WriterState | None) -> None:
        super().__init__(schema, state)
        self._unit = unit

    def encode_rows(self, batch: pa.RecordBatch) -> bytes:
        return "".join(f'"{number} {self._unit}"\n' for number in batch["n"].to_pylist()).encode()


@dataclass(frozen=True)
class NumbersFormat(ls.FileFormat):
    name: ClassVar[str] = "numbers"
    unit_name: str = "m"

    @property
    def extension(self) -> str:
        return "txt"

    def open_writer(self, schema: pa.Schema, state: WriterState | None) -> NumbersWriter:
        return NumbersWriter(schema, self.unit_name, state)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_formats", dict(registry._formats))
    ls.register_file_format(NumbersFormat)


def forget_format() -> None:
    """What another process knows."""
    registry._formats.pop("numbers", None)
    job._open_job.cache_clear()


def rows(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": numbers, "country": ["DE"] * len(numbers)}, schema=SCHEMA)]


def query(folder: Path, **options: str) -> SinkQuery:
    return SinkQuery(
        folder, SCHEMA, {"format": "numbers", "partitionBy": "country", "rollInterval": "none", **options}
    )


def written_values(written: SinkQuery) -> list[str]:
    files = (written.folder / "out" / "country=DE").glob("part-*.txt")
    return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())


def test_a_registered_format_is_an_option_with_options_of_its_own(tmp_path: Path) -> None:
    written = query(tmp_path, unitName="km")
    written.run(0, [rows(1, 2), rows(3)])
    written.run(1, [rows(4)])
    ls.finish_files(**written.options)
    assert written_values(written) == ["1 km", "2 km", "3 km", "4 km"]


def test_tasks_write_a_format_that_their_process_did_not_register(tmp_path: Path) -> None:
    written = query(tmp_path)
    planned = written.planned()
    forget_format()
    message = written.written(planned, 0, 0, rows(1))
    written.commit([message], 0)
    ls.finish_files(**written.options)
    assert written_values(written) == ["1 m"]


def test_the_data_source_takes_registered_formats_along(tmp_path: Path) -> None:
    sent = cloudpickle.dumps(source._with_formats(registry.registered_formats(), pushes_filters=False))
    forget_format()
    written = query(tmp_path)
    options = {name.lower(): value for name, value in written.options.items()}
    arrived = cloudpickle.loads(sent)(options)
    arrived.streamWriter(written.schema, overwrite=False)
    assert registry.file_formats()["numbers"] is NumbersFormat


def test_an_option_of_another_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(ls.InvalidInputError, match="the format parquet has no such option: option unitName"):
        query(tmp_path, format="parquet", unitName="km").planned()
    with pytest.raises(ls.InvalidInputError, match="the format numbers has no such option: option rowGroup"):
        query(tmp_path, rowGroupSize="1MB").planned()
