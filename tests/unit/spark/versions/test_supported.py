"""What is said of Spark's versions at the start, and where pyspark lacks something."""

from __future__ import annotations

import tomllib
import warnings

import pytest
from tests.support.repository import ROOT

pytest.importorskip("pyspark")

from lakestate.errors import InvalidInputError
from lakestate.spark.versions.supported import SUPPORTED, check_version


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8", "5.0.0", "5.1.0-preview1"])
def test_other_versions_are_refused_by_name(version: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_version(version)
    assert (raised.value.found, raised.value.expected) == (
        f"Spark {version}",
        "Spark 3.5, 4.0, 4.1, 4.2 or 4.3",
    )


@pytest.mark.parametrize("version", ["3.5.0", "3.5.6-amzn-1", "4.0.0+databricks", "4.1.4", "4.2.1", "4.3.0"])
def test_supported_versions_and_those_of_vendors_run(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(version)


def test_a_version_newer_than_all_tested_ones_runs_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"Spark 4\.4\.0 is newer than every version .*: 3\.5, .* or 4\.3"):
        check_version("4.4.0")


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not a version of Spark; found unknown"):
        check_version("unknown")


def test_the_package_asks_for_the_versions_that_it_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [needed] = [each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark")]
    assert needed == f"pyspark>={SUPPORTED[0]},<{int(SUPPORTED[-1][0]) + 1}"


def test_every_supported_version_has_an_environment_in_the_matrix() -> None:
    lines = (ROOT / "scripts" / "matrix.txt").read_text().splitlines()
    pinned = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert tuple(version.removeprefix("pyspark==").rpartition(".")[0] for version in pinned) == SUPPORTED
