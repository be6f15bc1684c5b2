from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from lakestate.testing.s3_server import S3Server

pytest.register_assert_rewrite("lakestate.testing.store_contract", "lakestate.testing.upload_contract")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakestate.config import StoreConfig


# Their tests start programs that start Spark.
SPARK_PROGRAMS = ("cluster/", "test_demo", "test_pipeline_", "test_sink_data_source")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several test processes one gets all that starts Spark: two JVMs would be in each other's way."""
    for item in items:
        has_session = "spark" in getattr(item, "fixturenames", ())
        if has_session or any(name in item.path.as_posix() for name in SPARK_PROGRAMS):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One SeaweedFS for the whole run. A test that kills it must start it again."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_config(s3_server: S3Server) -> StoreConfig:
    """A store in a part of the bucket that no other test uses."""
    return s3_server.store_config(f"test/{uuid.uuid4().hex}")
