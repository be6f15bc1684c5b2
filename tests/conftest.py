from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from lakestate.testing.s3_server import S3Server
from lakestate.testing.simulation.cluster.small_limits import separate_runs as keep_runs_separate

# What tests share asserts as tests do: with a message, and also under `python -O`.
SHARED = ("corruption", "fuzzing", "jobs", "nexmark", "servers", "sinks", "soak", "spark", "storage")
pytest.register_assert_rewrite(
    "lakestate.testing.store_contract",
    "lakestate.testing.upload_contract",
    *(f"tests.support.{folder}" for folder in SHARED),
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.kafka import KafkaBroker
    from tests.support.servers.postgres import PostgresServer

    from lakestate.config import StoreConfig


# One process gets all tests that start Spark, one after the other: two JVMs would slow each other down.
SPARK = ("tests/cluster/", "tests/integration/spark/")
# Long tests that share nothing.
LONG = ("tests/simulation/",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), not item.nodeid.startswith(LONG)))


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """The defaults of Hypothesis: no test fails because the machine is busy.

    Every ordinary run tries the same examples; a soak looks for new ones.
    """
    settings.register_profile(
        "lakestate",
        deadline=None,
        derandomize="SOAK_MINUTES" not in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("lakestate")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadscope`: Spark in one process, and modules, which share fixtures, in one each."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class SparkTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(SPARK):
                return "spark"
            return nodeid if nodeid.startswith(LONG) else nodeid.partition("::")[0]

    return SparkTogether(config, log)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One SeaweedFS for the whole run. A test that kills it must start it again."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_config(s3_server: S3Server) -> StoreConfig:
    """A store in a part of the bucket that no other test uses."""
    return s3_server.store_config(f"test/{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def kafka_broker() -> Iterator[KafkaBroker]:
    """One broker for a test file. A test that kills it must start it again."""
    from tests.support.servers.kafka import KafkaBroker

    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for a test file. A test that kills it must start it again."""
    from tests.support.servers.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture
def separate_runs() -> Iterator[None]:
    """Every epoch leaves a run of its own, as large epochs do, so that there is something to merge."""
    with keep_runs_separate():
        yield
