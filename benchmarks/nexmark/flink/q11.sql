SELECT bidder, window_start, window_end, COUNT(*) AS bids
FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end
