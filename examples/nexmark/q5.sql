WITH counts AS (
    -- Each bid is in five windows: the newest starts at most 2 seconds before it, the oldest 8 seconds earlier.
    SELECT
        time_bucket(INTERVAL 2 SECONDS, ts) - hops * INTERVAL 2 SECONDS AS window_start,
        window_start + INTERVAL 10 SECONDS AS window_end,
        auction,
        count(*) AS bids
    FROM bids, range(5) AS offsets(hops)
    GROUP BY ALL
)
-- All auctions that share the first place.
SELECT window_start, window_end, auction, bids
FROM counts
WHERE window_end <= getvariable('until')
QUALIFY bids = max(bids) OVER (PARTITION BY window_start)
