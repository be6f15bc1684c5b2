"""A Kafka broker for tests: one process (KRaft), free ports, its own data.

It can be killed and started again on the same ports and data, so that tests can make it
unavailable at any time.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.support.jars import KAFKA_BROKER, require_jars
from tests.support.spark.pipeline_process import QUICK_JVM

from lakestate.testing.s3_server import free_ports

START_DEADLINE_S = 60
ANSWER_DEADLINE_S = 30
POLL_S = 0.05
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A topic that a test did not create is a mistake that it must see.
    "auto.create.topics.enable": "false",
    # A broker that was killed is taken back as soon as its earlier session is over, and one that is only slow
    # on a busy machine is not taken for dead.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "300",
}
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
"""


class KafkaBroker:
    """One broker. Use it as a context manager, or the fixture `kafka_broker`: one for each test file.

    `settings` are added to those of the broker. `users`, with their passwords, have a listener of their own,
    and only the permissions that they are granted; whoever comes to the other listener may do everything.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, users: Mapping[str, str] | None = None
    ) -> None:
        self._jars = require_jars(KAFKA_BROKER)
        self._folder = Path(tempfile.mkdtemp(prefix="lakestate-kafka-"))
        self._port, self._controller_port, self._user_port = free_ports(3)
        self._settings = dict(settings or {})
        self._users = dict(users or {})
        self._process: subprocess.Popen[bytes] | None = None
        # One for all: a client that is garbage fails what it was asked.
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    @property
    def servers(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    @property
    def user_servers(self) -> str:
        """For `bootstrap.servers` of users."""
        return f"127.0.0.1:{self._user_port}"

    def options_of(self, user: str) -> dict[str, str]:
        """The settings with which librdkafka logs a user in."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": self._users[user],
        }

    def grant(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Let a user do something with everything of a kind whose name begins like this."""
        rules = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.PREFIXED,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        self._await_all(self.admin.create_acls(rules))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def producer(self, **settings: Any) -> Producer:
        """A producer with librdkafka's settings, dots written as underscores."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 0} | given)

    def create_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic; its settings with dots written as underscores."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        self._await_all(self.admin.create_topics([new]))

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        self._await_all(self.admin.create_partitions([NewPartitions(topic, total)]))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        self._await_all(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def delete_topic(self, topic: str) -> None:
        self._await_all(self.admin.delete_topics([topic]))

    def send(self, topic: str, values: Iterable[str | bytes], **message: Any) -> None:
        """Write records and wait until the broker has them; `message`: key, partition, headers, timestamp."""
        producer, failures = self.producer(), []
        for value in values:
            producer.produce(
                topic,
                value,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                **message,
            )
        assert producer.flush(ANSWER_DEADLINE_S) == 0, self._state()
        assert failures == []

    def start(self) -> None:
        """Start the broker and wait until it answers."""
        assert self._process is None, "the broker is already running"
        if not self._config_file.exists():
            self._format()
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._config_file)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
            )
        self._await_answer()

    def kill(self) -> None:
        """Kill −9, as a power cut would. Data and ports are kept for `start`."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def restart(self) -> None:
        """Kill the broker and start it again on the same ports and data."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Kill the broker and remove its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _config_file(self) -> Path:
        return self._folder / "server.properties"

    @property
    def _log_file(self) -> Path:
        return self._folder / "broker.log"

    def _format(self) -> None:
        """Write the configuration, and the empty log of the cluster's metadata."""
        listeners = f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{self._controller_port}"
        places = {
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self._folder / "data"),
        }
        if self._users:
            users = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
            places |= {
                "listeners": f"{listeners},SASL_PLAINTEXT://{self.user_servers}",
                "advertised.listeners": f"PLAINTEXT://{self.servers},SASL_PLAINTEXT://{self.user_servers}",
                "listener.security.protocol.map": PROTOCOLS,
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_LOGIN} required {users};",
                "authorizer.class.name": AUTHORIZER,
                "super.users": "User:ANONYMOUS",
            }
        lines = [f"{name}={value}" for name, value in (SETTINGS | places | self._settings).items()]
        (self._folder / "log4j2.properties").write_text(LOGGING)
        self._config_file.write_text("\n".join(lines))
        cluster = secrets.token_urlsafe(16)
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._config_file))
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_DEADLINE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _java(self, *command: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        jars = os.pathsep.join(map(str, self._jars))
        return ["java", "-Xmx384m", *QUICK_JVM.split(), logging, "-cp", jars, *command]

    def _await_answer(self) -> None:
        ends = time.monotonic() + START_DEADLINE_S
        while not _answers(self.admin):
            assert self.is_running, self._state()
            assert time.monotonic() < ends, self._state()
            time.sleep(POLL_S)

    def _await_all(self, futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            try:
                future.result(ANSWER_DEADLINE_S)
            except TimeoutError:
                raise AssertionError(self._state()) from None

    def _state(self) -> str:
        """Why it does not do what was asked of it."""
        ended = None if self._process is None else self._process.poll()
        state = "does not answer" if self.is_running else f"has ended with {ended}"
        return f"the broker {state}:\n{self._log_file.read_text(errors='replace')[-4000:]}"


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=0.5).brokers)
    except KafkaException:
        return False
