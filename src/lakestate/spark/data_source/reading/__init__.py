"""`spark.read.format("lakestate")` and `spark.readStream.format("lakestate")`: state tables as DataFrames.

May import `inspection` and everything below it, and what `data_source` may. `data_source/source.py` uses the
names below.
"""

from lakestate.spark.data_source.reading.change_stream import ChangeStreamReader
from lakestate.spark.data_source.reading.options import ReadOptions
from lakestate.spark.data_source.reading.reader import FilteringStateReader, StateReader

__all__ = ["ChangeStreamReader", "FilteringStateReader", "ReadOptions", "StateReader"]
