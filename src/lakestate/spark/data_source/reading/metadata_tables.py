"""Jobs, epochs, operators, tables and files as rows of a DataFrame."""

from __future__ import annotations

import pyarrow as pa

from lakestate.errors import InvalidInputError
from lakestate.inspection import EpochInfo, FileInfo, JobInfo, Listing, OperatorInfo, TableInfo
from lakestate.inspection.listing import listing_schema
from lakestate.spark.data_source.reading.options import ReadOptions
from lakestate.spark.data_source.reading.plan import checkpoint_of

_KINDS: dict[str, type] = {
    "jobs": JobInfo,
    "epochs": EpochInfo,
    "operators": OperatorInfo,
    "tables": TableInfo,
    "files": FileInfo,
}


def metadata_schema(name: str) -> pa.Schema:
    """The columns of a metadata table."""
    return listing_schema(_KINDS[name])


def metadata_rows(options: ReadOptions) -> pa.Table:
    """The rows of a metadata table."""
    found = _listing(options)
    return found.to_arrow() if found else metadata_schema(str(options.metadata)).empty_table()


def _listing(options: ReadOptions) -> Listing[object]:
    checkpoint = checkpoint_of(options)
    if options.metadata == "jobs":
        return Listing(checkpoint.jobs())
    if options.job is None:
        raise InvalidInputError(
            f"no option says of which job the {options.metadata} are",
            object_name="option job",
            action="set it; metadata=jobs lists the jobs",
        )
    job = checkpoint.job(options.job)
    if options.metadata == "epochs":
        return Listing(job.epochs())
    state = job.epoch(options.epoch)
    if options.metadata == "operators":
        return Listing(state.operators())
    return Listing(
        state.tables(options.operator) if options.metadata == "tables" else state.files(options.operator)
    )
