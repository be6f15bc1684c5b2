"""Spark's own checkpoint directory: a cache of one driver, rebuilt from the manifest at every start.

May import everything below `spark`, and no other folder of it. Nothing here imports pyspark.
"""

from lakestate.spark.checkpoint.directory import SparkDirectory
from lakestate.spark.checkpoint.offsets import (
    files_to_rebuild,
    out_of_step_error,
    read_engine_files,
    rebuild_directory,
    source_offsets,
)

__all__ = [
    "SparkDirectory",
    "files_to_rebuild",
    "out_of_step_error",
    "read_engine_files",
    "rebuild_directory",
    "source_offsets",
]
