SELECT
    b.auction, b.bidder, b.price, b.channel, b.url, b.ts, b.extra,
    a.item, a.description, a.initial_bid, a.reserve, a.ts AS auction_ts, a.expires, a.seller, a.category,
    a.extra AS auction_extra
FROM bids AS b JOIN auctions AS a ON a.id = b.auction
WHERE a.category = 10
