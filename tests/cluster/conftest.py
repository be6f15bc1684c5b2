"""One standalone cluster for all tests that need one: starting it takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spark.standalone_cluster import StandaloneCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    pytest.importorskip("pyspark")
    from tests.support.spark.standalone_cluster import StandaloneCluster

    with StandaloneCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster
