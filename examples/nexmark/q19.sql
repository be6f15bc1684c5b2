SELECT
    auction,
    bidder,
    price,
    channel,
    url,
    ts,
    extra,
    row_number() OVER (PARTITION BY auction ORDER BY price DESC, ts, bidder, channel, url, extra) AS rank
FROM bids
QUALIFY rank <= 10
