"""Spark: the only package that knows it."""
