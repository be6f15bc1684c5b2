SELECT
    auction,
    strftime(ts, '%Y-%m-%d') AS day,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    min(price) AS min_price,
    max(price) AS max_price,
    -- Not avg(): it divides with more digits and rounds twice.
    sum(price)::DOUBLE / count(*) AS mean_price,
    sum(price)::BIGINT AS sum_price
FROM bids
GROUP BY auction, day
