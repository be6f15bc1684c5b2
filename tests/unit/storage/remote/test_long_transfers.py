"""Work of many requests takes as long as it takes; the deadline is for what stalls."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.servers.http_script import Answer, HttpScript, Request, answer

from lakestate.config import RetryPolicy
from lakestate.errors import StorageUnavailableError
from lakestate.storage import ByteRange
from lakestate.storage.spans import MERGED_BYTES_MAX, MERGED_GAP_BYTES, merge_spans

# Transfers over a socket, cut off and slowed down.
pytestmark = pytest.mark.slow

CHUNK = 10_000
DATA = bytes(range(256)) * 400
OTHER = DATA[::-1]
STEP_S = 0.1
HASTY = RetryPolicy(deadline_ms=600, attempt_timeout_ms=500, backoff_first_ms=5, backoff_max_ms=20)
NEVER_CUT = RetryPolicy(deadline_ms=600, attempt_timeout_ms=20_000, backoff_first_ms=5, backoff_max_ms=20)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakestate.storage.remote.download.CHUNK_BYTES", CHUNK)
    monkeypatch.setattr("lakestate.storage.remote.client.SINGLE_PUT_BYTES_MAX", CHUNK)
    monkeypatch.setattr("lakestate.storage.remote.client.PART_BYTES", CHUNK)
    monkeypatch.setattr("lakestate.storage.remote.client.PARTS_IN_FLIGHT_MAX", 1)
    monkeypatch.setattr("lakestate.storage.remote.client.LIST_BATCH", 1)


@dataclass
class Server:
    """Serves one object, slowly or with broken lines, and replaces it when the test says so."""

    data: bytes = DATA
    e_tag: str = '"one"'
    step_s: float = 0.0
    sent_max: int = len(DATA)
    replaced_after: int | None = None
    knows_conditions: bool = True
    answers: int = 0

    def __call__(self, request: Request) -> Answer:
        if self.answers == self.replaced_after:
            self.data, self.e_tag = OTHER, '"two"'
        self.answers += 1
        if self.knows_conditions and request.headers.get("if-match", self.e_tag) != self.e_tag:
            return answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        start, stop = (int(span[1]), int(span[2]) + 1) if span else (0, len(self.data))
        headers = {"ETag": self.e_tag}
        if span:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(self.data)}"
        return Answer(206 if span else 200, self._pieces(start, stop), headers, stop - start)

    def _pieces(self, start: int, stop: int) -> Iterator[bytes]:
        for first in range(start, min(stop, start + self.sent_max), CHUNK):
            yield self.data[first : min(first + CHUNK, stop)]
            time.sleep(self.step_s)


def ranges(server: HttpScript) -> list[str | None]:
    return [request.headers.get("range") for request in server.requests]


def test_an_object_arrives_that_takes_longer_than_the_deadline() -> None:
    with HttpScript(Server(step_s=STEP_S)) as server:
        began_s = time.monotonic()
        assert server.store(HASTY).get("run").data == DATA
    assert time.monotonic() - began_s > HASTY.deadline_ms / 1000
    assert len(server.requests) > 1


def test_ranges_arrive_that_take_longer_than_the_deadline() -> None:
    spans = [ByteRange(50_001, 52_000), ByteRange(1, 50_000)]
    with HttpScript(Server(step_s=STEP_S)) as server:
        assert server.store(HASTY).get_ranges("run", spans) == [DATA[50_001:102_001], DATA[1:50_001]]


def test_only_the_rest_is_asked_for_again() -> None:
    with HttpScript(Server(sent_max=4 * CHUNK)) as server:
        assert server.store(NEVER_CUT).get("run").data == DATA
    assert ranges(server) == [None, "bytes=40000-102399", "bytes=80000-102399"]
    assert [request.headers.get("if-match") for request in server.requests] == [None, '"one"', '"one"']


def test_a_small_object_takes_one_request_without_a_range() -> None:
    with HttpScript(Server(data=b"small")) as server:
        assert server.store(NEVER_CUT).get("record").data == b"small"
    assert ranges(server) == [None]


@pytest.mark.parametrize("knows_conditions", [True, False])
def test_no_object_is_put_together_from_two(knows_conditions: bool) -> None:
    script = Server(sent_max=6 * CHUNK, replaced_after=1, knows_conditions=knows_conditions)
    with HttpScript(script) as server:
        stored = server.store(NEVER_CUT).get("run")
    assert (stored.data, stored.version.token) == (OTHER, '"two"')


def test_a_transfer_that_stalls_is_given_up_with_what_happened() -> None:
    script = Server(sent_max=4 * CHUNK)

    def stuck(request: Request) -> Answer:
        return answer(503) if "range" in request.headers else script(request)

    with HttpScript(stuck) as server, pytest.raises(StorageUnavailableError) as caught:
        server.store(NEVER_CUT).get("run")
    assert caught.value.summary == "the store answered at first, then stalled: no progress within 0.6 s"
    assert "credentials" not in str(caught.value)


@dataclass
class PartsServer:
    """Takes an upload in parts, slowly. Each listed step is refused once."""

    refused: list[str]
    taken: dict[str, bytes]
    completed: int = 0

    def __call__(self, request: Request) -> Answer:
        time.sleep(STEP_S)
        query = parse_qs(urlsplit(request.target).query, keep_blank_values=True)
        step = query["partNumber"][0] if "partNumber" in query else "start" if "uploads" in query else "end"
        if step in self.refused:
            self.refused.remove(step)
            return answer(503, b"<Error><Code>SlowDown</Code></Error>")
        if step == "start":
            self.taken.clear()
            return answer(200, _xml("InitiateMultipartUploadResult", "<UploadId>upload</UploadId>"))
        if step == "end":
            return self._complete()
        self.taken[step] = request.body
        return answer(200, ETag=f'"{step}"')

    def _complete(self) -> Answer:
        self.completed += 1
        if "lost" in self.refused:
            # The first answer is lost, and the upload is gone when it is asked for again.
            if self.completed == 1:
                return Answer(200, [b"<"], length=100)
            self.refused.remove("lost")
            return answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        return answer(200, _xml("CompleteMultipartUploadResult", "<ETag>whole</ETag>"))


def _xml(name: str, body: str) -> bytes:
    return f'<?xml version="1.0"?><{name}>{body}</{name}>'.encode()


def test_a_large_put_repeats_only_the_part_that_was_refused_however_late() -> None:
    script = PartsServer(["9"], {})
    with HttpScript(script) as server:
        server.store(NEVER_CUT).put("run", DATA)
    assert b"".join(script.taken[str(number)] for number in range(1, 12)) == DATA
    assert len(server.requests) == 1 + 11 + 1 + 1


def test_a_large_put_is_repeated_if_its_outcome_is_unknown() -> None:
    script = PartsServer(["lost"], {})
    with HttpScript(script) as server:
        server.store(NEVER_CUT).put("run", DATA)
    assert b"".join(script.taken[str(number)] for number in range(1, 12)) == DATA
    assert script.completed == 3


@dataclass
class PagesServer:
    """Lists ten objects on a page each, slowly. One page is refused once, or breaks off."""

    fault: Answer | None

    def __call__(self, request: Request) -> Answer:
        time.sleep(STEP_S)
        query = parse_qs(urlsplit(request.target).query)
        number = int(query.get("continuation-token", ["0"])[0])
        if number == 8 and self.fault is not None:
            fault, self.fault = self.fault, None
            return fault
        found = (
            f"<Contents><Key>prefix/{number}</Key><LastModified>2026-11-16T06:00:00Z</LastModified>"
            f'<Size>1</Size><ETag>"e"</ETag></Contents>'
        )
        more = f"<NextContinuationToken>{number + 1}</NextContinuationToken>" if number < 9 else ""
        return answer(200, _xml("ListBucketResult", found + more))


@pytest.mark.parametrize(
    ("fault", "requests"), [(answer(503), 11), (Answer(200, [b"<"], length=100), 19)], ids=["503", "cut"]
)
def test_a_long_listing_survives_a_fault_however_late(fault: Answer, requests: int) -> None:
    with HttpScript(PagesServer(fault)) as server:
        assert [info.path for info in server.store(NEVER_CUT).list()] == [str(number) for number in range(10)]
    assert len(server.requests) == requests


def test_every_span_lies_in_one_of_the_merged_ones() -> None:
    chance = random.Random(1)
    sizes = [1, 1000, MERGED_GAP_BYTES, MERGED_BYTES_MAX, 3 * MERGED_BYTES_MAX]
    for _ in range(500):
        spans = [
            ByteRange(chance.choice(sizes) * chance.randrange(4), chance.choice(sizes)) for _ in range(6)
        ]
        merged = merge_spans(spans)
        assert len(merged) <= len(spans)
        for span in spans:
            assert any(
                place.start <= span.start and span.start + span.length <= place.start + place.length
                for place in merged
            )
