"""The options of Kafka's sources, as the plan of a frame has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "StreamingRelationV2"


def kafka_options(frame: DataFrame) -> list[dict[str, str]]:
    """The options of each source of Kafka that a frame reads, under the names that the program gave them.

    Empty if Spark does not tell: no version promises what its plans look like.
    """
    try:
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        relations = [leaves.apply(number) for number in range(leaves.size())]
        return [
            dict(relation.extraOptions().asCaseSensitiveMap())
            for relation in relations
            if relation.nodeName() == _SOURCE and relation.sourceName() == "kafka"
        ]
    except (Py4JError, AttributeError):
        return []
