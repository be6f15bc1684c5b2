-- A person who opened several auctions in the window is there once.
SELECT DISTINCT
    persons.id,
    persons.name,
    time_bucket(INTERVAL 10 SECONDS, persons.ts) AS window_start,
    window_start + INTERVAL 10 SECONDS AS window_end
FROM persons JOIN auctions
    ON auctions.seller = persons.id
    AND time_bucket(INTERVAL 10 SECONDS, auctions.ts) = time_bucket(INTERVAL 10 SECONDS, persons.ts)
WHERE window_end <= getvariable('until')
