"""What is special about S3: long listings, large objects, and a server that goes away."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lakestate.config import RetryPolicy, StoreConfig
from lakestate.errors import InvalidInputError
from lakestate.storage import ByteRange, ObjectStore, open_store
from lakestate.storage.parallel import map_in_parallel

if TYPE_CHECKING:
    from lakestate.testing.s3_server import S3Server


@pytest.fixture
def store(s3_config: StoreConfig) -> ObjectStore:
    return open_store(s3_config)


def test_a_listing_and_a_delete_of_more_than_one_page_are_whole(store: ObjectStore) -> None:
    paths = [f"page/{number:04d}" for number in range(1005)]
    map_in_parallel(lambda path: store.put(path, b""), paths)
    assert [info.path for info in store.list("page/")] == paths
    store.delete_many(paths)
    assert list(store.list()) == []


def test_an_object_too_large_for_one_request_is_whole(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakestate.storage.remote.client.SINGLE_PUT_BYTES_MAX", 1 << 20)
    monkeypatch.setattr("lakestate.storage.remote.client.PART_BYTES", 5 << 20)
    data = bytes(range(251)) * 50_000
    info = store.put("large", data)
    assert info.version == store.head("large").version
    assert store.get("large").data == data
    assert store.get_range("large", ByteRange((5 << 20) - 1, 3)) == data[(5 << 20) - 1 : (5 << 20) + 2]
    assert list(store.uploads.list_dangling()) == []


def test_a_store_without_a_prefix_has_the_whole_bucket(s3_server: S3Server, store: ObjectStore) -> None:
    store.put("object", b"data")
    whole = open_store(s3_server.store_config())
    prefix = store.url.removeprefix(f"s3://{s3_server.bucket}/")
    assert whole.get(f"{prefix}/object").data == b"data"
    assert [info.path for info in whole.list(prefix)] == [f"{prefix}/object"]


def test_a_prefix_is_not_taken_for_a_longer_one(s3_config: StoreConfig) -> None:
    longer = StoreConfig(s3_config.url + "0", s3_config.options)
    open_store(longer).put("object", b"data")
    open_store(longer).uploads.start("upload")
    assert list(open_store(s3_config).list()) == []
    assert list(open_store(s3_config).uploads.list_dangling()) == []


def test_a_range_of_an_empty_object_is_refused(store: ObjectStore) -> None:
    store.put("empty", b"")
    with pytest.raises(InvalidInputError):
        store.get_range("empty", ByteRange(0, 1))


def test_a_put_waits_for_a_server_that_comes_back(s3_server: S3Server) -> None:
    patient = RetryPolicy(deadline_ms=60_000, attempt_timeout_ms=5_000, backoff_max_ms=200)
    store = open_store(s3_server.store_config("restart", retry=patient))
    store.put("before", b"kept")
    s3_server.kill()
    restart = threading.Thread(target=s3_server.start)
    restart.start()
    try:
        store.put("during", b"data")
    finally:
        restart.join()
    assert store.get("before").data == b"kept"
    assert store.get("during").data == b"data"
