"""Spark's own checkpoint directory: a cache that is rebuilt from the manifest."""
