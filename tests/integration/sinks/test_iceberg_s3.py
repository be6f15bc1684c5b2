"""An Iceberg table on the S3 server: multipart uploads that outlive epochs, one append, no remains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.sinks.sink_job import SinkJob, expected_rows, numbered_rows

from lakestate.sinks.iceberg.catalog import IcebergCatalog
from lakestate.sinks.iceberg.sink import IcebergSink
from lakestate.sinks.rolling import Roll

if TYPE_CHECKING:
    from lakestate.testing.s3_server import S3Server

# Text that does not compress, so that files need several parts of the least size.
ROWS = numbered_rows(150_000)
EPOCHS = 4


def test_a_table_on_s3_holds_every_row_once(s3_server: S3Server, tmp_path: Path) -> None:
    credentials = s3_server.credentials
    catalog = IcebergCatalog.sqlite(
        f"s3://{s3_server.bucket}/iceberg",
        file=str(tmp_path / "catalog.db"),
        **{
            "s3.endpoint": s3_server.endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": credentials.access_key_id,
            "s3.secret-access-key": credentials.secret_access_key,
        },
    )
    sink = IcebergSink(
        "shop.orders", catalog=catalog, roll=Roll(interval=None), part_bytes="5MiB", kept_row_bytes=0
    )
    job = SinkJob(lambda: sink, ROWS, parallelism=1)  # type: ignore[arg-type, return-value]
    job.run_to(EPOCHS, finish_files=False)
    store = sink.files(sink.load_table()).store
    assert len(list(store.uploads.list_dangling())) == 1
    assert sink.load_table().metadata.snapshots == []
    job.run_to(EPOCHS + 1)
    job.commit()
    table = sink.load_table()
    assert sorted(table.scan().to_arrow()["row"].to_pylist()) == expected_rows(ROWS, EPOCHS + 1, 1)
    assert len(table.metadata.snapshots) == 1
    assert list(store.uploads.list_dangling()) == []
