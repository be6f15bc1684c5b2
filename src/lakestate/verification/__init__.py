"""Verifying a whole job, and a host's run cache: everything is read, nothing is written."""

from lakestate.verification.cache import CacheReport, verify_cache
from lakestate.verification.job import verify
from lakestate.verification.report import (
    DanglingOutput,
    EpochVerdict,
    Fate,
    Finding,
    Orphan,
    Problem,
    Standing,
    VerificationReport,
)

__all__ = [
    "CacheReport",
    "DanglingOutput",
    "EpochVerdict",
    "Fate",
    "Finding",
    "Orphan",
    "Problem",
    "Standing",
    "VerificationReport",
    "verify",
    "verify_cache",
]
