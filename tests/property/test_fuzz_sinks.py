"""Hostile sink state: pre-commits, records of open files, recovery records and Iceberg's records."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.test_fuzz_values import DEEP, DEEP_MAP, hostile_packed, packed
from tests.support.fuzzing.hostile_bytes import (
    FUZZ,
    NUMBERS,
    TEXTS,
    decodes_or_refuses,
    mutated,
    mutated_tree,
)
from tests.support.sinks.delta_job import DeltaFolder
from tests.support.sinks.iceberg_job import Warehouse
from tests.support.sinks.local_files import begin_file, continue_file
from tests.support.sinks.sink_job import DictView, SinkJob, numbered_rows, permit_for

from lakestate.config import StoreConfig
from lakestate.protocol.values import Epoch
from lakestate.sinks import FileFormat, JsonLinesFormat, ParquetFormat, ParquetSink, Roll
from lakestate.sinks.delta.change import TableChange
from lakestate.sinks.delta.table import TableFacts as DeltaFacts
from lakestate.sinks.files.committer import FileCommitter
from lakestate.sinks.files.destination import CurrentFileRecovery, LocalResumePoint
from lakestate.sinks.files.lanes import claim_lane
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.names import epoch_begun
from lakestate.sinks.files.open_files import OpenFiles
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.sinks.formats.parquet.writer import ParquetBatchBufferingWriter
from lakestate.sinks.formats.writer_state import Piece, PieceKind, WriterState
from lakestate.sinks.iceberg.commits.data_files import data_file
from lakestate.sinks.iceberg.commits.progress import IcebergEpoch
from lakestate.sinks.iceberg.table import TableFacts
from lakestate.storage import open_store
from lakestate.testing.stepping import SteppingAmbient

pytestmark = pytest.mark.fuzz

TEXT = [f"row {number}" for number in range(50)]
ROWS = pa.record_batch({"n": pa.array(range(50), pa.int64()), "text": TEXT})


def pre_commits_of(url: str) -> list[bytes]:
    """What a job with finished and with open files hands over."""
    rolls = [Roll(interval="0 seconds"), Roll(interval=None)]
    jobs = [
        SinkJob(
            lambda roll=roll: ParquetSink(url, roll=roll), numbered_rows(5), 1, ambient=SteppingAmbient(name)
        )
        for roll, name in zip(rolls, ("done", "open"), strict=True)
    ]
    views = [job.attempt(0).finish() for job in jobs]
    return [data for view in views if (data := view.commit_data) is not None]


REMOTE = pre_commits_of(f"memory://{uuid.uuid4().hex}")
with tempfile.TemporaryDirectory() as _folder:
    LOCAL = pre_commits_of(f"file://{_folder}/out")


@FUZZ
@given(st.sampled_from(REMOTE + LOCAL).flatmap(hostile_packed))
@example(DEEP_MAP)
@example(b"\x81\xa3tag\xa2\xff\xfe")
def test_a_pre_commit_decodes_or_is_refused(data: bytes) -> None:
    decodes_or_refuses(lambda: PreCommit.decode(data))


@FUZZ
@given(st.sampled_from(REMOTE + LOCAL).flatmap(hostile_packed))
def test_committing_hostile_pre_commits_to_a_store_is_refused_or_stays_below_it(data: bytes) -> None:
    bucket = uuid.uuid4().hex
    store = open_store(StoreConfig(f"memory://{bucket}/out"))
    committer = FileCommitter(store)
    decodes_or_refuses(lambda: committer.commit(permit_for(1), [data]))
    decodes_or_refuses(lambda: committer.clean_up("job", Epoch(1), [data]))
    everything = open_store(StoreConfig(f"memory://{bucket}"))
    assert all(info.path.startswith("out/") for info in everything.list())


LEAVING = msgspec.msgpack.encode(
    {
        "tag": "t",
        "finished": [
            {
                "path": "f",
                "size_bytes": 4,
                "content": {"type": "local", "temporary": "../../victim"},
                "statistics": {"row_count": 1},
            }
        ],
    }
)


@settings(FUZZ, max_examples=50)
@given(st.sampled_from(REMOTE + LOCAL).flatmap(hostile_packed))
@example(LEAVING)
def test_committing_hostile_pre_commits_to_a_directory_is_refused_or_stays_below_it(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        victim = Path(folder) / "victim"
        victim.write_bytes(b"mine")
        root = Path(folder) / "out"
        committer = FileCommitter(LocalOutput(root))
        decodes_or_refuses(lambda: committer.commit(permit_for(1), [data]), root)
        decodes_or_refuses(lambda: committer.clean_up("job", Epoch(1), [data]), root)
        assert victim.read_bytes() == b"mine"
        assert {path.name for path in Path(folder).iterdir()} <= {"victim", "out"}


def open_file_rows() -> dict[tuple[str, int], bytes]:
    job = SinkJob(
        lambda: ParquetSink("memory://open", roll=Roll(interval=None), kept_row_bytes=0),
        numbered_rows(20),
        parallelism=1,
    )
    for _ in range(2):
        job.run_epoch(finish_files=False)
    return dict(job.published.state)


OPEN = open_file_rows()


@st.composite
def hostile_open_files(draw: st.DrawFn) -> dict[tuple[str, int], bytes]:
    """The rows of a sink's state: the record of an open file, or a piece of it, is not what it was."""
    rows = dict(OPEN)
    key = draw(st.sampled_from(sorted(rows)))
    if key[1] == -1:
        tree = msgspec.json.decode(rows[key])
        changed = draw(mutated_tree(tree, surrogates=False).map(as_json) | mutated(rows[key]))
    else:
        changed = draw(mutated(rows[key]))
    rows[key] = changed
    return rows


