"""Downloads one object, or a span of it, in as many requests as it takes.

A request is cut off when it takes too long or the connection breaks, and the next one requests the
rest. All answers must have the same version, so that two versions are never mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import obstore
from obstore.exceptions import PreconditionError

from lakestate.storage.retry import Applied, TransientFault

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, ObjectMeta

    from lakestate.storage.remote.obstore_client import RemoteClientStore
    from lakestate.storage.store import ByteRange

CHUNK_BYTES = 1 << 20
"""The most that is lost when a transfer is cut off. Shorter answers are read in one piece."""


class Download:
    """What has arrived so far. Call `attempt` until it returns."""

    def __init__(self, client: RemoteClientStore, key: str, span: ByteRange | None) -> None:
        self._client = client
        self._key = key
        self._span = span
        self._start = 0 if span is None else span.start
        self._stop = 0
        self._chunks: list[bytes] = []
        self._meta: ObjectMeta | None = None
        self.arrived = 0

    @property
    def meta(self) -> ObjectMeta:
        """The store's description of the object."""
        assert self._meta is not None, "no answer has arrived yet"
        return self._meta

    def data(self) -> bytes:
        """The bytes of the span, up to the end of the object."""
        return b"".join(self._chunks)

    def attempt(self) -> None:
        """Request what is missing, once."""
        if self.arrived and self.meta["e_tag"] is None:
            self._forget()
        if self.arrived and self._position == self._stop:
            return
        try:
            result = obstore.get(self._client, self._key, options=self._options())
        except PreconditionError:
            self._start_again()
        self._check(result)
        if self._stop - self._position < CHUNK_BYTES:
            self._append(result.bytes().to_bytes())
        else:
            for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
                self._append(chunk)
        if self._position != self._stop:
            raise TransientFault(f"the answer ends at {self._position} of {self._stop} bytes", Applied.NO)

    @property
    def _position(self) -> int:
        return self._start + self.arrived

    def _options(self) -> GetOptions:
        if self.arrived:
            return {"range": (self._position, self._stop), "if_match": self.meta["e_tag"]}
        if self._span is not None:
            return {"range": (self._start, self._start + self._span.length)}
        # No range from 0: an empty object has none.
        return {}

    def _check(self, result: GetResult) -> None:
        """Check that the answer continues what has arrived. A store may ignore the condition."""
        found = (result.range, result.meta["e_tag"])
        if self.arrived and found != ((self._position, self._stop), self.meta["e_tag"]):
            self._start_again()
        self._meta, self._stop = result.meta, result.range[1]

    def _append(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.arrived += len(chunk)

    def _start_again(self) -> NoReturn:
        self._forget()
        raise TransientFault("the object was replaced while it was read", Applied.NO) from None

    def _forget(self) -> None:
        self._chunks, self._meta, self.arrived = [], None, 0
