SELECT auction, bidder, price, channel, url, ts, extra
FROM bids
