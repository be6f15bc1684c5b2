"""What is written into files: Parquet and JSON lines."""
