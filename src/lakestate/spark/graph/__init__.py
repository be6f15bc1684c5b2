"""The graph of a pipeline: its nodes, their schemas, the checks before a start, and its stages.

Nothing here runs. May import everything below `spark`, and no other folder of it.
"""

from lakestate.spark.graph.checks import check_names, check_stored, check_types, event_time_of, tables_of
from lakestate.spark.graph.dropped import Dropped, resolve_dropped
from lakestate.spark.graph.nodes import (
    ApplyNode,
    ConnectNode,
    Graph,
    KeyByNode,
    KeyColumn,
    Late,
    LateRowsNode,
    Node,
    ShuffleNode,
    SinkNode,
    SourceNode,
    Transform,
    TransformNode,
)
from lakestate.spark.graph.partition_shuffle import add_partition_shuffle, micros_sql, shuffle_expressions
from lakestate.spark.graph.schemas import Schemas, add_key_columns, spark_ddl
from lakestate.spark.graph.stages import Stage, forks_of, stages_of

__all__ = [
    "ApplyNode",
    "ConnectNode",
    "Dropped",
    "Graph",
    "KeyByNode",
    "KeyColumn",
    "Late",
    "LateRowsNode",
    "Node",
    "Schemas",
    "ShuffleNode",
    "SinkNode",
    "SourceNode",
    "Stage",
    "Transform",
    "TransformNode",
    "add_key_columns",
    "add_partition_shuffle",
    "check_names",
    "check_stored",
    "check_types",
    "event_time_of",
    "forks_of",
    "micros_sql",
    "resolve_dropped",
    "shuffle_expressions",
    "spark_ddl",
    "stages_of",
    "tables_of",
]
