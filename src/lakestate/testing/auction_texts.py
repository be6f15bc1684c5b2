"""The texts of generated auctions: names, places, channels, addresses and filling.

Texts are made once per process and chosen by number, because making them row by row would cost more than all
other columns together. They depend on nothing, so that every process has the same.
"""

from __future__ import annotations

from functools import cache
from random import Random

import pyarrow as pa

FIRST_NAMES = ("Ada", "Bert", "Cleo", "Dora", "Emil", "Freya", "Gus", "Hana", "Ivo", "Judit", "Kofi", "Lin")
LAST_NAMES = ("Abara", "Berg", "Costa", "Diaz", "Endo", "Fofana", "Gupta", "Haas", "Ito", "Jansen", "Kaya")
ITEMS = ("lamp", "clock", "chair", "violin", "atlas", "radio", "vase", "camera", "globe", "bicycle")
PLACES = (
    ("Phoenix", "AZ"),
    ("Tucson", "AZ"),
    ("Los Angeles", "CA"),
    ("San Francisco", "CA"),
    ("Boise", "ID"),
    ("Bend", "OR"),
    ("Portland", "OR"),
    ("Kent", "WA"),
    ("Seattle", "WA"),
    ("Cheyenne", "WY"),
)
"""Cities and their states."""

KNOWN_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
"""Half of the bids come through these; the others through `channel-0`, `channel-1`, and so on."""

OTHER_CHANNELS = 9_996
PLAIN_URLS = 1_000
TEXTS = 256
"""Different descriptions, and different texts in the column `extra` of a kind."""

_SECTIONS = ("home", "garden", "music", "travel", "office", "kitchen", "sport", "art")
_STYLES = (
    "classic",
    "modern",
    "rare",
    "handmade",
    "vintage",
    "compact",
    "electric",
    "antique",
    "new",
    "used",
)
_COLOURS = ("amber", "black", "cobalt", "coral", "cream", "green", "lilac", "scarlet", "silver", "white")
_WORDS = (
    *("a", "and", "as", "at", "box", "brass", "but", "case", "ceramic", "clean", "collected", "complete"),
    *("copper", "crack", "from", "glass", "good", "in", "is", "its", "kept", "new", "no", "of", "old"),
    *("on", "once", "one", "original", "paint", "perfect", "pick", "price", "rather", "scratch", "sold"),
    *("some", "the", "to", "two", "unused", "very", "well", "wheel", "with", "wood", "works", "years"),
)


@cache
def words(given: tuple[str, ...]) -> pa.StringArray:
    """Texts to choose from, as a column."""
    return pa.array(given)


@cache
def four_digits() -> pa.StringArray:
    """0000 to 9999."""
    return pa.array([f"{number:04d}" for number in range(10_000)])


@cache
def channels() -> pa.StringArray:
    """The known channels, then the others."""
    return pa.array([*KNOWN_CHANNELS, *(f"channel-{number}" for number in range(OTHER_CHANNELS))])


@cache
def urls() -> pa.StringArray:
    """First some without a channel id, then one for each of the other channels: one in ten has no id."""
    choose = Random(1)  # noqa: S311
    plain = [_url(choose) for _ in range(PLAIN_URLS)]
    return pa.array(plain + [_url(choose) + _channel_id(number, choose) for number in range(OTHER_CHANNELS)])


@cache
def texts(seed: int, shortest: int, longest: int) -> pa.StringArray:
    """Sentences of no meaning, with lengths from `shortest` to `longest`."""
    choose = Random(seed)  # noqa: S311
    found = []
    for number in range(TEXTS):
        length, text = shortest + number * (longest - shortest) // (TEXTS - 1), ""
        while len(text) < length:
            text += f"{_pick(_WORDS, choose)} "
        found.append(text[:length].strip().ljust(length, "."))
    return pa.array(found)


def _url(choose: Random) -> str:
    path = "/".join(_pick(each, choose) for each in (_SECTIONS, _STYLES, _COLOURS))
    return f"https://www.example.com/{path}/item.htm?query=1"


def _channel_id(number: int, choose: Random) -> str:
    return "" if choose.random() < 0.1 else f"&channel_id={number * 2_654_435_761 % 2**31}"


def _pick(given: tuple[str, ...], choose: Random) -> str:
    # Of all its methods, only `random` promises the same numbers in every version of Python.
    return given[int(choose.random() * len(given))]
