"""Where the engine of a job stands, when one of its epochs is published again under another number."""

from __future__ import annotations

from lakestate.codec.engine_files import SINK_SCHEMA, SparkFiles
from lakestate.errors import IncompatibleStateError
from lakestate.protocol.metadata import Manifest, NamedBytes
from lakestate.protocol.values import Epoch


def engine_files_at(source: Manifest, epoch: Epoch) -> tuple[NamedBytes, ...]:
    """Spark's files under the number of the new epoch: it continues as if a batch had read nothing more."""
    if not source.engine_files:
        return ()
    return SparkFiles.parse(source.engine_files, source.epoch).at(epoch).encode()


def refuse_data_source(source: Manifest, what: str) -> None:
    """Refuse a job whose offsets Spark keeps: it would take an epoch of ours for one of its own batches."""
    if [file.name for file in source.engine_files] == [SINK_SCHEMA]:
        raise IncompatibleStateError(
            f"a job of writeStream.format('lakestate') cannot {what}",
            object_name=f"job {source.job_id}",
            found="offsets that Spark keeps in its own checkpoint",
            action="write to another path with a new checkpointLocation",
        )
