"""Run as a program: continues every file of a folder for one epoch, in a separate process.

Arguments: the folder, the number of the epoch, and `continue` or `end`. Each compression has a file.
One process leaves the next only the file and the recovery record next to it.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
from tests.support.sinks.local_files import begin_file, continue_file

from lakestate.sinks.files.destination import CurrentFileRecovery
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.pre_commit import LocalFile
from lakestate.sinks.formats.parquet.segment import COMPRESSIONS, ParquetEncoding

EPOCH_ROWS = 150
SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("number", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("time", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(20, 4)),
        ("numbers", pa.list_(pa.int32())),
        ("person", pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def rows_of(epoch: int) -> pa.RecordBatch:
    numbers = range(epoch * EPOCH_ROWS, (epoch + 1) * EPOCH_ROWS)
    return pa.RecordBatch.from_pylist([_row(number) for number in numbers], schema=SCHEMA)


def _row(number: int) -> dict[str, object]:
    row: dict[str, object] = {
        "flag": number % 2 == 0,
        "number": number / 7,
        "text": f"text {number} " * (number % 5),
        "raw": number.to_bytes(4, "big"),
        "day": date(2024, 1, 1) + timedelta(days=number % 400),
        "time": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=number * 1_234_567),
        "price": Decimal(number * 10_001) / Decimal(10_000),
        "numbers": [number, None, number + 1][: number % 4],
        "person": {"name": f"n{number}", "tags": ["a", f"t{number % 3}"][: number % 3]},
        "counts": [(f"k{each}", number) for each in range(number % 3)],
        "kind": ["red", "green", "blue"][number % 3],
    }
    # Every column has nulls, in rows of its own.
    shown = {name: None if number % 13 == place else value for place, (name, value) in enumerate(row.items())}
    return {"row": number, **shown}


def step(root: Path, compression: str, epoch: int, *, last: bool) -> None:
    settings = ParquetEncoding(compression)
    record_file = root / f"{compression}.record"
    # Every other epoch ends a row group; the rows of the others wait for it.
    kept = 0 if epoch % 2 else 1 << 20
    if record_file.exists():
        record = msgspec.msgpack.decode(record_file.read_bytes(), type=CurrentFileRecovery)
        writer = continue_file(
            root,
            f"{compression}.parquet",
            record,
            SCHEMA,
            settings,
            attempt=f"{compression}-{epoch}",
            kept_row_bytes=kept,
        )
    else:
        writer = begin_file(
            root, f"{compression}.hidden", f"{compression}.parquet", SCHEMA, settings, kept_row_bytes=kept
        )
    writer.write_batch(rows_of(epoch))
    if not last:
        record_file.write_bytes(msgspec.msgpack.encode(writer.checkpoint()))
        return
    done = writer.close()
    assert isinstance(done.content, LocalFile)
    LocalOutput(root).publish(done.content.temporary, done.path, done.size_bytes, done.content.crc32)


def main() -> None:
    root, epoch, then = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for compression in COMPRESSIONS:
        step(root, compression, epoch, last=then == "end")


if __name__ == "__main__":
    main()
