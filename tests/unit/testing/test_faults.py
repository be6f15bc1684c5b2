"""A store that fails where a test says."""

from __future__ import annotations

import pytest
from tests.support.jobs.small_job import fresh_memory

from lakestate.errors import StorageUnavailableError
from lakestate.testing.faults import Fault, FaultyStore, faults_at


def test_faults_at_numbers_the_calls_from_zero() -> None:
    store = FaultyStore(fresh_memory(), faults_at({1: Fault.UNAVAILABLE}))
    store.put("a", b"1")
    with pytest.raises(StorageUnavailableError, match="a"):
        store.get("a")
    assert store.get("a").data == b"1"
