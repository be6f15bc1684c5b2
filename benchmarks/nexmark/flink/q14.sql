SELECT
    auction,
    bidder,
    0.908 * price AS price,
    CASE
        WHEN HOUR(ts) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time_type,
    ts,
    extra,
    count_c(extra) AS c_count
FROM bids
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
