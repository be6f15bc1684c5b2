"""Faults between client and server: every outcome is right, or named unknown."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.servers.fault_proxy import Fault, FaultProxy

from lakestate.config import RetryPolicy
from lakestate.errors import OutcomeUnknownError, StorageUnavailableError
from lakestate.storage import (
    AlreadyExists,
    ByteRange,
    Created,
    ObjectStore,
    SwapConflict,
    Swapped,
    UploadedPart,
    UploadId,
    open_store,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakestate.testing.s3_server import S3Server

PATIENT = RetryPolicy(deadline_ms=60_000, attempt_timeout_ms=20_000, backoff_first_ms=5, backoff_max_ms=50)
HASTY = RetryPolicy(deadline_ms=300, attempt_timeout_ms=20_000, backoff_first_ms=5, backoff_max_ms=50)
DELAY_S = 30
ALL = list(Fault)
WRITES = [fault for fault in Fault if fault is not Fault.CUT_ANSWER]
ACTS = [fault for fault in WRITES if fault.server_acts]
DOES_NOT_ACT = [fault for fault in Fault if not fault.server_acts]


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.port, DELAY_S) as proxy:
        yield proxy


@pytest.fixture
def prefix() -> str:
    return f"faults/{uuid.uuid4().hex}"


@pytest.fixture
def direct(s3_server: S3Server, prefix: str) -> ObjectStore:
    """The same store without the proxy: what somebody else sees and does."""
    return open_store(s3_server.store_config(prefix))


def cut(retry: RetryPolicy, attempt_timeout_ms: int, request: pytest.FixtureRequest) -> RetryPolicy:
    """Only an answer that is late on purpose is not waited for: a busy machine must not look like a fault."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    is_late = params.get("fault") is Fault.DELAY
    return replace(retry, attempt_timeout_ms=attempt_timeout_ms) if is_late else retry


@pytest.fixture
def store(s3_server: S3Server, proxy: FaultProxy, prefix: str, request: pytest.FixtureRequest) -> ObjectStore:
    # Long enough for what a test does at the server while the answer is held back.
    retry = cut(PATIENT, 1000, request)
    return open_store(s3_server.store_config(prefix, endpoint=proxy.endpoint, retry=retry))


@pytest.fixture
def hasty(s3_server: S3Server, proxy: FaultProxy, prefix: str, request: pytest.FixtureRequest) -> ObjectStore:
    retry = cut(HASTY, 150, request)
    return open_store(s3_server.store_config(prefix, endpoint=proxy.endpoint, retry=retry))


