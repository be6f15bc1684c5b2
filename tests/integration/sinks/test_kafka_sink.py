"""Kafka sink against a real broker: each row once for readers of committed messages, whatever dies."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.repository import ROOT
from tests.support.servers.kafka import KafkaBroker
from tests.support.sinks import kafka_process
from tests.support.sinks.kafka_process import SCHEMA, harness
from tests.support.sinks.kafka_reader import Message, committed_messages, committed_values

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import InvalidInputError, NotFoundError, OutcomeUnknownError, StorageUnavailableError
from lakestate.protocol.publication import replay_permit
from lakestate.row_kind import RowKind, StreamKind
from lakestate.runtime.sink_step import sink_committer
from lakestate.sinks.kafka import client
from lakestate.sinks.kafka.sink import KafkaSink
from lakestate.sinks.kafka.transactions import TransactionWriter
from lakestate.sinks.output_owner import OutputClaim
from lakestate.sinks.sink import Sink
from lakestate.testing.sink_contract import SinkContract
from lakestate.testing.sink_harness import CrashPoint, SinkHarness


@pytest.fixture
def topic(kafka_broker: KafkaBroker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(name, partitions=2)
    return name


@pytest.mark.full
class TestContract(SinkContract):
    """What every sink does."""

    @pytest.fixture
    def sink(self, kafka_broker: KafkaBroker, topic: str) -> Sink:
        return KafkaSink(kafka_broker.servers, topic)

    def read(self, sink: Sink) -> list[dict[str, Any]]:
        assert isinstance(sink, KafkaSink)
        return [json.loads(value) for value in committed_values(sink.bootstrap, sink.topic)]


def values(*numbers: int) -> list[str]:
    return sorted(f'{{"n":{number}}}' for number in numbers)


def in_memory() -> str:
    return f"memory://{uuid.uuid4().hex}"


def test_crashes_restarts_and_repeated_commits_deliver_each_row_once(
    kafka_broker: KafkaBroker, topic: str
) -> None:
    job = harness(kafka_broker.servers, topic, in_memory())
    job.epoch([{"n": 1}], [{"n": 2}])
    for number, point in enumerate(CrashPoint):
        job.crash(point, [{"n": 10 + number}])
        job.restart(parallelism=number + 1)
    job.epoch([{"n": 3}])
    for number in range(len(job._commits)):
        job.commit_again(number)
    # What crashed before it was published was never read.
    assert committed_values(kafka_broker.servers, topic) == values(1, 2, 3, 11, 12)


@pytest.mark.parametrize("moment", ["produced", pytest.param("committed", marks=pytest.mark.full)])
def test_a_driver_that_is_killed_around_its_commit_is_completed_once(
    kafka_broker: KafkaBroker, topic: str, tmp_path: Path, moment: str
) -> None:
    checkpoint = f"file://{tmp_path}"
    command = [sys.executable, kafka_process.__file__, kafka_broker.servers, topic, checkpoint, moment, "1"]
    ended = subprocess.run(command, cwd=ROOT, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    harness(kafka_broker.servers, topic, checkpoint).epoch([{"n": 3}])
    assert committed_values(kafka_broker.servers, topic) == values(1, 2, 3)


def test_a_zombie_whose_transaction_is_open_is_fenced_and_delivers_nothing(
    kafka_broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = harness(kafka_broker.servers, topic, in_memory())
    zombie: KafkaSink = pickle.loads(pickle.dumps(job.sink))
    job.epoch([{"n": 1}])
    permit, pre_commit = job._commits[0]
    job.crash(CrashPoint.BEFORE_COMMIT, [{"n": 2}])
    real = TransactionWriter._commit
    waiting: list[Any] = []

    def stall(writer: TransactionWriter, epoch: Any) -> None:
        # The zombie has produced everything. Its successor takes over before it commits.
        if not waiting:
            waiting.append(writer)
            job.restart()
        real(writer, epoch)

    monkeypatch.setattr(TransactionWriter, "_commit", stall)
    record = job.objects.read_epoch(permit.epoch.next())
    assert record is not None
    manifest = job.objects.read_manifest(record)
    sink_committer(zombie).commit(job.objects, replay_permit(record), manifest.sinks[0])
    assert committed_values(kafka_broker.servers, topic) == values(1, 2)
    # The zombie came last, and fenced the live driver. That looks at the marker and continues.
    job.epoch([{"n": 3}])
    sink_committer(zombie).commit(job.objects, permit, pre_commit)
    job.epoch([{"n": 4}])
    assert committed_values(kafka_broker.servers, topic) == values(1, 2, 3, 4)


@pytest.mark.full
def test_a_commit_whose_answer_is_lost_is_found_by_its_marker(
    kafka_broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost = TransactionWriter._commit, []

    def lose_answer(writer: TransactionWriter, epoch: Any) -> None:
        real(writer, epoch)
        if not lost:
            lost.append(epoch.epoch)
            raise OutcomeUnknownError("the answer was lost")

    monkeypatch.setattr(TransactionWriter, "_commit", lose_answer)
    job = harness(kafka_broker.servers, topic, in_memory())
    job.epoch([{"n": 1}])
    job.epoch([{"n": 2}])
    assert committed_values(kafka_broker.servers, topic) == values(1, 2)


@pytest.mark.full
def test_a_broker_that_is_killed_in_the_middle_of_an_epoch_gets_each_row_once(
    kafka_broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = harness(kafka_broker.servers, topic, in_memory())
    real, again = TransactionWriter._send_marker, []

    def kill_broker(writer: TransactionWriter, marker: Any) -> None:
        if not again:
            kafka_broker.kill()
            again.append(threading.Thread(target=kafka_broker.start))
            again[0].start()
        real(writer, marker)

    monkeypatch.setattr(TransactionWriter, "_send_marker", kill_broker)
    job.epoch([{"n": number} for number in range(1000)], [{"n": number} for number in range(1000, 2000)])
    again[0].join()
    job.epoch([{"n": 2000}])
    assert committed_values(kafka_broker.servers, topic) == values(*range(2001))


@pytest.mark.full
def test_keys_are_placed_as_java_clients_place_them(kafka_broker: KafkaBroker) -> None:
    topic = f"placed-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, partitions=10)
    schema = pa.schema([("k", pa.string()), ("v", pa.binary()), ("p", pa.int32())])
    sink = KafkaSink(kafka_broker.servers, topic, key="k", value="v", headers={"h": "k"}, partition="p")
    job = SinkHarness(sink, schema)
    job.epoch(
        [{"k": "kafka", "v": b"1"}, {"k": "giberish123456789", "v": None}, {"k": "a", "v": b"3", "p": 9}]
    )
    found = committed_messages(kafka_broker.servers, topic)
    assert {(each.key, each.value, each.headers) for each in found} == {
        (b"kafka", b"1", (("h", b"kafka"),)),
        (b"giberish123456789", None, (("h", b"giberish123456789"),)),
        (b"a", b"3", (("h", b"a"),)),
    }
    assert {each.key: each.partition for each in found} == {
        key: java_partition(key, 10) for key in (b"kafka", b"giberish123456789")
    } | {b"a": 9}


def java_partition(key: bytes, partitions: int) -> int:
    """`toPositive(murmur2(key)) % partitions`, as the producer of Java computes it."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


