"""Few large batches instead of many small ones: vectorised work has a fixed cost per batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

ROWS_TARGET = 256 * 1024
BYTES_TARGET = 64 * 1024 * 1024


def coalesce_batches(
    batches: Iterable[tuple[str, pa.RecordBatch]],
    rows_target: int = ROWS_TARGET,
    bytes_target: int = BYTES_TARGET,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Join batches of the same input until they are large enough. Empty ones are dropped.

    >>> small = [("", pa.record_batch({"n": [number]})) for number in range(5)]
    >>> [batch.num_rows for _, batch in coalesce_batches(small, rows_target=2)]
    [2, 2, 1]
    """
    waiting: dict[str, list[pa.RecordBatch]] = {}
    rows: dict[str, int] = {}
    size_bytes: dict[str, int] = {}
    for name, batch in batches:
        if not batch.num_rows:
            continue
        waiting.setdefault(name, []).append(batch)
        rows[name] = rows.get(name, 0) + batch.num_rows
        size_bytes[name] = size_bytes.get(name, 0) + batch.nbytes
        if rows[name] >= rows_target or size_bytes[name] >= bytes_target:
            yield name, _concat(waiting.pop(name))
            rows[name] = size_bytes[name] = 0
    for name, left in waiting.items():
        yield name, _concat(left)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
