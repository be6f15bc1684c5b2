SELECT p.name, p.city, p.state, a.id AS auction
FROM auctions AS a JOIN persons AS p ON p.id = a.seller
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
