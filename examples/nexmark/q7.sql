-- All bids that share the highest price of their window.
SELECT auction, bidder, price, ts, extra
FROM bids
WHERE time_bucket(INTERVAL 10 SECONDS, ts) + INTERVAL 10 SECONDS <= getvariable('until')
QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECONDS, ts))
