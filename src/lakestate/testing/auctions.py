"""Generated auctions: persons, auctions and bids, always the same for the same seed.

Row i of a kind is a pure function of the seed and i, so any range of rows can be generated
anywhere and in any order. Fields and proportions follow Nexmark: of 50 events the first is a person, the
next three are auctions and 46 are bids. All numbers are integers, so sums are exact. No Spark here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestate.errors import InvalidInputError
from lakestate.protocol.names import did_you_mean
from lakestate.testing import auction_texts as texts

START_US = 1_767_225_600_000_000
"""The time of the first event: 2026-01-01 00:00 UTC."""

EVENT_US = 100
"""Unless told otherwise, event time advances by this much from event to event: 10,000 events in a second."""

EVENTS_PER_ROUND = 50
"""One person, three auctions, 46 bids."""

DISORDER_US = 2_000_000
"""A bid is at most this much older than the newest bid before it. The other kinds are in order."""

AUCTION_OPEN_MIN_US = 2_000_000
AUCTION_OPEN_MAX_US = 20_000_000
"""An auction expires at the latest this long after its time. Some bids on it come even later."""

CATEGORIES = (10, 11, 12, 13, 14)

_BIDDING_US = 24_000_000
"""Bids are made on auctions of about the last so many microseconds, mostly on the newest."""
_HOT_US = 2_000_000
"""So long, one auction gets half of all bids; then it is the next one's turn."""
_ACTIVE_US = 20_000_000
"""A quarter of the sellers and bidders has registered in about the last so many microseconds."""
_CHOICE_MIN = 10
"""Auctions and persons to choose from, however far events lie apart."""
_MONEY_MAX_BITS = 14
_TIME = pa.timestamp("us", tz="UTC")

_Ints: TypeAlias = "npt.NDArray[np.int64]"
_Bits: TypeAlias = "npt.NDArray[np.uint64]"
_Columns: TypeAlias = "dict[str, Callable[[], pa.Array]]"


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

    def columns(self, names: Sequence[str]) -> pa.Schema:
        """The columns with these names, in this order."""
        for name in names:
            if name not in self.schema.names:
                raise InvalidInputError(
                    f"{self.value} have no such column",
                    object_name=name,
                    found=", ".join(self.schema.names),
                    action=did_you_mean(name, self.schema.names),
                )
        if not names or len(set(names)) < len(names):
            raise InvalidInputError("not a choice of columns", found=", ".join(names) or "none")
        return pa.schema([self.schema.field(name) for name in names])

    def rows_in(self, events: int) -> int:
        """How many of the first `events` events are of this kind.

        >>> [kind.rows_in(1003) for kind in AuctionKind]
        [21, 62, 920]
        """
        first, count = _PLACES[self]
        rounds, rest = divmod(events, EVENTS_PER_ROUND)
        return rounds * count + min(max(rest - first, 0), count)


_PLACES = {AuctionKind.PERSONS: (0, 1), AuctionKind.AUCTIONS: (1, 3), AuctionKind.BIDS: (4, 46)}
"""The place of the first row of a kind in a round, and how many there are."""

