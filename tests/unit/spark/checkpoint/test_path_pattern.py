"""Which files lie below the path of a file source."""

from __future__ import annotations

import pytest

from lakestate.spark.checkpoint.path_pattern import PathPattern, split_pattern

INSIDE = [
    ("/data/in", "file:///data/in/a.json"),
    ("/data/in", "file:/data/in/day=1/a.json"),
    ("/data/in/", "file:///data/in/a%20b.json"),
    ("/data/100%", "file:///data/100%25/a"),
    ("/data/*", "file:///data/in/a.json"),
    ("/data/*/x", "file:///data/in/x/deep/a"),
    ("/data/i?/a.json", "file:///data/in/a.json"),
    ("/data/[h-j]n", "file:///data/in/a"),
    ("/data/[^x]n", "file:///data/in/a"),
    ("/data/{in,out}", "file:///data/out/a"),
    ("/data/{in/a,out}/b", "file:///data/in/a/b"),
    (r"/data/\*", "file:///data/%2A/a"),
    ("/", "file:///etc/passwd"),
]
OUTSIDE = [
    ("/data/in", "file:///data/inside/a.json"),
    ("/data/in", "file:///data/in/../secret"),
    ("/data/in", "file:///data/in/%2e%2e/secret"),
    ("/data/in", "file:///data/in//secret"),
    ("/data/in", "hdfs:///data/in/a.json"),
    ("/data/in", "file://host/data/in/a.json"),
    ("/data/in", "/data/in/a.json"),
    ("/data/*/x", "file:///data/in/y/a"),
    ("/data/*/x", "file:///data/in/deep/x"),
    ("/data/i?/a", "file:///data/i//a"),
    ("/data/[^x]n", "file:///data/xn/a"),
    ("/data/{in,out}", "file:///data/on/a"),
    (r"/data/\*", "file:///data/in/a"),
]


def pattern_of(path: str) -> PathPattern:
    base, rest = split_pattern(path)
    return PathPattern(f"file:{base}", rest)


@pytest.mark.parametrize(("path", "url"), INSIDE)
def test_a_file_below_the_path_belongs_to_the_source(path: str, url: str) -> None:
    assert pattern_of(path).contains(url)


@pytest.mark.parametrize(("path", "url"), OUTSIDE)
def test_a_file_elsewhere_does_not(path: str, url: str) -> None:
    assert not pattern_of(path).contains(url)


def test_a_bucket_is_part_of_the_path() -> None:
    pattern = PathPattern("s3a://bucket/in")
    assert pattern.contains("s3a://bucket/in/a?b=1#c")
    assert not pattern.contains("s3a://other/in/a")
    assert not pattern.contains("s3a://bucket@other/in/a")
