"""The jars that `scripts/fetch-jars` copied into the environment, by group.

A test that needs a group which is not there is skipped, with the reason; CI fails on skipped tests.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "jars"
KAFKA_BROKER, SPARK_KAFKA, ICEBERG, DELTA = "kafka-broker", "spark-kafka", "iceberg", "delta"


def jars_of(group: str) -> list[Path]:
    """The jars of a group; none if it was not fetched."""
    return sorted((FOLDER / group).glob("*.jar"))


def require_jars(group: str) -> list[Path]:
    """The jars of a group, or the test is skipped."""
    if shutil.which("java") is None:
        pytest.skip(f"the jars of {group} need Java, which is not installed")
    found = jars_of(group)
    if not found:
        why = FOLDER / f"{group}.missing"
        reason = why.read_text().strip() if why.exists() else "run scripts/fetch-jars"
        pytest.skip(f"the jars of {group} are not there: {reason}")
    return found


def spark_jars(*groups: str) -> dict[str, str]:
    """The setting of a Spark session that loads the jars of these groups: `.config(map=spark_jars(DELTA))`.

    >>> spark_jars()
    {}
    """
    found = [str(jar) for group in groups for jar in jars_of(group)]
    return {"spark.jars": ",".join(found)} if found else {}
