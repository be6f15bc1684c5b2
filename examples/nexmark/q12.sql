-- Which window of processing time a bid falls into depends on the run. The windows of a bidder add up to this.
SELECT bidder, count(*) AS bids
FROM bids
GROUP BY bidder
