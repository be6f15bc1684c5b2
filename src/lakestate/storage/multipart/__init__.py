"""Uploads in parts that any process can continue, on every kind of store."""
