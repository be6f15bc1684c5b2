"""Routing keys: Spark's `xxhash64`, bit for bit, over whole columns."""