def as_json(tree: Any) -> bytes:
    try:
        return msgspec.json.encode(tree)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return b"[" * 3000


@FUZZ
@given(hostile_open_files())
def test_a_sink_continues_from_its_state_or_refuses_it(rows: dict[tuple[str, int], bytes]) -> None:
    def go_on() -> None:
        sink = ParquetSink("memory://open", roll=Roll(interval=None))
        job = SinkJob(lambda: sink, numbered_rows(5), parallelism=1)
        attempt = job.attempt(0)
        attempt.writer = sink.writer(context_with(attempt, rows))
        attempt.finish(finish_files=True)

    decodes_or_refuses(go_on)


def context_with(attempt: Any, rows: dict[tuple[str, int], bytes]) -> Any:
    from dataclasses import replace

    from tests.support.sinks.sink_job import DictTables

    return replace(attempt.writer._context, tables=DictTables(DictView(rows)))


def writer_state() -> WriterState:
    writer = ParquetBatchBufferingWriter(ROWS.schema, kept_row_bytes=0)
    writer.add_batch_data(ROWS)
    writer.settle()
    first = writer.checkpoint()
    again = ParquetBatchBufferingWriter.resume(ROWS.schema, first, kept_row_bytes="1MB")
    again.add_batch_data(ROWS)
    return again.checkpoint()


STATE = writer_state()


@st.composite
def hostile_states(draw: st.DrawFn) -> WriterState:
    """The state that a writer continues from, with changed numbers or pieces."""
    numbers = {
        name: draw(st.sampled_from(NUMBERS))
        for name in ("start", "row_count", "encoded_row_bytes", "next_piece")
        if draw(st.integers(0, 3)) == 0
    }
    pieces = list(STATE.pieces)
    place = draw(st.integers(0, len(pieces) - 1))
    piece = pieces[place]
    match draw(st.integers(0, 4)):
        case 0:
            del pieces[place]
        case 1:
            pieces[place] = msgspec.structs.replace(piece, kind=draw(st.sampled_from(PieceKind)))
        case 2:
            pieces[place] = msgspec.structs.replace(piece, start=draw(st.sampled_from(NUMBERS)))
        case _:
            pieces[place] = msgspec.structs.replace(piece, content=draw(mutated(piece.content)))
    return msgspec.structs.replace(STATE, pieces=tuple(pieces), **numbers)


@FUZZ
@given(hostile_states())
@example(msgspec.structs.replace(STATE, start=2**62))
@example(msgspec.structs.replace(STATE, pieces=(Piece(0, PieceKind.FOOTER, b"no footer"),)))
def test_a_writer_continues_from_its_state_or_refuses_it(state: WriterState) -> None:
    def finished(file_format: FileFormat) -> None:
        writer = file_format.open_writer(ROWS.schema, state)
        writer.add_batch_data(ROWS)
        writer.checkpoint()
        writer.finish()
        writer.split_to(writer.buffered_bytes)

    decodes_or_refuses(lambda: finished(ParquetFormat()))
    decodes_or_refuses(lambda: finished(JsonLinesFormat()))


