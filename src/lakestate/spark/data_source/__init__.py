"""`format("lakestate")`: a file sink for Spark queries that are not pipelines, and state tables to read.

May import `graph` for schemas and shuffles, and everything below `spark`.
"""

from lakestate.spark.data_source.commit import finish_files, take_over_output
from lakestate.spark.data_source.source import LakestateDataSource, register, write_stream

__all__ = ["LakestateDataSource", "finish_files", "register", "take_over_output", "write_stream"]
