"""Parquet files that stay open across epochs."""