@settings(FUZZ, max_examples=50)
@given(
    st.builds(
        LocalResumePoint,
        temporary=st.sampled_from(["hidden", *TEXTS]),
        position=st.sampled_from([4, *NUMBERS]),
        crc32=st.none() | st.sampled_from(NUMBERS),
    ),
    st.just(STATE) | hostile_states(),
    st.sampled_from(["final", *TEXTS]),
)
@example(LocalResumePoint("../victim", 4), STATE, "final")
@example(LocalResumePoint("hidden", 4), STATE, "../victim")
def test_a_local_file_continues_from_its_record_or_refuses_it(
    place: LocalResumePoint, state: WriterState, final: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        victim = Path(folder) / "victim"
        victim.write_bytes(b"mine")
        root = Path(folder) / "out"
        with_file = begin_file(root, "hidden", "final", ROWS.schema)
        with_file.sync()
        with_file.release()

        def recovered() -> None:
            record = CurrentFileRecovery(place, state)
            writer = continue_file(root, final, record, ROWS.schema, attempt="2")
            try:
                finished = writer.close()
                LocalOutput(root).publish(place.temporary, finished.path, finished.size_bytes)
            finally:
                writer.abandon()

        decodes_or_refuses(recovered, root)
        assert victim.read_bytes() == b"mine"
        assert {path.name for path in Path(folder).iterdir()} == {"victim", "out"}


TAG = "0123456789ab"


@FUZZ
@given(
    mutated(f"a=b/part-{TAG}-0000000007-00003-f00.parquet".encode()).map(lambda name: name.decode("latin-1"))
)
@example(f"part-{TAG}-0000000000-00000-x")
@example(f"part-{TAG}-9999999999-00000-x")
@example(f"part-{TAG}-٠٠٠٠٠٠٠٠٠١-00000-x")
def test_a_strange_name_among_the_files_of_a_sink_is_not_taken_for_one(name: str) -> None:
    begun = epoch_begun(name, TAG)
    assert begun is None or f"-{begun:010d}-" in name


def test_a_lane_that_no_upload_has_is_refused_at_once() -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    assert decodes_or_refuses(lambda: claim_lane(store, "file", -(2**63))) is None
    assert decodes_or_refuses(lambda: claim_lane(store, "file", 2**63)) is None


EPOCH_FILES = IcebergEpoch("job", "0123456789ab", Epoch(3), ())


def hostile_texts(valid: dict[str, str]) -> st.SearchStrategy[dict[str, str]]:
    """What a catalog may hold under these names: any text."""
    texts = st.sampled_from([*TEXTS, *map(str, NUMBERS)]) | st.text(max_size=5)
    changed = st.dictionaries(st.sampled_from(sorted(valid)), texts)
    kept = st.sets(st.sampled_from(sorted(valid))).map(lambda names: {name: valid[name] for name in names})
    return st.tuples(kept, changed).map(lambda parts: parts[0] | parts[1])


@FUZZ
@given(hostile_texts(EPOCH_FILES.properties()), hostile_texts(EPOCH_FILES.summary()))
@example({EPOCH_FILES.property_name: "three"}, {})
@example({}, {"lakestate.job-id": "job", "lakestate.sink": "0123456789ab"})
def test_what_a_table_says_about_an_epoch_is_understood_or_refused(
    properties: dict[str, str], summary: dict[str, str]
) -> None:
    decodes_or_refuses(lambda: EPOCH_FILES.commit_status(properties, [summary]))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A table, and the pre-commit of files for it that are not appended yet."""
    house = Warehouse(tmp_path_factory.mktemp("warehouse"))
    job = house.job()
    job.run_epoch()
    pre_commits = [data for subtask in (0, 1) if (data := job.attempt(subtask).finish().commit_data)]
    return house.table(), msgspec.msgpack.decode(pre_commits[0])


@settings(FUZZ, max_examples=60)
@given(st.data())
def test_a_file_of_a_hostile_pre_commit_is_entered_or_refused(warehouse: Any, data: st.DataObject) -> None:
    table, tree = warehouse
    hostile = packed(data.draw(mutated_tree(tree)))

    def entered() -> None:
        for file in PreCommit.decode(hostile).finished:
            TableFacts.of(table).check_is_table_of(file.format, file.path)
            data_file(file, table, table.location())

    decodes_or_refuses(entered)


@pytest.fixture(scope="module")
def delta_table(tmp_path_factory: pytest.TempPathFactory) -> tuple[TableChange, Any]:
    """A Delta table, and the pre-commit of files for it that are not added yet."""
    folder = DeltaFolder(tmp_path_factory.mktemp("delta"))
    job = folder.job(partition_by=["country"])
    job.run_epoch()
    pre_commits = [data for subtask in (0, 1) if (data := job.attempt(subtask).finish().commit_data)]
    table, sink = folder.table(), folder.sink()
    change = TableChange(table, DeltaFacts.of(table, sink.url), sink.file_sink().store)
    return change, msgspec.msgpack.decode(pre_commits[0])


@settings(FUZZ, max_examples=60)
@given(st.data())
def test_a_file_of_a_hostile_pre_commit_is_added_or_refused(delta_table: Any, data: st.DataObject) -> None:
    change, tree = delta_table
    hostile = packed(data.draw(mutated_tree(tree)))

    def added() -> None:
        files = PreCommit.decode(hostile).finished
        for file in files:
            change.facts.check_file(file)
        change.add([file for file in files if not file.replaces])
        change.replace([file for file in files if file.replaces])

    decodes_or_refuses(added)


def test_a_record_of_nothing_but_openings_is_refused() -> None:
    rows = {("f", -1): b'{"x":' + b"[" * 3000}
    assert decodes_or_refuses(lambda: OpenFiles(DictView(rows)).records()) is None
    assert decodes_or_refuses(lambda: PreCommit.decode(DEEP)) is None
