"""A file format defined outside the package: registered, written exactly once, read back."""

from __future__ import annotations

import pickle
import re
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.csv
import pytest
from tests.support.repository import ROOT
from tests.support.sinks.sink_job import JOB, SINK, SinkJob, expected_rows, numbered_rows

import lakestate as ls
from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.sinks import WriterState
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.sinks.formats import registry
from lakestate.storage import ObjectStore, open_store
from lakestate.testing.faults import Fault, FaultyStore, Hook, faults_at, no_faults

MAGIC, END = b"rows\n", b"\xc0"
EPOCHS, PARALLELISM = 4, 2
ROWS = numbered_rows(60)


class PackedWriter(ls.AppendingWriter):
    """A header, one MessagePack map per row, and nil at the end."""

    def encode_rows(self, batch: pa.RecordBatch) -> bytes:
        return b"".join(map(msgspec.msgpack.encode, batch.to_pylist()))

    def header(self) -> bytes:
        return MAGIC

    def footer(self) -> bytes:
        return END


@dataclass(frozen=True)
class PackedFormat(ls.FileFormat):
    name: ClassVar[str] = "packed"
    shift: int = 0

    @property
    def extension(self) -> str:
        return "packed"

    def check(self, schema: pa.Schema) -> None:
        if "row" not in schema.names:
            raise InvalidInputError("packed rows are numbered", found=schema.names)

    def open_writer(self, schema: pa.Schema, state: WriterState | None) -> PackedWriter:
        return PackedWriter(schema, state)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_formats", dict(registry._formats))
    ls.register_file_format(PackedFormat)


def packed_sink(url: str, **settings: Any) -> ls.FileSink:
    return ls.FileSink(
        url,
        format="packed",
        partition_by=["country"],
        roll=ls.Roll(bytes="4KB", interval=None),
        part_bytes=1_000,
        upload_threads=0,
        **settings,
    )


def unpacked(data: bytes) -> list[dict[str, Any]]:
    assert data.startswith(MAGIC), "a file has its header"
    assert data.endswith(END), "a file has its end"
    # Each row is a map of two fields, which ends where the next begins.
    packed = re.split(rb"(?=\x82\xa3row)", data[len(MAGIC) : -len(END)])[1:]
    return [msgspec.msgpack.decode(row) for row in packed]


def check_files(files: dict[str, bytes], epochs: int = EPOCHS) -> None:
    """Each row is in one file, in the folder of its partition."""
    found = {path: unpacked(data) for path, data in files.items()}
    assert sorted(row["row"] for rows in found.values() for row in rows) == expected_rows(
        ROWS, epochs, PARALLELISM
    )
    fingerprint = sink_fingerprint(JOB, SINK, "")
    for path, rows in found.items():
        country = ["DE", "FR"][rows[0]["row"] % 2]
        assert re.fullmatch(rf"country={country}/part-{fingerprint}-\d+-\d+-[\w-]+\.packed", path)
        assert len({row["row"] % 2 for row in rows}) == 1


def stored_files(store: ObjectStore) -> dict[str, bytes]:
    paths = [info.path for info in store.list() if not info.path.startswith("_")]
    return {path: store.get(path).data for path in paths}


def local_files(root: Path) -> dict[str, bytes]:
    files = [file for file in root.rglob("*.packed") if ".lakestate" not in file.parts]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


@dataclass
class Processes:
    """Sinks on one store, each of a process of its own; the calls of all are counted through."""

    inner: ObjectStore = field(default_factory=lambda: open_store(f"memory://{uuid.uuid4().hex}"))
    hook: Hook = no_faults
    calls: list[str] = field(default_factory=list)

    def open_sink(self) -> ls.FileSink:
        sink = packed_sink(self.inner.url)
        sink.__dict__["store"] = FaultyStore(self.inner, self._count)
        return sink

    def _count(self, operation: object, path: str) -> Fault:
        self.calls.append(path)
        return self.hook(operation, path)  # type: ignore[arg-type]


@pytest.mark.slow
def test_rows_are_written_once_into_a_store_after_a_crash_at_any_call() -> None:
    whole = Processes()
    SinkJob(whole.open_sink, ROWS, PARALLELISM).run_to(EPOCHS)
    check_files(stored_files(whole.inner))
    assert len(whole.calls) > 20
    for number in range(len(whole.calls)):
        crashed = Processes(hook=faults_at({number: Fault.CRASH_AFTER}))
        job = SinkJob(crashed.open_sink, ROWS, PARALLELISM)
        job.run_to(EPOCHS)
        assert job.failures, "it crashed"
        check_files(stored_files(crashed.inner))
        assert list(crashed.inner.uploads.list_dangling()) == []


