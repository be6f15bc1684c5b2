WITH counts AS (
    SELECT window_start, window_end, auction, COUNT(*) AS bids
    FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY window_start, window_end, auction
)
SELECT c.window_start, c.window_end, c.auction, c.bids
FROM counts AS c JOIN (
    SELECT window_start, window_end, MAX(bids) AS bids
    FROM counts
    GROUP BY window_start, window_end
) AS most
    ON c.window_start = most.window_start AND c.window_end = most.window_end AND c.bids = most.bids
