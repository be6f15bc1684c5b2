"""`ls.doctor`: checks of Python, packages, Java, Spark and a store, as a list that shows itself."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import lakestate
from lakestate.config import StoreConfig
from lakestate.inspection.listing import Listing
from lakestate.job.state_backend import StateBackend
from lakestate.spark.diagnosis.machine import check_java, check_python, check_spark
from lakestate.spark.diagnosis.store_checks import Check, Verdict, check_store, look_at_store

PACKAGES = (
    *("pyarrow", "numpy", "obstore", "protobuf", "msgspec", "xxhash"),
    *("pyspark", "pandas", "boto3", "pyiceberg", "duckdb"),
)


class Diagnosis(Listing[Check]):
    """Checks, as a tuple that shows itself as a table."""

    __slots__ = ()

    @property
    def is_healthy(self) -> bool:
        """True if no check failed."""
        return not any(check.verdict is Verdict.FAILED for check in self)


def doctor(
    checkpoint: str | Path | StoreConfig | StateBackend | None = None,
    *,
    spark: bool = True,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Diagnosis:
    """Check this machine, and with a checkpoint URL what its store allows.

    Every permission that a job needs is tried on scratch objects, which are deleted again; with `dry_run` the
    store is only listed. `spark` starts Spark and a Python worker, or uses the session that there is.

    >>> found = doctor("memory://docs-doctor", spark=False)
    >>> [check.verdict.value for check in found if check.name == "store: compare and swap"]
    ['ok']
    """
    tell("looking at this machine")
    checks = [check_python(), Check("lakestate", Verdict.OK, lakestate.__version__)]
    checks += [_package(name) for name in PACKAGES]
    checks.append(check_java())
    if spark:
        tell("starting Spark")
        checks.append(check_spark())
    if checkpoint is not None:
        backend = checkpoint if isinstance(checkpoint, StateBackend) else StateBackend(checkpoint)
        tell(f"trying {backend.url}")
        store = backend.objects("any").store
        checks += look_at_store(store) if dry_run else check_store(store, backend.ambient)
    return Diagnosis(checks)


def _package(name: str) -> Check:
    try:
        return Check(name, Verdict.OK, version(name))
    except PackageNotFoundError:
        return Check(name, Verdict.ABSENT, "not installed")
