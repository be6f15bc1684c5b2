from __future__ import annotations

import pyarrow as pa
import pytest

from lakestate.errors import CorruptionError, InvalidInputError
from lakestate.protocol.values import Epoch, TaskInfo
from lakestate.sinks.files.names import FileNaming, epoch_begun, owned_file_id, sink_fingerprint
from lakestate.sinks.files.pre_commit import PreCommit
from lakestate.tables.hashing.routing import routing_keys, subtasks_of

TAG = sink_fingerprint("job", "out", "state")


def test_the_fingerprint_of_a_job_without_an_identity_is_that_of_its_existing_files() -> None:
    assert sink_fingerprint("job", "out", "") == "d3b33dcd8bfa"
    assert len({sink_fingerprint("job", "out", state_id) for state_id in ("", "a", "b")}) == 3


@pytest.mark.parametrize("parallelism", [1, 3, 64])
def test_a_file_id_is_in_the_key_range_of_its_subtask(parallelism: int) -> None:
    ids = [owned_file_id("abc", TaskInfo("job", "out", index, parallelism)) for index in range(parallelism)]
    assert subtasks_of(routing_keys([pa.array(ids)]), parallelism).tolist() == list(range(parallelism))
    assert len(set(ids)) == parallelism


def test_a_name_says_when_its_file_was_begun_and_by_which_sink() -> None:
    name = FileNaming("events", "-v2", "json.gz").name(TAG, Epoch(12), 3, "f00")
    assert name == f"events-{TAG}-0000000012-00003-f00-v2.json.gz"
    assert epoch_begun(f"country=DE/{name}", TAG) == Epoch(12)
    assert epoch_begun(f"{name}.attempt", TAG) == Epoch(12)
    assert epoch_begun(name, sink_fingerprint("job", "other", "state")) is None
    assert epoch_begun(f"{name}/000", TAG) is None


@pytest.mark.parametrize("prefix", ["", "_part", ".part", "a/b", "x" * 65])
def test_a_prefix_that_readers_would_skip_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidInputError, match="prefix"):
        FileNaming(prefix)


def test_a_damaged_pre_commit_is_refused() -> None:
    with pytest.raises(CorruptionError, match="pre-commit"):
        PreCommit.decode(PreCommit(TAG).encode()[:-1])
