"""Fixtures that tests of several layers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.jobs.table_job import TableJob


@pytest.fixture
def jobs() -> Iterator[Any]:
    made: list[TableJob] = []

    def make(*arguments: Any, **settings: Any) -> TableJob:
        made.append(TableJob(*arguments, **settings))
        return made[-1]

    yield make
    for job in made:
        job.close()