@pytest.mark.parametrize("die", ["while writing", "before publishing", "before the commit"])
def test_rows_are_written_once_into_local_files_after_a_crash_in_every_epoch(
    tmp_path: Path, die: str
) -> None:
    sent = pickle.dumps(packed_sink(f"file://{tmp_path}"))
    job = SinkJob(lambda: pickle.loads(sent), ROWS, PARALLELISM)
    while job.published.epoch < EPOCHS:
        lost = job.attempt(0)
        if die == "while writing":
            lost.writer.write(lost.batch)
        elif die == "before publishing":
            lost.finish()
        lost.writer.abandon()
        views = [
            job.attempt(subtask).finish(finish_files=job.published.epoch == EPOCHS - 1)
            for subtask in range(PARALLELISM)
        ]
        job.publish(views)
        if die != "before the commit":
            job.commit()
        job.commit()
        job.clean_up()
    check_files(local_files(tmp_path))
    assert LocalOutput(tmp_path).hidden_files() == []


def test_a_file_of_the_format_stays_open_across_epochs(tmp_path: Path) -> None:
    sink = ls.FileSink(f"file://{tmp_path}", format=PackedFormat(), roll=ls.Roll(interval=None))
    job = SinkJob(lambda: sink, ROWS, parallelism=1)
    job.run_to(3)
    [data] = local_files(tmp_path).values()
    assert len(re.findall(rb"\xa3row", data)) == 3 * 60
    assert (data.count(MAGIC), data.endswith(END)) == (1, True)


def test_a_setting_cannot_change_while_files_are_open(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    job = SinkJob(lambda: ls.FileSink(url, format=PackedFormat(shift=0)), ROWS, parallelism=1)
    job.run_to(1, finish_files=False)
    job.open_sink = lambda: ls.FileSink(url, format=PackedFormat(shift=1))
    with pytest.raises(IncompatibleStateError, match="a file was begun in another format"):
        job.attempt(0)


def test_the_format_refuses_rows_before_anything_starts() -> None:
    with pytest.raises(InvalidInputError, match="packed rows are numbered"):
        packed_sink("memory://x").check(pa.schema([("country", pa.string()), ("n", pa.int64())]))


def test_a_writer_that_returns_no_statistics_is_refused_before_its_epoch_is_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(PackedWriter, "finish", lambda self: None)
    job = SinkJob(lambda: packed_sink(f"file://{tmp_path}"), ROWS, PARALLELISM)
    with pytest.raises(InvalidInputError, match="has no statistics"):
        job.attempt(0).finish(finish_files=True)


def test_an_extension_that_is_a_path_is_refused() -> None:
    outside = type("Outside", (PackedFormat,), {"extension": "x/../../y"})
    with pytest.raises(InvalidInputError, match="not an extension of file names"):
        ls.FileSink("file:///data/out", format=outside())


def another(name: Any) -> type[ls.FileFormat]:
    return type("Another", (PackedFormat,), {"name": name})


@pytest.mark.parametrize("name", ["parquet", "json", "packed"])
def test_the_name_of_another_format_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"a file format of this name exists: {name}"):
        ls.register_file_format(another(name))


@pytest.mark.parametrize("name", ["", "CSV", "a-b", "1st", "x" * 40, None, 7])
def test_a_name_that_nobody_could_write_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInputError, match="not the name of a file format"):
        ls.register_file_format(another(name))


def test_a_class_can_be_registered_again() -> None:
    for _ in range(2):
        assert ls.register_file_format(PackedFormat) is PackedFormat


def test_an_unknown_format_is_named_with_those_that_exist() -> None:
    with pytest.raises(InvalidInputError, match="found 'avro'; expected parquet, json, packed"):
        ls.FileSink("file:///data/out", format="avro")


@pytest.fixture
def page_example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the example in the documentation defines."""
    page = (ROOT / "docs" / "sinks.md").read_text()
    section = page.split("## Write your own file format\n")[1].split("\n## ")[0]
    example = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", example)
    for _ in range(2):
        exec(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0], vars(example))
    return vars(example)


def test_the_format_that_the_page_shows_writes_csv(tmp_path: Path, page_example: dict[str, Any]) -> None:
    shown: ls.FileSink = page_example["out"]
    format_class: Callable[..., ls.FileFormat] = page_example["CsvFormat"]
    assert shown.format == format_class()
    url = f"file://{tmp_path}"
    sink = ls.FileSink(url, format=format_class(delimiter=";"), partition_by=["country"])
    SinkJob(lambda: sink, ROWS, PARALLELISM).run_to(3)
    options = pa.csv.ParseOptions(delimiter=";")
    found = [pa.csv.read_csv(file, parse_options=options) for file in tmp_path.rglob("part-*.csv")]
    assert {tuple(table.column_names) for table in found} == {("row", "text")}
    numbers = [number for table in found for number in table["row"].to_pylist()]
    assert sorted(numbers) == expected_rows(ROWS, 3, PARALLELISM)
