"""The store contract, unchanged, against memory, local files and a real S3 server."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from lakestate.storage import ObjectStore, open_store
from lakestate.testing.store_contract import StoreContract

if TYPE_CHECKING:
    from pathlib import Path

    from lakestate.config import StoreConfig


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return open_store(f"memory://{uuid.uuid4().hex}/some/prefix")


class TestLocalFiles(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store((tmp_path / "some root").as_uri())


class TestS3(StoreContract):
    @pytest.fixture
    def store(self, s3_config: StoreConfig) -> ObjectStore:
        return open_store(s3_config)
