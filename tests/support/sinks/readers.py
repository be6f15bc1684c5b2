"""Programs that read a sink's output: each by directory and by pattern, from local files or from S3.

A reader answers with the numbers of the rows that it sees, sorted. Spark reads local files only, and has
tests of its own: the package of Hadoop that reads S3 is not in this environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.json as pj
import pyarrow.parquet as pq
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem

from lakestate.testing.s3_server import S3Server

Reader = Callable[["Place"], Iterable[int]]
PATTERNS = ("**/*.{}", "**/*.{}*", "**/part-*", "**/part-*.{}")
HIDDEN = "_"
"""Polars looks into every folder. With this prefix it leaves out files that are not finished."""


class _ArrowFiles(ArrowFSWrapper):
    """DuckDB finds files on S3 through this one: its own way is an extension that has to be downloaded."""

    protocol = "arrow"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("arrow://").rstrip("/")


@dataclass(frozen=True)
class Place:
    """The root of a sink's output, as different programs want it said."""

    arrow_root: str
    files: FileSystem
    polars_root: str
    polars_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, LocalFileSystem)

    def rows_of(self, paths: Iterable[str]) -> list[int]:
        """The rows of some files."""
        rows: list[int] = []
        for path in paths:
            with self.files.open_input_file(path) as file:
                if path.endswith(".json"):
                    rows += _numbers(pj.read_json(file))
                else:
                    rows += pd.read_parquet(file, columns=["row"])["row"].tolist()
        return rows

    def duckdb_rows(self, function: str, pattern: str) -> list[int]:
        with duckdb.connect() as connection:
            if self.is_local:
                found = connection.sql(f"SELECT row FROM {function}('{self.arrow_root}{pattern}')").fetchall()
                return [row for (row,) in found]
            # Only the finding: its threads read one handle of Python's at the same time, and mix up bytes.
            connection.register_filesystem(_ArrowFiles(self.files))
            found = connection.sql(f"FROM glob('arrow://{self.arrow_root}{pattern}')").fetchall()
        return self.rows_of(path.removeprefix("arrow://") for (path,) in found)

    def polars_rows(self, scan: Callable[..., pl.LazyFrame], pattern: str, **settings: Any) -> list[int]:
        lazy = scan(f"{self.polars_root}{pattern}", storage_options=dict(self.polars_options), **settings)
        return list(lazy.select("row").collect()["row"])


def local_place(root: Path) -> Place:
    return Place(str(root), LocalFileSystem(), str(root))


def s3_place(server: S3Server, url: str) -> Place:
    keys = server.credentials
    files = S3FileSystem(
        access_key=keys.access_key_id,
        secret_key=keys.secret_access_key,
        endpoint_override=server.endpoint.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    options = {
        "aws_access_key_id": keys.access_key_id,
        "aws_secret_access_key": keys.secret_access_key,
        "aws_endpoint_url": server.endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
    }
    return Place(url.removeprefix("s3://"), files, url, options)


def readers(extension: str) -> dict[str, Reader]:
    """Every reader of a format, by a name that says how it reads."""
    found = _parquet_readers() if extension == "parquet" else _json_readers()
    duckdb_function = "read_parquet" if extension == "parquet" else "read_json"
    scan: Any = pl.scan_parquet if extension == "parquet" else pl.scan_ndjson
    hidden: dict[str, Any] = {"hidden_file_prefix": HIDDEN} if extension == "parquet" else {}
    for pattern in (each.format(extension) for each in PATTERNS):
        found[f"duckdb {pattern}"] = lambda place, p=pattern: place.duckdb_rows(duckdb_function, f"/{p}")
        found[f"polars {pattern}"] = lambda place, p=pattern: place.polars_rows(scan, f"/{p}")
        found[f"pathlib {pattern}"] = lambda place, p=pattern: _each_file(place, p)
    if extension == "parquet":
        found["duckdb directory"] = lambda place: place.duckdb_rows(
            duckdb_function, "" if place.is_local else "/**/*.parquet"
        )
        found["polars directory"] = lambda place: place.polars_rows(scan, "/", **hidden)
    return found


def _parquet_readers() -> dict[str, Reader]:
    return {
        "pyarrow dataset": lambda place: _dataset(place, "parquet"),
        "pyarrow table": lambda place: _numbers(
            pq.read_table(place.arrow_root, columns=["row"], filesystem=place.files)
        ),
        "pandas": lambda place: pd.read_parquet(place.arrow_root, columns=["row"], filesystem=place.files)[
            "row"
        ].tolist(),
    }


def _json_readers() -> dict[str, Reader]:
    return {"pyarrow dataset": lambda place: _dataset(place, "json")}


def _dataset(place: Place, file_format: str) -> list[int]:
    found = ds.dataset(place.arrow_root, format=file_format, filesystem=place.files, partitioning="hive")
    # With threads, a scan of several files of JSON on S3 can wait for itself for ever.
    return _numbers(found.to_table(columns=["row"], use_threads=False))


def _each_file(place: Place, pattern: str) -> list[int]:
    """A program that looks for files by itself, and reads each."""
    if place.is_local:
        return place.rows_of(str(path) for path in Path(place.arrow_root).glob(pattern) if path.is_file())
    infos = place.files.get_file_info(FileSelector(place.arrow_root, recursive=True))
    paths = [info.path for info in infos if info.type == FileType.File]
    return place.rows_of(path for path in paths if Path(path).match(pattern.rpartition("/")[2]))


def _numbers(table: Any) -> list[int]:
    return list(table["row"].to_pylist())
