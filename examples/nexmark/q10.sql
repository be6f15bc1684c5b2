SELECT
    auction,
    bidder,
    price,
    ts,
    extra,
    strftime(ts, '%Y-%m-%d') AS day,
    strftime(ts, '%H-%M') AS minute
FROM bids
