"""Generated auctions: persons, auctions and bids, always the same for the same seed.

Row i of a kind is a pure function of the seed and i, so any range of rows can be generated
anywhere and in any order. Proportions follow Nexmark: of 50 events one is a person, three are
auctions and 46 are bids. All numbers are integers, so sums are exact. No Spark here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError

START_US = 1_767_225_600_000_000
"""The time of the first event: 2026-01-01 00:00 UTC."""

EVENT_US = 100
"""Event time advances by this much from event to event: 10,000 events in a second."""

DISORDER_US = 2_000_000
"""A bid is at most this much older than the newest bid before it. The other kinds are in order."""

_EVENTS_PER_ROUND = 50
_AUCTIONS_PER_ROUND = 3
_BIDS_PER_ROUND = 46
_AUCTIONS_OPEN_MAX = 1000
_TIME = pa.timestamp("us", tz="UTC")
_CHANNELS = ("web", "phone", "app", "agent")
_FIRST_NAMES = ("Ada", "Bert", "Cleo", "Dora", "Emil", "Freya", "Gus", "Hana", "Ivo", "Judit", "Kofi", "Lin")
_LAST_NAMES = ("Abara", "Berg", "Costa", "Diaz", "Endo", "Fofana", "Gupta", "Haas", "Ito", "Jansen", "Kaya")
_CITIES = ("Accra", "Berlin", "Cusco", "Delhi", "Essen", "Fez", "Graz", "Hanoi", "Izmir", "Jena")
_ITEMS = ("lamp", "clock", "chair", "violin", "atlas", "radio", "vase", "camera", "globe", "bicycle")

_Ints: TypeAlias = "npt.NDArray[np.int64]"
_Bits: TypeAlias = "npt.NDArray[np.uint64]"


class AuctionKind(Enum):
    """The three kinds of rows."""

    PERSONS = "persons"
    AUCTIONS = "auctions"
    BIDS = "bids"

    @classmethod
    def of(cls, kind: AuctionKind | str) -> AuctionKind:
        """The kind with that name.

        >>> AuctionKind.of("bids")
        <AuctionKind.BIDS: 'bids'>
        """
        try:
            return cls(kind)
        except ValueError:
            raise InvalidInputError(
                "not a kind of auction rows", found=kind, expected=", ".join(each.value for each in cls)
            ) from None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the kind. Money is in cents."""
        return _SCHEMAS[self]


