"""Names that users choose, paths read from metadata, and the names that we build and recognise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestate.errors import InvalidInputError
from lakestate.job.objects import JobObjects
from lakestate.protocol.names import NAME_CHARS_MAX, require_name
from lakestate.protocol.paths import BOUNDARY, FENCE, ObjectKind, ObjectName, Paths, parse_object_name
from lakestate.protocol.relative_path import require_relative_path
from lakestate.protocol.values import EPOCH_MAX, Epoch, Generation, ObjectRef, TaskInfo
from lakestate.storage import open_store

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True).filter(
    lambda name: ".." not in name
)
EPOCHS = st.integers(1, EPOCH_MAX).map(Epoch)
IDS = st.from_regex(r"[0-9a-f]{20}", fullmatch=True)
BAD_NAMES = (
    "",
    ".",
    "..",
    "a/b",
    "a\\b",
    "../a",
    "a..b",
    ".hidden",
    "-dash",
    "line\nbreak",
    "end\n",
    "nul\0",
    "tab\t",
    "space bar",
    "ä",
    "٣",
    "per%2fcent",
    "x" * (NAME_CHARS_MAX + 1),
)
BAD_PATHS = (
    "",
    "/",
    "/etc/passwd",
    "..",
    "../other",
    "a/../b",
    "a/..",
    "./a",
    "a//b",
    "a/",
    "s3://bucket/key",
    "a\\..\\b",
    "line\nbreak",
    "nul\0",
    "delete\x7f",
    "x/" * 500 + "x",
    ".lakestate/uploads/a/upload.json",
    "checkpoints/.lakestate",
    "a/" + "x" * 256,
    "a/" + "ä" * 128,
    "lone \ud800 surrogate",
)


@pytest.mark.parametrize("kind", ["job", "operator", "table", "tag"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_and_the_error_says_of_what(kind: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"not a valid {kind} name"):
        require_name(kind, name)


@pytest.mark.parametrize("name", ["a", "_", "totals-v2", "0", "a.b-c_D", "x" * NAME_CHARS_MAX])
def test_a_good_name_is_itself(name: str) -> None:
    assert require_name("job", name) == name


def test_the_error_about_an_endless_name_stays_short() -> None:
    with pytest.raises(InvalidInputError) as caught:
        require_name("job", "x" * 100_000)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_are_refused_wherever_they_enter(name: str) -> None:
    paths = Paths("job")
    for use in (
        lambda: Paths(name),
        lambda: JobObjects(open_store("memory://names"), name),
        lambda: TaskInfo(name, "op"),
        lambda: TaskInfo("job", name),
        lambda: paths.data(Epoch(1), name, "table", 0, "a"),
        lambda: paths.data(Epoch(1), "op", name, 0, "a"),
        lambda: paths.subtask_metadata(Epoch(1), name, 0),
        lambda: paths.tag(name),
    ):
        with pytest.raises(InvalidInputError):
            use()


def test_no_operator_has_the_name_of_another_ones_metadata() -> None:
    with pytest.raises(
        InvalidInputError, match=r"not a valid operator name: 'a-0\.metadata'; .*an ending other than"
    ):
        TaskInfo("job", "a-0.metadata")
    assert require_name("table", "a-0.metadata") == "a-0.metadata"


def test_the_longest_part_that_a_file_system_takes_is_a_part_of_a_path() -> None:
    assert require_relative_path("a/" + "x" * 255) == "a/" + "x" * 255


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_leaves_the_root_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="leaves the job's root"):
        require_relative_path(path)
    with pytest.raises(InvalidInputError, match="leaves the job's root"):
        ObjectRef(path, 0, 0)


@pytest.mark.parametrize("number", [0, -1, EPOCH_MAX + 1, True, 1.5, "3", None])
def test_what_is_not_an_epoch_is_refused(number: object) -> None:
    with pytest.raises(InvalidInputError, match="not an epoch"):
        Epoch(number)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [0, -1, 2**63, True, 1.5, "3", None])
def test_what_is_not_a_generation_is_refused(number: object) -> None:
    with pytest.raises(InvalidInputError, match="not a generation"):
        Generation(number)  # type: ignore[arg-type]


@given(epoch=EPOCHS, operator=NAMES, table=NAMES, subtask=st.integers(0, 32767), uid=IDS, tag=NAMES)
def test_every_name_we_build_is_recognised_as_what_it_is(
    epoch: Epoch, operator: str, table: str, subtask: int, uid: str, tag: str
) -> None:
    paths = Paths("job")
    built = {
        paths.epoch_record(epoch): (ObjectKind.EPOCH_RECORD, epoch),
        paths.manifest(epoch): (ObjectKind.MANIFEST, epoch),
        paths.manifest(epoch, uid): (ObjectKind.MANIFEST, epoch),
        paths.commit_marker(epoch): (ObjectKind.COMMITTED, epoch),
        paths.subtask_metadata(epoch, operator, subtask): (ObjectKind.SUBTASK_METADATA, epoch),
        paths.subtask_metadata(epoch, operator, subtask, uid): (ObjectKind.SUBTASK_METADATA, epoch),
        paths.data(epoch, operator, table, subtask, uid): (ObjectKind.DATA, epoch),
        paths.tag(tag): (ObjectKind.TAG, None),
        FENCE: (ObjectKind.FENCE, None),
        BOUNDARY: (ObjectKind.BOUNDARY, None),
    }
    assert len(built) == 10
    assert {path: (parse_object_name(path).kind, parse_object_name(path).epoch) for path in built} == built
    assert [require_relative_path(path) for path in built] == list(built)


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "checkpoints/3/notes.txt",
        "checkpoints/3/operator-op/users-0-a1.parquet.tmp",
        "checkpoints/3/other/users.parquet",
        "checkpoints/3/operator-op/deeper/users.parquet",
        "checkpoints/0/manifest.pb",
        "checkpoints/007/manifest.pb",
        "checkpoints/٣/manifest.pb",
        "checkpoints/-3/manifest.pb",
        f"checkpoints/{EPOCH_MAX + 1}/manifest.pb",
        f"checkpoints/{'9' * 5000}/manifest.pb",
        "epochs/3.json",
        "epochs/٠٠٠٠٠٠٠٠٠٣.json",
        "epochs/0000000000.json",
        "epochs/9999999999.json",
        "tags/deeper/name.json",
        "manifest.pb\n",
    ],
)
def test_what_we_would_not_write_is_foreign(path: str) -> None:
    assert parse_object_name(path) == ObjectName(path, ObjectKind.FOREIGN)


@given(st.lists(EPOCHS, min_size=2, max_size=5))
def test_epoch_records_list_in_the_order_of_epochs(epochs: list[Epoch]) -> None:
    paths = Paths("job")
    assert sorted(map(paths.epoch_record, epochs)) == [paths.epoch_record(epoch) for epoch in sorted(epochs)]
