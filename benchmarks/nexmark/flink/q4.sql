-- No auction is open for more than 20 seconds: with that bound, the join need not keep all rows.
SELECT category, AVG(CAST(price AS DOUBLE)) AS mean_price
FROM (
    SELECT a.id, a.category, MAX(b.price) AS price
    FROM auctions AS a JOIN bids AS b
        ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '20' SECOND
    WHERE b.ts <= a.expires
    GROUP BY a.id, a.category
)
GROUP BY category
