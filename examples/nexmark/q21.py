"""q21: bids with a channel id, taken from the name of the channel or from the url."""

from examples.nexmark.job import Stream, Streams

CHANNEL_ID = """
    CASE lower(channel)
        WHEN 'apple' THEN '0'
        WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2'
        WHEN 'baidu' THEN '3'
        ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
    END AS channel_id
"""


def build(streams: Streams) -> Stream:
    """Bids that have a channel id."""
    with_id = streams.bids.select("auction", "bidder", "price", "channel", CHANNEL_ID)
    return with_id.where("channel_id IS NOT NULL")
