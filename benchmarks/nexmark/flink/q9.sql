SELECT
    id, item, description, initial_bid, reserve, ts, expires, seller, category, extra,
    bidder, price, bid_ts, bid_extra
FROM (
    SELECT
        a.*, b.bidder, b.price, CAST(b.ts AS TIMESTAMP(3)) AS bid_ts, b.extra AS bid_extra,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.bidder, b.extra) AS place
    FROM auctions AS a JOIN bids AS b
        ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '20' SECOND
    WHERE b.ts <= a.expires
)
WHERE place = 1