@pytest.mark.parametrize("fault", WRITES)
def test_a_put_survives_a_fault(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.once(fault, "PUT")
    info = store.put("object", b"data")
    assert proxy.plan.struck == [fault]
    assert direct.get("object").data == b"data"
    assert direct.head("object").version == info.version


@pytest.mark.parametrize("fault", ALL)
def test_a_get_survives_a_fault(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    data = bytes(range(256)) * 4096
    direct.put("object", data)
    proxy.once(fault, "GET")
    assert store.get("object") == direct.get("object")
    proxy.once(fault, "GET")
    assert store.get_range("object", ByteRange(1000, 5000)) == data[1000:6000]
    assert proxy.plan.struck == [fault, fault]


def test_a_large_get_continues_where_it_was_cut(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy
) -> None:
    data = bytes(range(251)) * 20_000
    direct.put("object", data)
    proxy.once(Fault.CUT_ANSWER, "GET")
    proxy.once(Fault.CUT_ANSWER, "GET")
    assert store.get("object") == direct.get("object")
    proxy.once(Fault.CUT_ANSWER, "GET")
    assert store.get_range("object", ByteRange(7, 4_000_000)) == data[7:4_000_007]
    assert proxy.plan.struck == [Fault.CUT_ANSWER] * 3


def test_a_large_object_that_is_replaced_while_it_is_read_is_the_new_one(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy
) -> None:
    old, new = bytes(5_000_000), bytes(range(250)) * 20_000
    direct.put("object", old)
    proxy.once(Fault.CUT_ANSWER, "GET", meanwhile=lambda: direct.put("object", new))
    stored = store.get("object")
    assert (stored.data, stored.version) == (new, direct.head("object").version)


@pytest.mark.parametrize("fault", ALL)
def test_a_listing_survives_a_fault(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    for number in range(10):
        direct.put(f"object-{number}", b"data")
    proxy.once(fault, "GET")
    assert list(store.list()) == list(direct.list())
    assert proxy.plan.struck == [fault]


@pytest.mark.parametrize("fault", WRITES)
def test_a_delete_survives_a_fault(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    direct.put("a", b"data")
    direct.put("b", b"data")
    proxy.once(fault, "POST")
    store.delete_many(["a", "missing", "b"])
    assert proxy.plan.struck == [fault]
    assert list(direct.list()) == []


@pytest.mark.parametrize("fault", WRITES)
def test_a_create_says_created_whatever_was_lost(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.once(fault, "PUT")
    outcome = store.create("object", b"ours")
    assert proxy.plan.struck == [fault]
    assert outcome == Created(direct.head("object").version)
    assert direct.get("object").data == b"ours"


@pytest.mark.parametrize("fault", WRITES)
def test_a_create_says_who_was_first_whatever_was_lost(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    direct.create("object", b"theirs")
    proxy.once(fault, "PUT")
    assert store.create("object", b"ours") == AlreadyExists(direct.get("object"))
    assert proxy.plan.struck == [fault]


@pytest.mark.parametrize("fault", DOES_NOT_ACT)
def test_a_create_that_was_overtaken_says_who_was_first(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.once(fault, "PUT", meanwhile=lambda: direct.create("object", b"theirs"))
    assert store.create("object", b"ours") == AlreadyExists(direct.get("object"))
    assert direct.get("object").data == b"theirs"


@pytest.mark.parametrize("fault", WRITES)
def test_a_swap_says_swapped_whatever_was_lost(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    version = direct.put("object", b"before").version
    proxy.once(fault, "PUT")
    outcome = store.compare_and_swap("object", b"ours", version)
    assert proxy.plan.struck == [fault]
    assert outcome == Swapped(direct.head("object").version)
    assert direct.get("object").data == b"ours"


@pytest.mark.parametrize("fault", [Fault.ANSWER_503, Fault.ANSWER_429])
def test_a_swap_that_was_surely_not_applied_says_conflict(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    version = direct.put("object", b"before").version
    proxy.once(fault, "PUT", meanwhile=lambda: direct.put("object", b"theirs"))
    assert store.compare_and_swap("object", b"ours", version) == SwapConflict(direct.get("object"))


@pytest.mark.parametrize("fault", [*ACTS, Fault.RESET_BEFORE])
def test_a_swap_that_may_have_been_replaced_is_unknown(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    version = direct.put("object", b"before").version
    proxy.once(fault, "PUT", meanwhile=lambda: direct.put("object", b"theirs"))
    with pytest.raises(OutcomeUnknownError) as caught:
        store.compare_and_swap("object", b"ours", version)
    assert caught.value.object_name == f"{store.url}/object"
    assert direct.get("object").data == b"theirs"


def test_lost_answers_to_the_end_are_resolved_by_a_last_look(
    hasty: ObjectStore, direct: ObjectStore, proxy: FaultProxy
) -> None:
    proxy.always(Fault.RESET_AFTER, "PUT")
    assert hasty.create("object", b"ours") == Created(direct.head("object").version)
    version = direct.head("object").version
    assert hasty.compare_and_swap("object", b"again", version) == Swapped(direct.head("object").version)
    assert direct.get("object").data == b"again"


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.DELAY, Fault.ERROR_500, Fault.RESET_BEFORE])
def test_a_conditional_write_whose_answers_are_all_lost_is_unknown(
    hasty: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    version = direct.put("swapped", b"before").version
    proxy.always(fault)
    with pytest.raises(OutcomeUnknownError):
        hasty.create("created", b"ours")
    with pytest.raises(OutcomeUnknownError):
        hasty.compare_and_swap("swapped", b"ours", version)


@pytest.mark.parametrize("fault", [Fault.ANSWER_503, Fault.ANSWER_429])
def test_a_server_that_refuses_to_act_is_unavailable(
    hasty: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    info = direct.put("object", b"before")
    proxy.always(fault)
    for attempt in (
        lambda: hasty.put("object", b"new"),
        lambda: hasty.get("object"),
        lambda: list(hasty.list()),
        lambda: hasty.delete_many(["object"]),
        lambda: hasty.create("another", b"new"),
        lambda: hasty.compare_and_swap("object", b"new", info.version),
        lambda: hasty.uploads.start("another"),
    ):
        with pytest.raises(StorageUnavailableError, match=str(int(fault.name[-3:]))):
            attempt()
    proxy.heal()
    assert [found.path for found in direct.list()] == ["object"]
    assert hasty.get("object").data == b"before"


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.DELAY, Fault.ERROR_500])
def test_reads_and_puts_without_an_answer_are_unavailable(
    hasty: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.always(fault)
    with pytest.raises(StorageUnavailableError):
        hasty.put("object", b"data")
    with pytest.raises(StorageUnavailableError):
        hasty.get("object")


def test_a_server_that_is_not_there_is_unavailable_and_nothing_is_unknown(s3_server: S3Server) -> None:
    with FaultProxy(s3_server.port, DELAY_S) as gone:
        endpoint = gone.endpoint
    config = s3_server.store_config("faults", endpoint=endpoint, retry=HASTY)
    store = open_store(config)
    version = open_store(s3_server.store_config("faults")).put("object", b"data").version
    for attempt in (
        lambda: store.get("object"),
        lambda: store.put("object", b"new"),
        lambda: store.create("another", b"new"),
        lambda: store.compare_and_swap("object", b"new", version),
        lambda: store.uploads.start("object"),
        lambda: store.uploads.complete(UploadId("object", "x"), [UploadedPart(1, 1, "x")]),
    ):
        with pytest.raises(StorageUnavailableError) as caught:
            attempt()
        assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize("fault", WRITES)
def test_an_upload_survives_a_fault_at_every_step(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.once(fault, "POST")
    upload = store.uploads.start("object")
    proxy.once(fault, "PUT")
    part = store.uploads.put_part(upload, 1, b"data")
    proxy.once(fault, "GET")
    assert store.uploads.list_parts(upload) == (part,)
    proxy.once(fault, "POST")
    assert store.uploads.complete(upload, [part]) == direct.head("object")
    assert direct.get("object").data == b"data"
    assert proxy.plan.struck == [fault] * 4


@pytest.mark.parametrize("fault", WRITES)
def test_an_abort_survives_a_fault(
    store: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    upload = direct.uploads.start("object")
    proxy.once(fault, "DELETE")
    store.uploads.abort(upload)
    assert proxy.plan.struck == [fault]
    assert list(direct.uploads.list_dangling()) == []


def test_a_completion_whose_answers_are_lost_is_found_by_looking(
    hasty: ObjectStore, direct: ObjectStore, proxy: FaultProxy
) -> None:
    upload = direct.uploads.start("object")
    part = direct.uploads.put_part(upload, 1, b"data")
    proxy.always(Fault.RESET_AFTER, "POST")
    assert hasty.uploads.complete(upload, [part]) == direct.head("object")


def test_a_completion_that_cannot_be_seen_is_unknown(
    hasty: ObjectStore, direct: ObjectStore, proxy: FaultProxy
) -> None:
    upload = direct.uploads.start("object")
    part = direct.uploads.put_part(upload, 1, b"data")
    proxy.always(Fault.RESET_AFTER)
    with pytest.raises(OutcomeUnknownError):
        hasty.uploads.complete(upload, [part])
    proxy.heal()
    assert hasty.uploads.complete(upload, [part]) == direct.head("object")


@pytest.mark.parametrize("fault", [Fault.ANSWER_503, Fault.ANSWER_429])
def test_a_completion_that_was_surely_refused_is_unavailable(
    hasty: ObjectStore, direct: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    upload = direct.uploads.start("object")
    part = direct.uploads.put_part(upload, 1, b"data")
    proxy.always(fault, "POST")
    with pytest.raises(StorageUnavailableError):
        hasty.uploads.complete(upload, [part])
    assert list(direct.list()) == []
