"""Verifying a whole job, and a host's run cache: everything is read, nothing is written."""

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
