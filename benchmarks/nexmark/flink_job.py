"""The queries of Nexmark in Flink SQL: a process with an environment and a JVM of its own.

`scripts/flink-env` makes the environment. The process takes commands as lines of JSON on its standard input,
and answers each with a line of JSON on its standard output. It imports nothing of this repository and no
Spark. `flink.py` is the other end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pyflink.common import Configuration
from pyflink.table import (
    DataTypes,
    EnvironmentSettings,
    FormatDescriptor,
    TableDescriptor,
    TableEnvironment,
)
from pyflink.table.udf import udf

QUERIES = Path(__file__).parent / "flink"

SETTINGS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "taskmanager.memory.managed.size": "1g",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "pipeline.object-reuse": "true",
    # A failure is to be seen: a job that is started again and again looks like a slow one.
    "restart-strategy.type": "disable",
    # As in the configuration that Nexmark publishes for Flink.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
}

COLUMNS = {
    "persons": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, "
    "ts TIMESTAMP(3), extra STRING, WATERMARK FOR ts AS ts",
    "auctions": "id BIGINT, item STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    "ts TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category INT, extra STRING, "
    "WATERMARK FOR ts AS ts",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "ts TIMESTAMP(3), extra STRING, arrival AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND",
    "side": "key BIGINT, `value` STRING, valid_from TIMESTAMP(3), "
    "WATERMARK FOR valid_from AS valid_from, PRIMARY KEY (key) NOT ENFORCED",
}
PARTITIONED = {"q10": ("day", "minute")}
"""Queries that write files, and the columns that become folders."""


@udf(result_type=DataTypes.BIGINT(), func_type="pandas")
def count_c(texts: Any) -> Any:
    """How often the letter c is in each text."""
    return texts.str.count("c")


def main(commands: TextIO, answers: TextIO) -> None:
    for line in commands:
        try:
            answer = run(json.loads(line))
        except Exception as failure:  # noqa: BLE001 - the other end reports it and goes on
            answer = {"error": str(failure)}
        print(json.dumps(answer), file=answers, flush=True)


def run(command: Mapping[str, str]) -> dict[str, str]:
    """Run a query to the end of its events. Without `rows`, a folder for its changes, they go nowhere."""
    environment = new_environment(command)
    query = command["query"]
    target = TableDescriptor.for_connector("blackhole")
    if query in PARTITIONED:
        parquet = FormatDescriptor.for_format("parquet").option("compression", "SNAPPY").build()
        target = TableDescriptor.for_connector("filesystem").option("path", command["out"]).format(parquet)
        target = target.partitioned_by(*PARTITIONED[query])
    elif command["rows"]:
        target = TableDescriptor.for_connector("filesystem").option("path", command["rows"])
        target = target.format("debezium-json")
    result = environment.sql_query((QUERIES / f"{query}.sql").read_text())
    result.execute_insert(target.build()).wait()
    return {}


def new_environment(command: Mapping[str, str]) -> TableEnvironment:
    chosen = Configuration()
    places = {
        "execution.checkpointing.dir": f"file://{command['state']}",
        "execution.checkpointing.interval": command["interval"],
        "pipeline.name": command["query"],
    }
    for name, value in (SETTINGS | places).items():
        chosen.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(chosen).build()
    environment = TableEnvironment.create(settings)
    environment.create_temporary_function("count_c", count_c)
    for table, columns in COLUMNS.items():
        # `parquet.utc-timezone`: times are in UTC, whatever the zone of the machine.
        environment.execute_sql(
            f"CREATE TABLE {table} ({columns}) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
            f"'parquet.utc-timezone' = 'true', 'path' = 'file://{command['events']}/{table}')"
        )
    return environment


if __name__ == "__main__":
    # Whatever else is printed must not get among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.stdin, answers)
