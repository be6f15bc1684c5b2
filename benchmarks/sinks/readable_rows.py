"""An outside reader that notes when each row of an output can be read for the first time.

It knows nothing of who writes: it asks the table, or the log of Spark's file sink, which files there are now,
and reads those that are new.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

POLL_S = 0.05

ListFiles = Callable[[], "Iterable[Path] | None"]
"""The files that readers see now; None if nothing is new since the last call."""


@dataclass
class RowWatch:
    """Polls in a thread. `number` and `made` are columns: which row it is, and when it was made."""

    list_files: ListFiles
    number: str
    made: str
    late_us: dict[int, int] = field(default_factory=dict)
    """How long after it was made a row could be read."""
    begun_us: int | None = None
    """When the earliest row was made that was found so far."""
    known: set[Path] = field(default_factory=set)
    """The files that were read. Those of a version that another one followed at once may be missing."""
    listed: list[Path] = field(default_factory=list)
    """What readers see in the end."""
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and end."""
        self._done.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        self._look()

    def _watch(self) -> None:
        try:
            while not self._done.wait(POLL_S):
                self._look()
        except BaseException as failure:  # noqa: BLE001 - raised by stop
            self.failure = failure

    def _look(self) -> None:
        files = self.list_files()
        seen_us = time.time_ns() // 1000
        if files is None:
            return
        self.listed = [*files]
        for path in self.listed:
            if path not in self.known:
                self.known.add(path)
                self._read(path, seen_us)

    def _read(self, path: Path, seen_us: int) -> None:
        rows = pq.read_table(path, columns=[self.number, self.made], partitioning=None)
        made = pc.cast(rows[self.made], pa.timestamp("us"), safe=False).cast(pa.int64()).to_pylist()
        for number, made_us in zip(rows[self.number].to_pylist(), made, strict=True):
            if number not in self.late_us:
                self.late_us[number] = seen_us - made_us
        self.begun_us = min(made if self.begun_us is None else [*made, self.begun_us], default=None)

    def late_ms(self, numbers: range) -> list[float]:
        """How late rows were. Each of them was found."""
        return [self.late_us[number] / 1000 for number in numbers]


def files_of_iceberg(warehouse: Path, table: str) -> ListFiles:
    """Those of the newest snapshot, by a catalog of the reader's own."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    known: list[Any] = [None]

    def list_files() -> list[Path] | None:
        if not (warehouse / "catalog.db").exists():
            return None
        uri = f"sqlite:///{warehouse}/catalog.db"
        catalog = load_catalog("lakestate", type="sql", uri=uri, warehouse=f"file://{warehouse}")
        try:
            loaded = catalog.load_table(table)
        except NoSuchTableError:
            return None
        finally:
            catalog.close()
        newest = loaded.current_snapshot()
        if newest is None or newest.snapshot_id == known[0]:
            return None
        known[0] = newest.snapshot_id
        return [Path(task.file.file_path.removeprefix("file://")) for task in loaded.scan().plan_files()]

    return list_files


def files_of_delta(folder: Path) -> ListFiles:
    """Those of the newest version."""
    from deltalake import DeltaTable

    known = [-1]

    def list_files() -> list[Path] | None:
        if not DeltaTable.is_deltatable(str(folder)):
            return None
        table = DeltaTable(folder)
        if table.version() == known[0]:
            return None
        known[0] = table.version()
        return [Path(uri) for uri in table.file_uris()]

    return list_files


def files_of_folder(folder: Path) -> ListFiles:
    """Those whose names are not hidden."""
    return lambda: [
        path
        for path in folder.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]


def files_of_spark_sink(folder: Path) -> ListFiles:
    """Those that Spark's file sink has committed: it writes them into the folder before."""
    log, known, found = folder / "_spark_metadata", set[str](), set[Path]()

    def list_files() -> list[Path] | None:
        names = {path.name for path in log.glob("[0-9]*") if path.is_file()}
        new = names - known
        known.update(names)
        for name in new:
            for line in (log / name).read_text().splitlines()[1:]:
                found.add(Path(json.loads(line)["path"].removeprefix("file://")))
        return sorted(found) if new else None

    return list_files
