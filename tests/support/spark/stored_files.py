"""Spark's files as an epoch stores them, and as the next start reads them again."""

from __future__ import annotations

from lakestate.coordinator.engine.batches import EngineFiles
from lakestate.coordinator.engine.logs import read_logs, store_logs
from lakestate.job.objects import JobObjects
from lakestate.protocol.metadata import Manifest, NamedBytes
from lakestate.protocol.values import Epoch, Generation
from lakestate.testing.stepping import SteppingAmbient

_AMBIENT = SteppingAmbient("logs")


def store_files(files: EngineFiles, epoch: Epoch, job: JobObjects) -> Manifest:
    """The manifest of an epoch with these files."""
    return Manifest(
        job_id=job.job_id,
        epoch=epoch,
        generation=Generation(1),
        parent=None,
        started_ms=0,
        finished_ms=0,
        min_epoch=Epoch(1),
        engine_files=files.files,
        engine_logs=store_logs(job, epoch, files.logs, _AMBIENT),
    )


def restore_files(manifest: Manifest, job: JobObjects) -> tuple[NamedBytes, ...]:
    """All of them, as a driver reads them."""
    return (*manifest.engine_files, *read_logs(job, manifest))
