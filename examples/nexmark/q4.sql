WITH closing AS (
    SELECT auctions.id, auctions.category, max(bids.price) AS price
    FROM auctions JOIN bids ON bids.auction = auctions.id
    WHERE bids.ts BETWEEN auctions.ts AND auctions.expires
    GROUP BY ALL
)
-- Not avg(): it divides with more digits and rounds twice.
SELECT category, sum(price)::DOUBLE / count(*) AS mean_price
FROM closing
GROUP BY category
