SELECT persons.name, persons.city, persons.state, auctions.id AS auction
FROM auctions JOIN persons ON persons.id = auctions.seller
WHERE auctions.category = 10 AND persons.state IN ('OR', 'ID', 'CA')
