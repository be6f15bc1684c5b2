"""The pinned jars fit the pinned Spark, and no file says where they come from."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.support.repository import ROOT

SCRIPTS = ROOT / "scripts"
POM = SCRIPTS / "jars" / "pom.xml"
MAVEN = "{http://maven.apache.org/POM/4.0.0}"


def pinned(name: str) -> str | None:
    return ET.parse(POM).findtext(f"{MAVEN}properties/{MAVEN}{name}")


def test_the_s3_connector_is_of_the_hadoop_that_spark_ships() -> None:
    pyspark = pytest.importorskip("pyspark")
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    assert pinned("hadoop.version") == jar.stem.removeprefix("hadoop-client-api-")


def test_every_version_is_pinned_in_one_place() -> None:
    versions = [found.text or "" for found in ET.parse(POM).iter(f"{MAVEN}version")]
    written_out = [version for version in versions if not re.fullmatch(r"\$\{[\w.-]+\}", version)]
    # This project itself, and the plugin that copies.
    assert written_out == ["0", "3.8.1"]


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    for name in ("scripts/fetch-jars", "scripts/jars/pom.xml"):
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        ["bash", tmp_path / "scripts" / "fetch-jars", "nonsense"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "No group nonsense in scripts/jars/pom.xml\n")


def test_without_maven_the_reason_is_left_for_the_tests(tmp_path: Path) -> None:
    for name in ("scripts/fetch-jars", "scripts/jars/pom.xml"):
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "cat", "cksum", "cut", "dirname", "flock", "grep", "mkdir", "rm", "tr"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/usr/bin/bash", tmp_path / "scripts" / "fetch-jars", "iceberg"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tools)},
    )
    assert done.returncode == 1
    reason = (tmp_path / ".venv" / "jars" / "iceberg.missing").read_text()
    assert reason == "Maven (mvn) is not installed\n"
    assert done.stderr == f"The jars of iceberg cannot be had: {reason}"


def test_the_jars_of_flink_are_of_the_flink_that_is_installed() -> None:
    packages = (ROOT / "scripts" / "flink.txt").read_text().splitlines()
    assert f"apache-flink=={pinned('flink.version')}" in packages


def test_every_version_of_the_matrix_has_its_connector_and_only_properties_that_there_are() -> None:
    lines = [line.split() for line in (SCRIPTS / "jars" / "matrix.txt").read_text().splitlines()]
    connectors = {first: properties for first, *properties in lines if first != "#"}
    tested = re.findall(r"^pyspark==(\d+\.\d+)\.", (SCRIPTS / "matrix.txt").read_text(), re.MULTILINE)
    assert list(connectors) == tested
    for properties in connectors.values():
        assert [
            name for name in (each.partition("=")[0] for each in properties) if pinned(name) is None
        ] == []
