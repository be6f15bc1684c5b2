SELECT auction, bidder, price, channel, url, ts, extra
FROM bids
QUALIFY row_number() OVER (
    PARTITION BY bidder, auction ORDER BY ts DESC, price DESC, channel DESC, url DESC, extra DESC
) = 1
