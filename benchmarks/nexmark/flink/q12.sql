SELECT bidder, window_start, window_end, COUNT(*) AS bids
FROM TUMBLE(TABLE bids, DESCRIPTOR(arrival), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end
