"""`IcebergSink`: exactly-once appends to Iceberg tables."""
