# ruff: noqa: D102 - the names of the tests are their sentences
"""One pytest suite that every object store must pass.

Subclass `StoreContract` in a test file and give it a `store` fixture that is empty for every test::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()
"""

from __future__ import annotations

import pickle

import pytest

from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.storage import (
    AlreadyExists,
    ByteRange,
    Created,
    Data,
    ObjectStore,
    SwapConflict,
    Swapped,
)
from lakestate.testing.upload_contract import UploadContract

ILLEGAL_PATHS = (
    "",
    "/",
    "/absolute",
    "trailing/",
    "two//slashes",
    ".",
    "..",
    "a/./b",
    "a/../b",
    "../outside",
    "line\nbreak",
    "null\0byte",
    "delete\x7f",
    "lone\ud800surrogate",
    ".lakestate/tmp/x",
    "nested/.lakestate/x",
    "long/" + "x" * 256,
    "/".join(["x" * 200] * 6),
)
UNUSUAL_PATHS = (
    "a b/c+d",
    "ä/日本",
    "per%20cent",
    "q?u=e&r#y",
    "tilde~'quote\"",
    "...",
    ".hidden/x",
    "=col=1/-",
)


class StoreContract(UploadContract):
    """What every `ObjectStore` does. The `store` fixture must be empty."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        """The store under test."""
        raise NotImplementedError("give the subclass a `store` fixture")

    @pytest.mark.parametrize("data", [b"", b"some", bytearray(b"some"), memoryview(b"some")])
    def test_what_was_put_is_read_back(self, store: ObjectStore, data: Data) -> None:
        store.put("folder/object", data)
        assert store.get("folder/object").data == bytes(data)

    def test_a_large_object_is_read_back(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * (40 << 10)
        store.put("large", data)
        assert store.get("large").data == data

    def test_a_put_replaces_what_was_there(self, store: ObjectStore) -> None:
        store.put("object", b"a long first content")
        store.put("object", b"second")
        assert store.get("object").data == b"second"

    def test_every_operation_names_the_same_version(self, store: ObjectStore) -> None:
        put = store.put("object", b"data")
        head = store.head("object")
        assert head.version == put.version
        assert (head.path, head.size_bytes) == ("object", 4)
        assert list(store.list()) == [head]
        assert store.get("object").version == put.version

    def test_the_time_of_an_object_is_in_milliseconds(self, store: ObjectStore) -> None:
        put_ms = store.put("object", b"data").modified_ms
        # S3 knows seconds only, and the clocks of client and server may differ.
        assert abs(store.head("object").modified_ms - put_ms) < 60_000

    def test_another_content_is_another_version(self, store: ObjectStore) -> None:
        versions = {store.put("object", data).version for data in (b"1", b"2", b"3", b"4")}
        assert len(versions) == 4

    @pytest.mark.parametrize("path", UNUSUAL_PATHS)
    def test_an_unusual_path_is_kept_as_it_is(self, store: ObjectStore, path: str) -> None:
        store.put(path, b"data")
        assert [info.path for info in store.list()] == [path]
        assert store.get(path).data == b"data"

    @pytest.mark.parametrize("path", ILLEGAL_PATHS)
    def test_an_illegal_path_is_refused_and_nothing_written(self, store: ObjectStore, path: str) -> None:
        version = store.put("legal", b"data").version
        for attempt in (
            lambda: store.put(path, b"x"),
            lambda: store.get(path),
            lambda: store.head(path),
            lambda: store.create(path, b"x"),
            lambda: store.compare_and_swap(path, b"x", version),
            lambda: store.delete_many([path]),
            lambda: store.copy("legal", path),
            lambda: store.uploads.start(path),
        ):
            with pytest.raises(InvalidInputError):
                attempt()
        assert [info.path for info in store.list()] == ["legal"]

    def test_what_is_missing_is_not_found(self, store: ObjectStore) -> None:
        store.put("present", b"data")
        for attempt in (
            lambda: store.get("missing"),
            lambda: store.head("missing"),
            lambda: store.get_range("missing", ByteRange(0, 1)),
            lambda: store.get_many(["present", "missing"]),
            lambda: store.copy("missing", "target"),
        ):
            with pytest.raises(NotFoundError) as caught:
                attempt()
            assert caught.value.object_name == f"{store.url}/missing"

    def test_a_folder_is_not_an_object(self, store: ObjectStore) -> None:
        store.put("folder/object", b"data")
        with pytest.raises(NotFoundError):
            store.get("folder")
        with pytest.raises(NotFoundError):
            store.head("folder")

    def test_ranges_come_in_the_order_asked(self, store: ObjectStore) -> None:
        store.put("object", b"0123456789")
        spans = [ByteRange(7, 3), ByteRange(0, 2), ByteRange(1, 5), ByteRange(0, 10)]
        assert store.get_ranges("object", spans) == [b"789", b"01", b"12345", b"0123456789"]
        assert store.get_range("object", ByteRange(4, 1)) == b"4"
        assert store.get_ranges("object", []) == []

    def test_ranges_far_apart_come_in_the_order_asked(self, store: ObjectStore) -> None:
        store.put("object", b"a" + bytes(3 << 20) + b"b" + bytes(3 << 20) + b"c")
        spans = [ByteRange((6 << 20) + 2, 1), ByteRange(0, 1), ByteRange((3 << 20) + 1, 1)]
        assert store.get_ranges("object", spans) == [b"c", b"a", b"b"]

    @pytest.mark.parametrize("span", [ByteRange(8, 3), ByteRange(10, 1), ByteRange(99, 1)])
    def test_a_range_beyond_the_end_is_refused(self, store: ObjectStore, span: ByteRange) -> None:
        store.put("object", b"0123456789")
        with pytest.raises(InvalidInputError, match="ends before"):
            store.get_range("object", span)

    @pytest.mark.parametrize("span", [ByteRange(-1, 3), ByteRange(2, 0), ByteRange(2, -1)])
    def test_a_range_without_bytes_is_refused(self, store: ObjectStore, span: ByteRange) -> None:
        store.put("object", b"0123456789")
        with pytest.raises(InvalidInputError, match="not a byte range"):
            store.get_range("object", span)

    def test_many_objects_come_in_the_order_asked(self, store: ObjectStore) -> None:
        names = [f"many/{number}" for number in range(40)]
        for name in names:
            store.put(name, name.encode())
        found = store.get_many(names[::-1])
        assert [stored.data.decode() for stored in found] == names[::-1]
        assert store.get_many([]) == []

    def test_a_listing_is_in_order_of_path(self, store: ObjectStore) -> None:
        paths = ["a-b", "a.b", "a/b", "a/b-c/d", "a/b.c", "a0", "a/c/d", "b", "ä"]
        for path in paths:
            if path != "a/b":
                store.put(path, b"")
        expected = sorted(path for path in paths if path != "a/b")
        assert [info.path for info in store.list()] == expected

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", ["epochs/1", "epochs/10", "epochs/2", "epochs-old/1", "tags/1"]),
            ("epochs/", ["epochs/1", "epochs/10", "epochs/2"]),
            ("epochs/1", ["epochs/1", "epochs/10"]),
            ("epochs", ["epochs/1", "epochs/10", "epochs/2", "epochs-old/1"]),
            ("e", ["epochs/1", "epochs/10", "epochs/2", "epochs-old/1"]),
            ("epochs/1/", []),
            ("none/at/all", []),
        ],
    )
    def test_a_prefix_is_matched_as_text(self, store: ObjectStore, prefix: str, expected: list[str]) -> None:
        for path in ("tags/1", "epochs/2", "epochs/10", "epochs-old/1", "epochs/1"):
            store.put(path, b"data")
        assert [info.path for info in store.list(prefix)] == sorted(expected)

    @pytest.mark.parametrize("prefix", ["/", "../", "a//", "a/../", ".lakestate/", "line\n"])
    def test_an_illegal_prefix_is_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(InvalidInputError):
            list(store.list(prefix))

    @pytest.mark.parametrize(
        ("folder", "expected"),
        [("", ["a", "a-b", "b", "ä"]), ("a/", ["c", "d"]), ("a/c/", []), ("a/d/", ["e"]), ("none/", [])],
    )
    def test_folders_are_listed_without_what_is_in_them(
        self, store: ObjectStore, folder: str, expected: list[str]
    ) -> None:
        for path in ("a/1", "a/c/2", "a/c/3", "a/d/e/4", "a-b/5", "b/6", "c", "ä/7"):
            store.put(path, b"data")
        assert store.list_folders(folder) == expected

    @pytest.mark.parametrize("folder", ["a", "/", "../", "a//", ".lakestate/"])
    def test_what_is_not_a_folder_is_refused(self, store: ObjectStore, folder: str) -> None:
        with pytest.raises(InvalidInputError):
            store.list_folders(folder)

    def test_unfinished_uploads_are_in_no_folder(self, store: ObjectStore) -> None:
        store.uploads.start("sink/file")
        assert store.list_folders() == []

    def test_deleting_removes_only_what_is_named(self, store: ObjectStore) -> None:
        for path in ("a/1", "a/2", "b/1", "b/2"):
            store.put(path, b"data")
        store.delete_many(["a/1", "b/1", "b/2", "never/was"])
        assert [info.path for info in store.list()] == ["a/2"]

    def test_deleting_twice_is_success(self, store: ObjectStore) -> None:
        store.put("object", b"data")
        store.delete_many(["object"])
        store.delete_many(["object"])
        store.delete_many([])
        with pytest.raises(NotFoundError):
            store.get("object")

    def test_a_folder_emptied_by_a_delete_can_be_used_again(self, store: ObjectStore) -> None:
        store.put("deep/down/object", b"1")
        store.delete_many(["deep/down/object"])
        store.put("deep/down/object", b"2")
        assert store.get("deep/down/object").data == b"2"

    def test_creating_answers_created_once(self, store: ObjectStore) -> None:
        created = store.create("object", b"first")
        existing = store.get("object")
        assert created == Created(existing.version)
        assert existing.data == b"first"
        assert store.create("object", b"second") == AlreadyExists(existing)
        assert store.get("object") == existing

    def test_creating_the_same_bytes_is_still_already_there(self, store: ObjectStore) -> None:
        store.put("object", b"same")
        assert store.create("object", b"same") == AlreadyExists(store.get("object"))

    def test_what_was_deleted_can_be_created(self, store: ObjectStore) -> None:
        store.create("object", b"first")
        store.delete_many(["object"])
        assert store.create("object", b"second") == Created(store.head("object").version)
        assert store.get("object").data == b"second"

    def test_a_swap_needs_the_version_that_is_there(self, store: ObjectStore) -> None:
        first = store.put("object", b"first").version
        swapped = store.compare_and_swap("object", b"second", first)
        second = store.get("object")
        assert swapped == Swapped(second.version)
        assert second.data == b"second"
        assert store.compare_and_swap("object", b"third", first) == SwapConflict(second)
        assert store.get("object") == second

    def test_a_created_version_can_be_swapped(self, store: ObjectStore) -> None:
        created = store.create("object", b"first")
        assert isinstance(created, Created)
        swapped = store.compare_and_swap("object", b"second", created.version)
        assert swapped == Swapped(store.head("object").version)
        assert isinstance(swapped, Swapped)
        assert isinstance(store.compare_and_swap("object", b"third", swapped.version), Swapped)

    def test_a_version_from_a_listing_can_be_swapped(self, store: ObjectStore) -> None:
        store.put("object", b"first")
        (info,) = store.list()
        assert isinstance(store.compare_and_swap("object", b"second", info.version), Swapped)

    def test_a_swap_of_what_is_gone_says_so(self, store: ObjectStore) -> None:
        version = store.put("object", b"data").version
        store.delete_many(["object"])
        assert store.compare_and_swap("object", b"new", version) == SwapConflict(None)
        assert list(store.list()) == []

    def test_a_copy_has_the_same_bytes(self, store: ObjectStore) -> None:
        store.put("source", b"data")
        store.put("deep/target", b"something else")
        info = store.copy("source", "deep/target")
        assert info == store.head("deep/target")
        assert store.get("deep/target").data == b"data"
        assert store.get("source").data == b"data"

    def test_a_pickled_store_has_the_same_objects(self, store: ObjectStore) -> None:
        store.put("object", b"data")
        twin = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
        assert twin.get("object") == store.get("object")
        assert twin.url == store.url

    def test_it_satisfies_the_protocol(self, store: ObjectStore) -> None:
        assert isinstance(store, ObjectStore)
        assert store.url in repr(store)
