# ruff: noqa: D102 - the names of the tests are their sentences
"""What every store's multipart uploads must do.

Part of `StoreContract`.
"""

from __future__ import annotations

import pickle
import time

import pytest

from lakestate.errors import CorruptionError, InvalidInputError, NotFoundError
from lakestate.storage import DanglingUpload, ObjectStore, UploadedPart, UploadId


class UploadContract:
    """What every `MultipartUploads` does. The `store` fixture must be empty."""

    def test_an_upload_appears_when_it_is_completed(self, store: ObjectStore) -> None:
        first, last = first_part(store), b"the last part may be short"
        upload = store.uploads.start("folder/object")
        parts = [store.uploads.put_part(upload, 1, first), store.uploads.put_part(upload, 2, last)]
        assert list(store.list()) == []
        info = store.uploads.complete(upload, parts)
        found = store.head("folder/object")
        # Not the time: client and server have clocks of their own.
        assert (found.path, found.size_bytes, found.version) == (info.path, info.size_bytes, info.version)
        assert store.get("folder/object").data == first + last
        assert list(store.uploads.list_dangling()) == []

    def test_an_upload_replaces_the_object(self, store: ObjectStore) -> None:
        store.put("object", b"a longer content from before")
        upload, parts = start_upload(store, "object", b"new")
        assert store.get("object").data == b"a longer content from before"
        store.uploads.complete(upload, parts)
        assert store.get("object").data == b"new"

    def test_parts_are_listed_by_number(self, store: ObjectStore) -> None:
        upload = store.uploads.start("object")
        assert store.uploads.list_parts(upload) == ()
        third = store.uploads.put_part(upload, 3, memoryview(b"three"))
        first = store.uploads.put_part(upload, 1, first_part(store))
        assert store.uploads.list_parts(upload) == (first, third)

    def test_parts_with_gaps_make_an_object(self, store: ObjectStore) -> None:
        upload = store.uploads.start("object")
        last = store.uploads.put_part(upload, 10_000, b"last")
        first = store.uploads.put_part(upload, 2, first_part(store))
        store.uploads.complete(upload, [first, last])
        assert store.get("object").data == first_part(store) + b"last"

    def test_the_same_number_again_replaces_the_part(self, store: ObjectStore) -> None:
        upload, _ = start_upload(store, "object", b"old")
        part = store.uploads.put_part(upload, 1, b"brand new")
        assert [each.number for each in store.uploads.list_parts(upload)] == [1]
        store.uploads.complete(upload, [part])
        assert store.get("object").data == b"brand new"

    def test_completing_twice_is_success(self, store: ObjectStore) -> None:
        upload, parts = start_upload(store, "object", b"data")
        first = store.uploads.complete(upload, parts)
        again = store.uploads.complete(upload, parts)
        # Not the time: a store may give the client's clock for an object that it has just written.
        assert (again.path, again.size_bytes, again.version) == (first.path, first.size_bytes, first.version)
        assert store.get("object").data == b"data"

    def test_an_upload_that_is_gone_was_completed_if_the_size_is_right(self, store: ObjectStore) -> None:
        upload, parts = start_upload(store, "object", b"data")
        store.uploads.abort(upload)
        store.put("object", b"four")
        assert store.uploads.complete(upload, parts).size_bytes == 4

    def test_an_upload_that_is_gone_with_another_size_is_corrupt(self, store: ObjectStore) -> None:
        upload, parts = start_upload(store, "object", b"data")
        store.uploads.complete(upload, parts)
        store.put("object", b"something else")
        with pytest.raises(CorruptionError, match="found 14 bytes; expected 4 bytes"):
            store.uploads.complete(upload, parts)

    def test_an_aborted_upload_is_gone(self, store: ObjectStore) -> None:
        upload, parts = start_upload(store, "object", b"data")
        store.uploads.abort(upload)
        store.uploads.abort(upload)
        for attempt in (
            lambda: store.uploads.list_parts(upload),
            lambda: store.uploads.put_part(upload, 2, b"x"),
            lambda: store.uploads.complete(upload, parts),
        ):
            with pytest.raises(NotFoundError):
                attempt()
        assert list(store.list()) == []
        assert list(store.uploads.list_dangling()) == []

    def test_aborting_after_completing_keeps_the_object(self, store: ObjectStore) -> None:
        upload, parts = start_upload(store, "object", b"data")
        store.uploads.complete(upload, parts)
        store.uploads.abort(upload)
        assert store.get("object").data == b"data"

    def test_dangling_uploads_are_found_by_prefix(self, store: ObjectStore) -> None:
        before_ms = time.time() * 1000
        uploads = [store.uploads.start(path) for path in ("b/1", "a/2", "a/1", "ab")]
        found = list(store.uploads.list_dangling("a/"))
        assert [each.upload for each in found] == [uploads[2], uploads[1]]
        assert all(abs(each.started_ms - before_ms) < 60_000 for each in found)
        assert [each.upload.path for each in store.uploads.list_dangling()] == ["a/1", "a/2", "ab", "b/1"]
        assert [each.upload.path for each in store.uploads.list_dangling("a")] == ["a/1", "a/2", "ab"]

    def test_two_uploads_of_one_object_do_not_mix(self, store: ObjectStore) -> None:
        one, one_parts = start_upload(store, "object", b"one")
        two, two_parts = start_upload(store, "object", b"two two")
        store.uploads.complete(two, two_parts)
        assert store.get("object").data == b"two two"
        store.uploads.complete(one, one_parts)
        assert store.get("object").data == b"one"

    def test_another_instance_continues_an_upload(self, store: ObjectStore) -> None:
        upload, parts = start_upload(store, "object", b"data")
        twin: ObjectStore = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
        upload = pickle.loads(pickle.dumps(upload))  # noqa: S301
        assert twin.uploads.list_parts(upload) == tuple(parts)
        dangling = [DanglingUpload(upload, each.started_ms) for each in twin.uploads.list_dangling()]
        assert list(twin.uploads.list_dangling()) == dangling
        twin.uploads.complete(upload, parts)
        assert store.get("object").data == b"data"

    @pytest.mark.parametrize("number", [-1, 0, 10_001])
    def test_a_part_number_out_of_range_is_refused(self, store: ObjectStore, number: int) -> None:
        upload = store.uploads.start("object")
        with pytest.raises(InvalidInputError, match="1 to 10000"):
            store.uploads.put_part(upload, number, b"data")

    def test_parts_must_be_there_and_in_order(self, store: ObjectStore) -> None:
        upload, (part,) = start_upload(store, "object", first_part(store))
        other = store.uploads.put_part(upload, 2, b"x")
        for parts in ([], [other, part], [part, part], [part, UploadedPart(3, 1, other.token)]):
            with pytest.raises(InvalidInputError):
                store.uploads.complete(upload, parts)
        assert list(store.list()) == []

    def test_a_receipt_of_a_replaced_part_stands_for_its_own_bytes(self, store: ObjectStore) -> None:
        upload, parts = start_upload(store, "object", b"old")
        store.uploads.put_part(upload, 1, b"new")
        try:
            store.uploads.complete(upload, parts)
        except InvalidInputError:
            assert list(store.list()) == []
        else:
            # SeaweedFS keeps replaced parts until the upload is completed.
            assert store.get("object").data == b"old"

    @pytest.mark.parametrize("token", ["never-was", "0" * 32, "../../outside", "a/b"])
    def test_an_upload_that_never_was_touches_nothing(self, store: ObjectStore, token: str) -> None:
        upload = UploadId("object", token)
        with pytest.raises((NotFoundError, InvalidInputError)):
            store.uploads.put_part(upload, 1, b"data")
        with pytest.raises((NotFoundError, InvalidInputError)):
            store.uploads.complete(upload, [UploadedPart(1, 4, "receipt")])
        assert list(store.list()) == []


def first_part(store: ObjectStore) -> bytes:
    """A part that is large enough to be followed by another."""
    return b"\x5a" * store.uploads.part_bytes_min


def start_upload(store: ObjectStore, path: str, data: bytes) -> tuple[UploadId, list[UploadedPart]]:
    """An upload with one part."""
    upload = store.uploads.start(path)
    return upload, [store.uploads.put_part(upload, 1, data)]
