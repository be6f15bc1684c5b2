SELECT
    bids.*,
    auctions.item,
    auctions.description,
    auctions.initial_bid,
    auctions.reserve,
    auctions.ts AS auction_ts,
    auctions.expires,
    auctions.seller,
    auctions.category,
    auctions.extra AS auction_extra
FROM bids JOIN auctions ON auctions.id = bids.auction
WHERE auctions.category = 10
