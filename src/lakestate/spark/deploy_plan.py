"""`ls.plan`: what a new version of a pipeline would do to its stored state, before it is deployed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakestate.coordinator.parquet_backend import ParquetBackend
from lakestate.errors import LakestateError
from lakestate.inspection.listing import Listing, html_table
from lakestate.inspection.state_plan import Outcome, TablePlan, plan_tables
from lakestate.protocol.values import Epoch
from lakestate.tables.contract import Table

if TYPE_CHECKING:
    from lakestate.spark.dry_run import PipelineDryRun


class PlannedPipeline(Protocol):
    """What a plan needs of a `Pipeline`."""

    @property
    def job_id(self) -> str:
        """The job that it runs."""
        ...

    @property
    def backend(self) -> ParquetBackend:
        """Where its state is."""
        ...

    def declared_tables(self) -> Mapping[str, Sequence[Table]]:
        """The tables of its operators and sinks, by id."""
        ...

    def dry_run(self, *, drop: Collection[str] = (), reopen: bool = False) -> PipelineDryRun:
        """Everything that would keep it from starting."""
        ...


@dataclass(frozen=True, slots=True)
class DeployPlan:
    """What would happen. It shows itself as text, and as HTML in a notebook."""

    job: str
    epoch: Epoch | None
    """The epoch that the pipeline would continue after."""
    tables: Listing[TablePlan]
    problems: tuple[LakestateError, ...]
    """What would keep it from starting."""
    migrated_files: int
    migrated_rows: int

    @property
    def can_start(self) -> bool:
        """True if nothing keeps the pipeline from starting."""
        return not self.problems and all(each.outcome is not Outcome.REFUSED for each in self.tables)

    def __str__(self) -> str:
        return "\n".join([f"{self._summary()}:", repr(self.tables), *map(str, self.problems)])

    def _repr_html_(self) -> str:
        problems = [[each.code, str(each)] for each in self.problems]
        shown = html_table(["code", "problem"], problems) if problems else ""
        return f"<p>{self._summary()}</p>{self.tables._repr_html_()}{shown}"

    def _summary(self) -> str:
        after = "begins anew" if self.epoch is None else f"continues after epoch {self.epoch}"
        return f"job {self.job} " + (after if self.can_start else "cannot start")


def plan(pipeline: PlannedPipeline, *, drop: Collection[str] = (), reopen: bool = False) -> DeployPlan:
    """Say what a pipeline would do to the stored state, before it is deployed. Nothing is claimed or changed.

    As `lakestate plan`: each table is unchanged, migrated, new, dropped or refused, and every file of an
    older version is migrated and discarded. `drop` and `reopen` are those of `start`.
    """
    tried = pipeline.dry_run(drop=drop, reopen=reopen)
    job_id, backend = pipeline.job_id, pipeline.backend
    manifest = None if tried.epoch is None else backend.load_checkpoint_metadata(job_id, tried.epoch)
    tables = plan_tables(pipeline.declared_tables(), manifest, backend.objects(job_id), drop)
    return DeployPlan(
        job_id, tried.epoch, Listing(tables), tuple(tried.problems), tried.checked_files, tried.migrated_rows
    )
