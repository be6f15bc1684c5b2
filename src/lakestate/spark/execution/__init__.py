"""Epochs as Spark jobs, on the driver: the compiled pipeline, its DataFrames, and compaction.

May import `graph`, `tasks` and `checkpoint`. What runs in executors is in `tasks`.
"""

from lakestate.spark.execution.compactor import SparkCompactor
from lakestate.spark.execution.compile import CompiledPipeline, combine_sources, compile_pipeline
from lakestate.spark.execution.epoch_runner import EpochRunner

__all__ = ["CompiledPipeline", "EpochRunner", "SparkCompactor", "combine_sources", "compile_pipeline"]
