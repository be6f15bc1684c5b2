"""Verification of a whole job, and of a host's run cache: everything is read, nothing is written.

It may import everything below `spark/`, and only reads: the objects of a job through `job/`, data
files through their table types, and the unfinished output of sinks. Other layers use `verify`,
`verify_cache` and the values of their reports.
"""

from lakestate.verification.cache import CacheReport, verify_cache
from lakestate.verification.job import verify
from lakestate.verification.report import (
    DanglingOutput,
    DanglingStatus,
    EpochVerdict,
    Finding,
    Orphan,
    OrphanDeletion,
    Problem,
    VerificationReport,
)

__all__ = [
    "CacheReport",
    "DanglingOutput",
    "DanglingStatus",
    "EpochVerdict",
    "Finding",
    "Orphan",
    "OrphanDeletion",
    "Problem",
    "VerificationReport",
    "verify",
    "verify_cache",
]
