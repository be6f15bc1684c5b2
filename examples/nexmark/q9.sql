SELECT
    auctions.*,
    bids.bidder,
    bids.price,
    bids.ts AS bid_ts,
    bids.extra AS bid_extra
FROM auctions JOIN bids ON bids.auction = auctions.id
WHERE bids.ts BETWEEN auctions.ts AND auctions.expires
QUALIFY row_number() OVER (
    PARTITION BY auctions.id ORDER BY bids.price DESC, bids.ts, bids.bidder, bids.extra
) = 1
