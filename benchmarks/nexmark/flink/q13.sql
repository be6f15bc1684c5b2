-- The filesystem connector cannot be asked for single keys, so the table has versions: one for all times.
SELECT b.auction, b.bidder, b.price, b.ts, s.`value`
FROM (SELECT *, MOD(auction, 10000) AS key FROM bids) AS b
JOIN side FOR SYSTEM_TIME AS OF b.ts AS s ON s.key = b.key