@pytest.mark.full
def test_changes_become_upserts_and_tombstones(kafka_broker: KafkaBroker, topic: str) -> None:
    schema = pa.schema([("who", pa.string()), ("n", pa.int64()), ("_change", pa.string())])
    changes = StreamKind(RowKind.CHANGES, ("who",))
    job = SinkHarness(KafkaSink(kafka_broker.servers, topic, key="who"), schema, kind=changes)
    job.epoch([{"who": "a", "n": 1, "_change": "insert"}])
    job.epoch(
        [
            {"who": "a", "n": 1, "_change": "update_preimage"},
            {"who": "a", "n": 2, "_change": "update_postimage"},
        ]
    )
    job.epoch([{"who": "a", "n": 2, "_change": "delete"}])
    (place,) = {each.partition for each in committed_messages(kafka_broker.servers, topic)}
    assert committed_messages(kafka_broker.servers, topic) == [
        Message(place, b"a", b'{"who":"a","n":1}'),
        Message(place, b"a", b'{"who":"a","n":2}'),
        Message(place, b"a", None),
    ]


def test_bad_input_is_named_before_the_first_epoch(
    kafka_broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = kafka_broker.servers
    small, forgetful = f"{topic}-small", f"{topic}-forgetful"
    kafka_broker.create_topic(small, max_message_bytes="2000")
    kafka_broker.create_topic(forgetful)
    with pytest.raises(
        NotFoundError, match=f"there is no such Kafka topic: topic {topic}-absent at {servers}"
    ):
        KafkaSink(servers, f"{topic}-absent").check(SCHEMA)
    with pytest.raises(InvalidInputError, match=r'"message.max.bytes": 1488'):
        KafkaSink(servers, small).check(SCHEMA)
    with pytest.raises(InvalidInputError, match=f"forgets markers.*topic {forgetful}; found retention.ms"):
        KafkaSink(servers, topic, control_topic=forgetful).check(SCHEMA)
    with pytest.raises(InvalidInputError, match=r'No such configuration property: "sasl.pasword"'):
        KafkaSink(servers, topic, options={"sasl.pasword": "hush"}).check(SCHEMA)
    KafkaSink(servers, topic, control_topic=f"{topic}-new").dry_run(SCHEMA)
    assert f"{topic}-new" not in kafka_broker.admin.list_topics(timeout=10).topics
    monkeypatch.setattr("lakestate.sinks.kafka.topics.REQUEST_TIMEOUT_S", 1.0)
    with pytest.raises(StorageUnavailableError, match=r"could not describe a topic: topic .* at 127.0.0.1:1"):
        KafkaSink("127.0.0.1:1", topic).check(SCHEMA)
    assert client.REQUEST_TIMEOUT_S > 1


@pytest.mark.full
def test_a_copy_of_the_checkpoint_cannot_deliver_in_the_place_of_the_job(
    kafka_broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    first = f"file://{tmp_path}/first"
    harness(kafka_broker.servers, topic, first).epoch([{"n": 1}])
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    with pytest.raises(InvalidInputError, match="another job that has a copy of this state owns the output"):
        harness(kafka_broker.servers, topic, f"file://{tmp_path}/copy")
    job = harness(kafka_broker.servers, topic, first)
    job.backend = ParquetBackend(f"file://{tmp_path}/copy", cache_bytes=0)
    job.restart(claim=OutputClaim.TAKE_OVER)
    with pytest.raises(InvalidInputError, match="owns the output"):
        harness(kafka_broker.servers, topic, first)
