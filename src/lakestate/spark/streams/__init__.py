"""Streams: what users chain between a source and a sink, and how ready operators become nodes of the graph.

Each operator has a file that turns its one line into nodes: expressions that Spark evaluates, a routing by
key, and an operator of `lakestate.operators`. May import `spark.graph`, and no other folder of `spark`.
"""

from lakestate.spark.streams.building import Building
from lakestate.spark.streams.stream import ConnectedStreams, KeyedStream, SourceStream, Stream

__all__ = ["Building", "ConnectedStreams", "KeyedStream", "SourceStream", "Stream"]
