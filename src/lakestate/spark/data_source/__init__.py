"""`format("lakestate")`: the file sinks as a streaming data source of Spark's."""
