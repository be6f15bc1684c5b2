"""A query with `format("lakestate")` in a separate process that a test kills.

Run as a module it is the driver: input files → Parquet files, all below one folder. Without `--finish` it
runs until it is killed; with it, it reads what is there, finishes its files and ends.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.support.spark.pipeline_process import Session, local_spark

SCHEMA = "n bigint, kind string"


def options_of(folder: Path) -> dict[str, str]:
    """Small enough that files are finished in most epochs, large enough that some stay open."""
    return {
        "path": str(folder / "out"),
        "checkpointLocation": str(folder / "checkpoint"),
        "partitionBy": "kind",
        "rollSize": "4KB",
        "rollInterval": "none",
    }


class KilledQuery:
    """A folder with the input, state and output of one query, and the drivers started for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._drivers: list[Session] = []

    def start(self, *arguments: str) -> Session:
        """A driver in its own process, with its own temporary directory."""
        number = len(self._drivers)
        scratch = self.folder / f"scratch-{number}"
        scratch.mkdir()
        command = [
            sys.executable,
            "-m",
            "tests.support.spark.sink_query_process",
            str(self.folder),
            *arguments,
        ]
        env = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "PYSPARK_PYTHON": sys.executable}
        driver = Session(command, self.folder / f"driver-{number}.log", env)
        self._drivers.append(driver)
        return driver

    def kill_all(self) -> None:
        """Kill all drivers, at the end of a test."""
        for driver in self._drivers:
            driver.kill()

    def newest_epoch(self) -> int:
        """The newest published epoch; 0 before the first."""
        records = self.folder.glob("checkpoint/lakestate/*/epochs/*.json")
        return max((int(record.stem) for record in records), default=0)


def main() -> None:
    import lakestate as ls

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--finish", action="store_true")
    arguments.add_argument("--partitions", type=int, default=2)
    given = arguments.parse_args()
    spark = local_spark()
    options = options_of(given.folder)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(given.folder / "in"))
    ls.register(spark)
    writer = rows.repartition(given.partitions).writeStream.format("lakestate").options(**options)
    query = writer.trigger(availableNow=True).start() if given.finish else writer.start()
    query.awaitTermination()
    ls.finish_files(**options)


if __name__ == "__main__":
    main()
