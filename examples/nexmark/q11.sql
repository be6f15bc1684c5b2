WITH marked AS (
    -- The end of a session does not belong to it: a bid exactly 10 seconds later begins the next one.
    SELECT
        bidder,
        ts,
        coalesce(ts - lag(ts) OVER (PARTITION BY bidder ORDER BY ts) >= INTERVAL 10 SECONDS, true) AS is_first
    FROM bids
),
numbered AS (
    SELECT
        bidder,
        ts,
        sum(is_first::INT) OVER (PARTITION BY bidder ORDER BY ts, is_first DESC ROWS UNBOUNDED PRECEDING) AS session
    FROM marked
)
SELECT bidder, min(ts) AS window_start, max(ts) + INTERVAL 10 SECONDS AS window_end, count(*) AS bids
FROM numbered
GROUP BY bidder, session
HAVING window_end <= getvariable('until')
