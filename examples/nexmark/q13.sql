SELECT bids.auction, bids.bidder, bids.price, bids.ts, side.value
FROM bids JOIN side ON side.key = bids.auction % 10000
