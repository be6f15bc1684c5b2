"""What is not committed has names that no reader's pattern matches, and files of older versions continue."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.sinks.sink_files import NEVER, file_sink_job, visible_files, visible_rows
from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

from lakestate.config import StoreConfig
from lakestate.sinks import JsonLinesSink, ParquetSink
from lakestate.sinks.files import lanes, uploads
from lakestate.sinks.files.lanes import LANES_FOLDER, LaneNames
from lakestate.sinks.files.local import destinations
from lakestate.sinks.files.local.attempts import Attempt
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.sink import FileSink
from lakestate.storage import open_store
from lakestate.storage.multipart import part_objects
from lakestate.storage.remote.client import RemoteClient

ROWS = numbered_rows(200)
FORMATS = pytest.mark.parametrize("extension", ["parquet", "json", "json.gz"])


def open_sink(url: str, extension: str) -> FileSink:
    names = {"prefix": "events", "suffix": "-v2"}
    if extension == "parquet":
        return ParquetSink(url, roll=NEVER, kept_row_bytes=0, part_bytes=500, upload_threads=0, **names)
    compression = "gzip" if extension == "json.gz" else "none"
    return JsonLinesSink(url, roll=NEVER, part_bytes=500, upload_threads=0, compression=compression, **names)


def patterns(extension: str) -> list[str]:
    first = extension.partition(".")[0]
    return [f"*.{first}*", f"*{first}*", f"*.{extension}", "events*", "*events-*", "*-v2*", "part-*"]


def run_with_failures(job: SinkJob) -> Iterator[None]:
    """The moments at which something is unfinished: open, copied by a failed attempt, finished."""
    job.run_to(2, finish_files=False)
    yield
    job.attempt(0).finish()
    job.run_to(3, finish_files=False)
    yield
    job.publish([job.attempt(0).finish(finish_files=True)])
    yield


def matching(names: list[str], extension: str) -> list[str]:
    """Patterns may be matched against a name or a whole path, in which a star means slashes too."""
    return [
        name
        for name in names
        for pattern in patterns(extension)
        if any(fnmatch(part, pattern) for part in name.split("/")) or fnmatch(name, pattern)
    ]


@FORMATS
def test_no_pattern_matches_a_hidden_local_file(tmp_path: Path, extension: str) -> None:
    job = SinkJob(lambda: open_sink(f"file://{tmp_path}/out", extension), ROWS, parallelism=1)
    for _ in run_with_failures(job):
        root = tmp_path / "out"
        found = [str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()]
        assert found
        assert matching(found, extension) == []


@FORMATS
def test_no_pattern_matches_a_hidden_object(extension: str) -> None:
    """As on Google and Azure, where parts are objects."""
    url = f"memory://{uuid.uuid4().hex}"
    job = SinkJob(lambda: open_sink(url, extension), ROWS, parallelism=1)
    for _ in run_with_failures(job):
        found = [info.path for info in RemoteClient(StoreConfig(url)).list("")]
        assert {path.split("/")[1] for path in found} >= {"uploads"}
        assert matching(found, extension) == []


def test_claims_of_lanes_are_empty() -> None:
    """Polars reads a prefix with everything in it, except for objects without content."""
    url = f"memory://{uuid.uuid4().hex}"
    SinkJob(lambda: open_sink(url, "parquet"), ROWS, parallelism=1).run_to(3, finish_files=False)
    claims = list(open_store(url).list(f"{LANES_FOLDER}/"))
    assert claims
    assert {info.size_bytes for info in claims} == {0}


def name_as_before(patch: pytest.MonkeyPatch) -> None:
    """Hidden things are named as by versions that gave them the names of their files."""
    begun: set[str] = set()

    def name_without_attempt(attempt: Attempt, file: str) -> str:
        if file in begun:
            return f"{file}.{attempt.unique}"
        begun.add(file)
        return file

    patch.setattr(destinations, "hidden_name", lambda path: path.rpartition("/")[2])
    patch.setattr(Attempt, "hidden_name", name_without_attempt)
    patch.setattr(part_objects, "new_token", lambda unique: unique)
    real = uploads.UploadResumePoint
    patch.setattr(uploads, "UploadResumePoint", lambda *found, lane_names=LaneNames.FILE: real(*found[:3]))


@pytest.mark.parametrize("fails", [False, True], ids=["continued", "copied"])
def test_a_local_file_that_an_older_version_began_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    job = file_sink_job(tmp_path, lambda url: ParquetSink(url, roll=NEVER, kept_row_bytes=0), 1)
    with monkeypatch.context() as patch:
        name_as_before(patch)
        job.run_epoch()
        if fails:
            job.attempt(0).finish()
        job.run_epoch()
    before = LocalOutput(tmp_path).hidden_files()
    assert all(".parquet" in name for name in before)
    if fails:
        job.attempt(0).finish()
    job.run_to(4)
    assert visible_rows(tmp_path) == expected_rows(job.rows, 4, 1)
    assert LocalOutput(tmp_path).hidden_files() == []
    assert len(visible_files(tmp_path)) == 1


def test_an_upload_that_an_older_version_began_continues_with_its_lanes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    job = SinkJob(lambda: open_sink(url, "parquet"), ROWS, parallelism=1)
    store = open_store(url)
    with monkeypatch.context() as patch:
        name_as_before(patch)
        job.run_to(2, finish_files=False)
        zombie = job.attempt(0)
        zombie.finish()
    [upload] = [each.upload for each in store.uploads.list_dangling()]
    folder = lanes.lane_folder(upload.path, LaneNames.FILE)
    claimed = [info.path for info in store.list(folder)]
    job.run_to(3, finish_files=False)
    assert len(list(store.list(folder))) > len(claimed), "no lane of the zombie is used again"
    job.run_to(4)
    [path] = [info.path for info in store.list()]
    table = pa.parquet.read_table(pa.BufferReader(store.get(path).data))
    assert sorted(table["row"].to_pylist()) == expected_rows(ROWS, 4, 1)
    assert list(store.uploads.list_dangling()) == []
