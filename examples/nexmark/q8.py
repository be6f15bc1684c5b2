"""q8: persons who opened an auction in the same ten seconds in which they registered."""

from examples.nexmark.job import Stream, Streams

import lakestate as ls


def build(streams: Streams) -> Stream:
    """The persons of every window that is over."""
    window = ls.Tumbling("10 seconds")
    persons = streams.persons.key_by("id").window(window)
    opened = persons.join("sellers", streams.auctions.key_by("seller").window(window), how="semi")
    return opened.select("id", "name", "window_start", "window_end")
