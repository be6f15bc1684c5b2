"""A large file that is read in pieces has the rows of the whole, and each of its bytes is verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from tests.support.jobs.table_job import TableJob
from tests.support.small_files import shape_as_large

import lakestate as ls
from lakestate.job.objects import JobObjects
from lakestate.protocol.values import FileRef
from lakestate.storage.store import ByteRange
from lakestate.tables.runs import decode, partial_read
from lakestate.tables.runs.decode import decode_hashed_run
from lakestate.tables.runs.partial_read import FilePieces, read_whole
from lakestate.testing import FaultyStore

TABLE = ls.KeyedTable("t", key="k bigint", value="name string, tags array<string>, n bigint")
COUNT = 40
PIECE_BYTES = 2048


@pytest.fixture
def job() -> Iterator[TableJob]:
    """One file of many row groups, which is large enough to be read in pieces."""
    with shape_as_large(), patch.object(partial_read, "PIECE_BYTES", PIECE_BYTES):
        job = TableJob([TABLE], caches=False)
        job.managers[0].keyed("t").put(_rows())
        job.checkpoint()
        yield job
        job.close()


def _rows() -> pa.Table:
    numbers = range(COUNT)
    names, tags = [f"name {number}" for number in numbers], [["a"] * (number % 3) for number in numbers]
    return pa.table({"k": numbers, "name": names, "tags": tags, "n": numbers})


def _file(job: TableJob) -> FileRef:
    found = job.backend.load_operator_metadata("job", 1, "op")[0].table("t")
    assert found is not None
    return found.files[0]


def _decoded(file: FileRef, objects: JobObjects) -> pa.Table:
    data = read_whole(file, objects)
    assert isinstance(data, FilePieces)
    return decode_hashed_run(data, TABLE.layout, objects.url_of(file.path), file.row_count)[0]


def _at_once(file: FileRef, objects: JobObjects) -> pa.Table:
    with patch.object(partial_read, "PIECE_BYTES", file.size_bytes):
        data = read_whole(file, objects)
    assert isinstance(data, pa.Buffer)
    return decode_hashed_run(data, TABLE.layout, objects.url_of(file.path), file.row_count)[0]


@pytest.mark.parametrize("threaded_bytes_min", [0, 1 << 30], ids=["in parts", "whole"])
@pytest.mark.parametrize("piece_bytes", [1, PIECE_BYTES, 1 << 12])
def test_pieces_of_any_length_have_the_rows_of_the_whole(
    job: TableJob, piece_bytes: int, threaded_bytes_min: int
) -> None:
    file, objects = _file(job), job.backend.objects("job")
    with patch.object(decode, "THREADED_BYTES_MIN", threaded_bytes_min):
        expected = _at_once(file, objects)
        assert expected.num_rows == COUNT
        with patch.object(partial_read, "PIECE_BYTES", piece_bytes):
            assert _decoded(file, objects).equals(expected)


def test_the_view_of_a_file_in_pieces_finds_its_rows(job: TableJob) -> None:
    (manager,) = job.opened(job.epoch)
    assert manager.keyed("t").get(pa.table({"k": [3, 99]})).column("name").to_pylist() == ["name 3", None]
    assert sorted(manager.keyed("t").to_pylist(), key=lambda row: row["k"]) == _rows().to_pylist()


def test_every_byte_is_asked_for_once(job: TableJob) -> None:
    file = _file(job)
    asked: list[ByteRange] = []

    class Recorded(FaultyStore):
        def get_ranges(self, path: str, spans: Sequence[ByteRange]) -> Any:
            asked.extend(spans)
            return super().get_ranges(path, spans)

    objects = job.backend.objects("job")
    read_whole(file, replace(objects, store=Recorded(objects.store)))
    spans = sorted(asked, key=lambda span: span.start)
    ends = [span.start + span.length for span in spans]
    assert [span.start for span in spans] == [0, *ends[:-1]]
    assert ends[-1] == file.size_bytes
    assert len(spans) > 2
    assert all(span.length <= PIECE_BYTES for span in spans[:-1])


def test_whichever_byte_is_damaged_the_file_is_named(job: TableJob) -> None:
    file, objects = _file(job), job.backend.objects("job")
    path = objects.store_path(file.path)
    sound = bytes(objects.store.get(path).data)
    for place in (*range(0, len(sound), 7), 0, 3, len(sound) - 1):
        objects.store.put(path, sound[:place] + bytes([sound[place] ^ 0x10]) + sound[place + 1 :])
        with pytest.raises(ls.CorruptionError, match=f"does not match its checksum: .*{file.path}"):
            read_whole(file, objects)
    objects.store.put(path, sound)
    assert _decoded(file, objects).num_rows == COUNT


def test_a_file_that_is_cut_short_or_gone_is_named(job: TableJob) -> None:
    file, objects = _file(job), job.backend.objects("job")
    path = objects.store_path(file.path)
    objects.store.put(path, objects.store.get(path).data[:-1])
    with pytest.raises(ls.CorruptionError, match=f"does not have the size.*{file.path}"):
        read_whole(file, objects)
    objects.store.delete_many([path])
    with pytest.raises(ls.CorruptionError, match=f"missing: .*{file.path}"):
        read_whole(file, objects)