_SCHEMAS = {
    AuctionKind.PERSONS: pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("email", pa.string()), ("city", pa.string()),
         ("ts", _TIME)]
    ),
    AuctionKind.AUCTIONS: pa.schema(
        [("id", pa.int64()), ("item", pa.string()), ("seller", pa.int64()), ("category", pa.int32()),
         ("reserve", pa.int64()), ("expires", _TIME), ("ts", _TIME)]
    ),
    AuctionKind.BIDS: pa.schema(
        [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("channel", pa.string()),
         ("ts", _TIME)]
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuctionHouse:
    """Any number of rows, generated on demand.

    Bids refer to persons and auctions of earlier rows. A twelfth of the bidders makes more than
    half of the bids.

    >>> house = AuctionHouse(seed=7)
    >>> house.rows("bids", 5000, 5001).drop_columns(["ts"]).to_pylist()
    [{'auction': 268, 'bidder': 101, 'price': 371300, 'channel': 'web'}]
    >>> house.rows("bids", 1000, 1010).equals(house.rows("bids", 0, 5000).slice(1000, 10))
    True
    """

    seed: int = 0

    def rows(self, kind: AuctionKind | str, start: int, stop: int) -> pa.RecordBatch:
        """The rows from number `start` up to, but not including, number `stop`."""
        if not 0 <= start <= stop:
            raise InvalidInputError("not a range of rows", found=f"{start} to {stop}")
        numbers: _Ints = np.arange(start, stop, dtype=np.int64)
        match AuctionKind.of(kind):
            case AuctionKind.PERSONS:
                return self._persons(numbers)
            case AuctionKind.AUCTIONS:
                return self._auctions(numbers)
            case AuctionKind.BIDS:
                return self._bids(numbers)

    def _persons(self, ids: _Ints) -> pa.RecordBatch:
        first = _choose(_FIRST_NAMES, self._bits("first name", ids))
        last = _choose(_LAST_NAMES, self._bits("last name", ids))
        mailbox = pc.binary_join_element_wise(
            pc.utf8_lower(first), pc.utf8_lower(last), pa.array(ids).cast(pa.string()), "."
        )
        columns = [
            pa.array(ids),
            pc.binary_join_element_wise(first, last, " "),
            pc.binary_join_element_wise(mailbox, "example.com", "@"),
            _choose(_CITIES, self._bits("city", ids)),
            _times(START_US + ids * (_EVENTS_PER_ROUND * EVENT_US)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=AuctionKind.PERSONS.schema)

    def _auctions(self, ids: _Ints) -> pa.RecordBatch:
        rounds, place = np.divmod(ids, _AUCTIONS_PER_ROUND)
        time_us = START_US + (rounds * _EVENTS_PER_ROUND + 1 + place) * EVENT_US
        open_us = _below(self._bits("open", ids), 60_000_000) + 10_000_000
        columns = [
            pa.array(ids),
            _choose(_ITEMS, self._bits("item", ids)),
            pa.array(self._early("seller", ids, rounds + 1)),
            pa.array(_below(self._bits("category", ids), 10).astype(np.int32)),
            pa.array(_money(self._bits("reserve", ids))),
            _times(time_us + open_us),
            _times(time_us),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=AuctionKind.AUCTIONS.schema)

    def _bids(self, numbers: _Ints) -> pa.RecordBatch:
        rounds, place = np.divmod(numbers, _BIDS_PER_ROUND)
        event = rounds * _EVENTS_PER_ROUND + 1 + _AUCTIONS_PER_ROUND + place
        delay_us = _below(self._bits("delay", numbers), DISORDER_US)
        auctions = (rounds + 1) * _AUCTIONS_PER_ROUND
        ago = self._early("auction", numbers, np.minimum(auctions, _AUCTIONS_OPEN_MAX))
        columns = [
            pa.array(auctions - 1 - ago),
            pa.array(self._early("bidder", numbers, rounds + 1)),
            pa.array(_money(self._bits("price", numbers))),
            _choose(_CHANNELS, self._bits("channel", numbers)),
            _times(START_US + event * EVENT_US + delay_us),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=AuctionKind.BIDS.schema)

    def _early(self, what: str, numbers: _Ints, count: _Ints) -> _Ints:
        """For each row one of the first `count` ids, strongly skewed to early ones."""
        share = (self._bits(what, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        # Products of floats are the same on every machine; powers need not be.
        return (count * (share * share * share)).astype(np.int64)

    def _bits(self, what: str, numbers: _Ints) -> _Bits:
        """64 random bits for each row, independent for each purpose: two rounds of SplitMix64."""
        purpose = int.from_bytes(what.encode()[:8], "little") ^ (self.seed & (2**64 - 1))
        salt = _mix_bits(np.array([purpose], dtype=np.uint64))
        return _mix_bits(numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt)


def _mix_bits(bits: _Bits) -> _Bits:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _below(bits: _Bits, limit: int) -> _Ints:
    return (bits % np.uint64(limit)).astype(np.int64)


def _money(bits: _Bits) -> _Ints:
    """Cents, from 1.00 to 12,673.00: mostly small amounts."""
    return (100 * (1 + (_below(bits >> np.uint64(3), 100) << _below(bits, 8)))).astype(np.int64)


def _choose(words: tuple[str, ...], bits: _Bits) -> pa.Array:
    return pa.array(words).take(pa.array(_below(bits, len(words))))


def _times(times_us: _Ints) -> pa.Array:
    return pa.array(times_us).cast(_TIME)
