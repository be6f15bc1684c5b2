"""`KeyedTable`: one row per key, upserted and deleted, partitioned by key range."""
