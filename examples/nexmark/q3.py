"""q3: sellers in Oregon, Idaho or California, with their auctions of category 10."""

from examples.nexmark.job import Stream, Streams


def build(streams: Streams) -> Stream:
    """Each auction with its seller, whenever either registers: nothing is forgotten."""
    auctions = streams.auctions.where("category = 10").select("id AS auction", "seller")
    sellers = streams.persons.where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    joined = auctions.key_by("seller").join("sellers", sellers.key_by("id"), keep="for ever")
    return joined.select("name", "city", "state", "auction")
