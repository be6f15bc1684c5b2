"""The damaged jobs that the tests of verification share."""

from __future__ import annotations

import pytest
from tests.support.corruption.arena import Arena
from tests.support.corruption.job import CorruptionJob, World, build_job

from lakestate.storage.parallel import run_sequentially


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[CorruptionJob, World, World]:
    with run_sequentially():
        return build_job(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def job(whole: tuple[CorruptionJob, World, World]) -> CorruptionJob:
    """The job with open files; two tags, one of them of an epoch before the boundary."""
    whole[0].put_back(whole[1])
    return whole[0]


@pytest.fixture
def interrupted(whole: tuple[CorruptionJob, World, World]) -> CorruptionJob:
    """The same, its last epoch published and not committed."""
    whole[0].put_back(whole[2])
    return whole[0]


@pytest.fixture(scope="session")
def arenas(tmp_path_factory: pytest.TempPathFactory) -> list[Arena]:
    with run_sequentially():
        job, running, interrupted = build_job(tmp_path_factory.mktemp("campaign"))
        return [Arena(job, running), Arena(job, interrupted)]
