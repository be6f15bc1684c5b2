"""One PostgreSQL for each test file, and an empty schema for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.support.servers.postgres import PostgresServer


@pytest.fixture(scope="package")
def postgres() -> Iterator[PostgresServer]:
    """A test that kills it must start it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    """The name of an empty schema."""
    name = f"s{uuid.uuid4().hex[:8]}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[arg-type]
    return name