_SCHEMAS = {
    AuctionKind.PERSONS: pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("email", pa.string()), ("credit_card", pa.string()),
         ("city", pa.string()), ("state", pa.string()), ("ts", _TIME), ("extra", pa.string())]
    ),
    AuctionKind.AUCTIONS: pa.schema(
        [("id", pa.int64()), ("item", pa.string()), ("description", pa.string()), ("initial_bid", pa.int64()),
         ("reserve", pa.int64()), ("ts", _TIME), ("expires", _TIME), ("seller", pa.int64()),
         ("category", pa.int32()), ("extra", pa.string())]
    ),
    AuctionKind.BIDS: pa.schema(
        [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("channel", pa.string()),
         ("url", pa.string()), ("ts", _TIME), ("extra", pa.string())]
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuctionHouse:
    """Any number of rows, generated on demand.

    Bids refer to persons and auctions of earlier events. Half of the bids are on one hot auction at a time,
    and a twelfth of the bidders makes more than half of the bids. `event_us` is the event time from
    event to event.

    >>> house = AuctionHouse(seed=7)
    >>> house.rows("bids", 5000, 5001, columns=["auction", "bidder", "price", "channel"]).to_pylist()
    [{'auction': 268, 'bidder': 101, 'price': 121700, 'channel': 'channel-98'}]
    >>> house.rows("bids", 1000, 1010).equals(house.rows("bids", 0, 5000).slice(1000, 10))
    True
    """

    seed: int = 0
    event_us: int = EVENT_US

    def __post_init__(self) -> None:
        if self.event_us < 1:
            raise InvalidInputError("events cannot be so close", found=self.event_us, expected="1 or more")

    def rows(
        self, kind: AuctionKind | str, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """The rows from number `start` up to, but not including, number `stop`.

        With `columns`, only these are generated, which is faster.
        """
        if not 0 <= start <= stop:
            raise InvalidInputError("not a range of rows", found=f"{start} to {stop}")
        kind = AuctionKind.of(kind)
        schema = kind.schema if columns is None else kind.columns(columns)
        numbers: _Ints = np.arange(start, stop, dtype=np.int64)
        first, count = _PLACES[kind]
        rounds, place = np.divmod(numbers, count)
        times_us = START_US + (rounds * EVENTS_PER_ROUND + first + place) * self.event_us
        match kind:
            case AuctionKind.PERSONS:
                made = self._persons(numbers, times_us)
            case AuctionKind.AUCTIONS:
                made = self._auctions(numbers, rounds, times_us)
            case AuctionKind.BIDS:
                made = self._bids(numbers, rounds, times_us)
        return pa.RecordBatch.from_arrays([made[name]() for name in schema.names], schema=schema)

    def _persons(self, ids: _Ints, times_us: _Ints) -> _Columns:
        place = self._bits("place", ids)
        cities, states = zip(*texts.PLACES, strict=True)
        return {
            "id": lambda: pa.array(ids),
            "name": lambda: pc.binary_join_element_wise(*self._names(ids), " "),
            "email": lambda: self._emails(ids),
            "credit_card": lambda: self._credit_cards(ids),
            "city": lambda: _choose(texts.words(cities), place),
            "state": lambda: _choose(texts.words(states), place),
            "ts": lambda: _times(times_us),
            "extra": lambda: _choose(texts.texts(2, 60, 140), self._bits("filling", ids)),
        }

    def _auctions(self, ids: _Ints, rounds: _Ints, times_us: _Ints) -> _Columns:
        categories = np.array(CATEGORIES, dtype=np.int32)
        open_us = AUCTION_OPEN_MAX_US - AUCTION_OPEN_MIN_US + 1
        return {
            "id": lambda: pa.array(ids),
            "item": lambda: _choose(texts.words(texts.ITEMS), self._bits("item", ids)),
            "description": lambda: _choose(texts.texts(3, 60, 140), self._bits("describe", ids)),
            "initial_bid": lambda: pa.array(_money(self._bits("initial", ids))),
            "reserve": lambda: pa.array(
                _money(self._bits("initial", ids)) + _money(self._bits("reserve", ids))
            ),
            "ts": lambda: _times(times_us),
            "expires": lambda: _times(
                times_us + AUCTION_OPEN_MIN_US + _below(self._bits("open", ids), open_us)
            ),
            "seller": lambda: pa.array(self._person("seller", ids, rounds)),
            "category": lambda: pa.array(categories[_below(self._bits("category", ids), len(CATEGORIES))]),
            "extra": lambda: _choose(texts.texts(4, 200, 400), self._bits("filling", ids)),
        }

    def _bids(self, numbers: _Ints, rounds: _Ints, times_us: _Ints) -> _Columns:
        return {
            "auction": lambda: pa.array(self._auction(numbers, rounds)),
            "bidder": lambda: pa.array(self._person("bidder", numbers, rounds)),
            "price": lambda: pa.array(_money(self._bits("price", numbers))),
            "channel": lambda: texts.channels().take(pa.array(self._channel(numbers))),
            "url": lambda: texts.urls().take(pa.array(self._url(numbers))),
            "ts": lambda: _times(times_us + _below(self._bits("delay", numbers), DISORDER_US)),
            "extra": lambda: _choose(texts.texts(5, 30, 90), self._bits("filling", numbers)),
        }

    def _names(self, ids: _Ints) -> tuple[pa.Array, pa.Array]:
        return (
            _choose(texts.words(texts.FIRST_NAMES), self._bits("first name", ids)),
            _choose(texts.words(texts.LAST_NAMES), self._bits("last name", ids)),
        )

    def _emails(self, ids: _Ints) -> pa.Array:
        first, last = map(pc.utf8_lower, self._names(ids))
        mailbox = pc.binary_join_element_wise(first, last, pa.array(ids).cast(pa.string()), ".")
        return pc.binary_join_element_wise(mailbox, "example.com", "@")

    def _credit_cards(self, ids: _Ints) -> pa.Array:
        bits = self._bits("card", ids)
        groups = [_choose(texts.four_digits(), bits >> np.uint64(16 * group)) for group in range(4)]
        return pc.binary_join_element_wise(*groups, " ")

    def _person(self, what: str, numbers: _Ints, rounds: _Ints) -> _Ints:
        """Sellers and bidders: three quarters are skewed to the first persons, the others are new ones."""
        bits = self._bits(what, numbers)
        new = np.minimum(rounds + 1, self._count_in(_ACTIVE_US, 1))
        return np.where(
            bits & np.uint64(3), _early(bits, rounds + 1), rounds - (_share(bits) * new).astype(np.int64)
        )

    def _auction(self, numbers: _Ints, rounds: _Ints) -> _Ints:
        """The hot auction, or one of the last ones."""
        _, per_round = _PLACES[AuctionKind.AUCTIONS]
        newest = (rounds + 1) * per_round - 1
        bits = self._bits("auction", numbers)
        ago = _early(bits, np.minimum(newest + 1, self._count_in(_BIDDING_US, per_round)))
        hot_ago = newest % self._count_in(_HOT_US, per_round)
        return newest - np.where(bits & np.uint64(1), hot_ago, ago)

    def _channel(self, numbers: _Ints) -> _Ints:
        bits = self._bits("channel", numbers)
        known = len(texts.KNOWN_CHANNELS)
        other = known + _early(bits, texts.OTHER_CHANNELS)
        return np.where(bits & np.uint64(1), _below(bits >> np.uint64(1), known), other)

    def _url(self, numbers: _Ints) -> _Ints:
        known, channel = len(texts.KNOWN_CHANNELS), self._channel(numbers)
        plain = _below(self._bits("url", numbers), texts.PLAIN_URLS)
        return np.where(channel < known, plain, texts.PLAIN_URLS + channel - known)

    def _count_in(self, duration_us: int, per_round: int) -> int:
        """About how many rows of a kind there are in so much event time; at least a few."""
        return max(_CHOICE_MIN, duration_us * per_round // (EVENTS_PER_ROUND * self.event_us))

    def _bits(self, what: str, numbers: _Ints) -> _Bits:
        """64 random bits for each row, independent for each purpose: two rounds of SplitMix64."""
        purpose = int.from_bytes(what.encode()[:8], "little") ^ (self.seed & (2**64 - 1))
        salt = _mix_bits(np.array([purpose], dtype=np.uint64))
        return _mix_bits(numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt)


def _mix_bits(bits: _Bits) -> _Bits:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _share(bits: _Bits) -> npt.NDArray[np.float64]:
    """From 0 up to 1, of all but the lowest bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _early(bits: _Bits, count: _Ints | int) -> _Ints:
    """For each row one of the first `count` numbers, strongly skewed to the first ones."""
    share = _share(bits)
    # Products of floats are the same on every machine; powers need not be.
    return (count * (share * share * share)).astype(np.int64)


def _below(bits: _Bits, limit: int) -> _Ints:
    return (bits % np.uint64(limit)).astype(np.int64)


def _money(bits: _Bits) -> _Ints:
    """Cents, from 1.00 to 811,009.00: as many small amounts as large ones."""
    digits = _below(bits >> np.uint64(8), 100)
    return (100 * (1 + (digits << _below(bits, _MONEY_MAX_BITS)))).astype(np.int64)


def _choose(given: pa.Array, bits: _Bits) -> pa.Array:
    return given.take(pa.array(_below(bits, len(given))))


def _times(times_us: _Ints) -> pa.Array:
    return pa.array(times_us).cast(_TIME)
