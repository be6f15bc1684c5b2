WITH closing AS (
    SELECT auctions.id, auctions.seller, auctions.expires, max(bids.price) AS price
    FROM auctions JOIN bids ON bids.auction = auctions.id
    WHERE bids.ts BETWEEN auctions.ts AND auctions.expires
    GROUP BY ALL
),
-- A bid at the very moment of expiry still counts: an auction is closed after it.
last_ten AS (
    SELECT seller, price
    FROM closing
    WHERE expires < getvariable('until')
    QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
)
SELECT seller, sum(price)::DOUBLE / count(*) AS mean_price
FROM last_ten
GROUP BY seller
