SELECT b.auction, b.bidder, b.price, b.ts, b.extra
FROM bids AS b JOIN (
    SELECT window_time, MAX(price) AS price
    FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
    GROUP BY window_start, window_end, window_time
) AS best
    ON b.price = best.price AND b.ts BETWEEN best.window_time - INTERVAL '9.999' SECOND AND best.window_time
