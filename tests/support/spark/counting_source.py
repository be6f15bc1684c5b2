"""A Python data source that counts: rows are the numbers from 0, some in every batch."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader


class CountingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "n bigint"

    def simpleStreamReader(self, schema):
        return CountingReader(int(self.options["last"]))


class CountingReader(SimpleDataSourceStreamReader):
    def __init__(self, last: int) -> None:
        self._last = last

    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        stop = min(start["next"] + 3, self._last)
        return iter([(number,) for number in range(start["next"], stop)]), {"next": stop}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(start["next"], end["next"])])

    def commit(self, end: dict[str, int]) -> None:
        pass
