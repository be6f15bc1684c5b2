"""Arrow columns and types: schemas, lossless casts, limits. Knows nothing of tables."""
