SELECT auction, bidder, price, channel, url, ts, extra, `rank`
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, ts) AS `rank`
    FROM bids
)
WHERE `rank` <= 10
