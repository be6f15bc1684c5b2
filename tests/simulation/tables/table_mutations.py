"""Ways to break sinks for tables: how an epoch gets into a table, and how files take the place of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate
from tests.simulation.mutations import ForgedPermit, Patch, commit_now

from lakestate.coordinator.job_driver import JobDriver
from lakestate.sinks.delta import change as delta_change
from lakestate.sinks.delta import epoch_log, merge, progress
from lakestate.sinks.files import committer as file_committer
from lakestate.sinks.files import writer
from lakestate.sinks.iceberg.commits import change as iceberg_change
from lakestate.sinks.iceberg.commits import committer as iceberg_committer
from lakestate.sinks.iceberg.commits.progress import IcebergEpoch
from lakestate.sinks.iceberg.upserts import delivery as iceberg_delivery
from lakestate.sinks.iceberg.upserts import rows as iceberg_rows
from lakestate.sinks.table_format.epoch_files import CommitStatus
from lakestate.sinks.table_format.replacement import FilePlan, SmallFiles
from lakestate.testing.simulation import Scenario, run_seed
from lakestate.testing.simulation.cluster.world import TABLE
from lakestate.testing.simulation.random_streams import random_stream

APPENDED, VISIBLE, KEYED = "append", "visible", "key"
DELTA, ICEBERG = "delta", "iceberg"
SEED_FIRST = 3
"""Of the first seeds that show most of them, the first."""


@dataclass(frozen=True)
class TableMutation:
    """One deliberate bug, in the sink for one kind of table."""

    name: str
    apply: Callable[[Patch], None]
    table: str
    rows: str
    is_rare: bool = False
    """True if it takes dozens of seeds until it matters."""
    goes_back: bool = False
    """True if it matters only after going back to an earlier epoch."""
    seeds_max: int = 400

    def __str__(self) -> str:
        return f"{self.table}-{self.name.replace(' ', '-')}"

    def scenario(self, seed: int) -> Scenario:
        """What the seed draws, with more drivers at once and more turns taken than usual."""
        drawn = Scenario.draw_with_table(random_stream(seed, "scenario"))
        drawn = replace(drawn, table=self.table, table_rows=self.rows, goes_back=self.goes_back)
        if self.goes_back:
            return replace(drawn.with_more_epochs(), table_visitor=False)
        rates = replace(drawn.rates, second_driver=0.7, answer_lost=0.02, crash_after=0.02, stall=0.02)
        return replace(
            drawn,
            drivers=3,
            patience_min=30,
            switch_rate=0.3,
            rates=rates,
            table_visitor=True,
        )

    def seeds_to_find(self) -> tuple[int, str] | None:
        """How many seeds it takes to notice it, and the broken promise; None if it goes unnoticed."""
        with pytest.MonkeyPatch.context() as patch:
            self.apply(patch)
            for number in range(self.seeds_max):
                seed = SEED_FIRST + number
                result = run_seed(seed, scenario=self.scenario(seed))
                if result.violation is not None:
                    return number + 1, str(result.violation)
        return None


def commit_to_delta_without_looking(patch: Patch) -> None:
    """As a writer that trusts its own memory would. A file that is added again is still one file."""

    def commit(log: Any, entry: Any, is_past: Any, prepare: Any) -> None:
        for _ in range(20):
            try:
                prepare(log.read())(epoch_log._properties(entry))
                return
            except epoch_log.LakestateError:
                raise
            except Exception:
                continue

    patch.setattr(epoch_log.EpochLog, "commit", commit)


def commit_to_iceberg_without_looking(patch: Patch) -> None:
    for module in (iceberg_committer, iceberg_delivery):
        patch.setattr(module, "is_committed", lambda *_: False)


def commit_the_entry_apart_in_delta(patch: Patch) -> None:
    real = epoch_log._properties

    def commit(log: Any, entry: Any, is_past: Any, prepare: Any) -> None:
        for _ in range(20):
            table = log.read()
            if log._holds(table, entry, is_past):
                return
            try:
                prepare(table)(CommitProperties(max_commit_retries=0))
                _record_only(log.read(), real(entry))
                return
            except epoch_log.LakestateError:
                raise
            except Exception:
                continue

    patch.setattr(epoch_log.EpochLog, "commit", commit)


def _record_only(table: DeltaTable, properties: CommitProperties) -> None:
    table.create_write_transaction([], "append", table.schema(), [], commit_properties=properties)


def commit_the_property_apart_in_iceberg(patch: Patch) -> None:
    def commit_updates(table: Table, properties: Mapping[str, str], updates: Iterable[Any]) -> None:
        table._do_commit(tuple(updates), _requirements(table))
        table._do_commit((SetPropertiesUpdate(updates=dict(properties)),), ())

    _patch_commit_updates(patch, commit_updates)
    patch.setattr(IcebergEpoch, "summary", lambda self: {})


def commit_to_a_table_that_has_moved_on(patch: Patch) -> None:
    def commit_updates(table: Table, properties: Mapping[str, str], updates: Iterable[Any]) -> None:
        table._do_commit((SetPropertiesUpdate(updates=dict(properties)), *updates), ())

    _patch_commit_updates(patch, commit_updates)


def record_only_epochs_with_files(patch: Patch) -> None:
    """An epoch whose large files are all left out changes nothing, and leaves no mark."""
    real = iceberg_change.commit_updates

    def commit_updates(table: Table, properties: Mapping[str, str], updates: Iterable[Any]) -> None:
        changes = tuple(updates)
        if changes:
            real(table, properties, changes)

    _patch_commit_updates(patch, commit_updates)


def _patch_commit_updates(patch: Patch, instead: Callable[..., None]) -> None:
    for module in (iceberg_change, iceberg_delivery):
        patch.setattr(module, "commit_updates", instead)


def _requirements(table: Table) -> tuple[Any, ...]:
    main = table.metadata.refs.get(MAIN_BRANCH)
    at = {"snapshot-id": None if main is None else main.snapshot_id, "ref": MAIN_BRANCH}
    return (
        AssertRefSnapshotId.model_validate(at),
        AssertTableUUID(uuid=table.metadata.table_uuid),
    )


def append_large_files(patch: Patch) -> None:
    """They do not take the place of the small ones, which show the same rows."""
    patch.setattr(FilePlan, "of", classmethod(lambda cls, files, find: cls(tuple(files))))
    patch.setattr(delta_change.TableChange, "replace", lambda self, files: self.add(files))


def replace_what_is_left(patch: Patch) -> None:
    """Small files that somebody has compacted, or that had rows deleted, are simply not removed."""

    def of(cls: Any, files: Any, find: Any) -> FilePlan:
        new = tuple(file for file in files if not file.replaces)
        large = [file for file in files if file.replaces]
        known = {file.path for file in new}
        known |= set(find({path for file in large for path in file.replaces}).rows)
        left = (
            msgspec.structs.replace(each, replaces=tuple(path for path in each.replaces if path in known))
            for each in large
        )
        return FilePlan(new, tuple(left))

    patch.setattr(FilePlan, "of", classmethod(of))


def replace_without_counting_rows(patch: Patch) -> None:
    """Of small files that are there: after going back they may hold rows that are given up."""

    def reason_to_stay(small: SmallFiles, file: Any) -> str | None:
        missing = [path for path in file.replaces if path not in small.rows]
        return "missing" if missing else small.reason_touched(file)

    patch.setattr(SmallFiles, "reason_to_stay", reason_to_stay)


def leave_out_large_files(patch: Patch) -> None:
    """Also those that have no small files, so that their rows are nowhere else."""
    real = FilePlan.of

    def of(cls: Any, files: Any, find: Any) -> FilePlan:
        plan = real(files, find)
        return FilePlan(tuple(file for file in plan.appended if file.preview_of), plan.replacing)

    patch.setattr(FilePlan, "of", classmethod(of))


def forget_small_files(patch: Patch) -> None:
    """A file that continues does not know which of its rows are visible."""
    real = writer.FileSinkWriter._resume_file

    def resume_file(self: Any, record: Any) -> Any:
        file = real(self, record)
        file.shown, file.shown_rows = (), 0
        return file

    patch.setattr(writer.FileSinkWriter, "_resume_file", resume_file)


def say_that_rows_of_large_files_are_new(patch: Patch) -> None:
    """Whoever follows the table reads them again."""
    real = delta_change.TableChange._adds
    patch.setattr(
        delta_change.TableChange,
        "_adds",
        lambda self, files, has_new_rows: real(self, files, has_new_rows=True),
    )


def add_and_replace_in_one_snapshot(patch: Patch) -> None:
    """Rows that are new are in no snapshot that appends."""

    def of(cls: Any, files: Any, find: Any) -> FilePlan:
        plan = real(files, find)
        if not plan.replacing:
            return plan
        replaced = {path for file in plan.replacing for path in file.replaces}
        shown = {file.path for file in plan.appended} & replaced
        large = (
            msgspec.structs.replace(each, replaces=tuple(path for path in each.replaces if path not in shown))
            for each in plan.replacing
        )
        return FilePlan(tuple(file for file in plan.appended if file.path not in shown), tuple(large))

    real = FilePlan.of
    patch.setattr(FilePlan, "of", classmethod(of))


def commit_to_the_table_before_publishing(patch: Patch) -> None:
    real = JobDriver._publish

    def publish_after(driver: JobDriver, manifest: Any) -> Any:
        of_table = tuple(sink for sink in manifest.sinks if sink.sink_id == TABLE)
        commit_now(driver, ForgedPermit(manifest), replace(manifest, sinks=of_table))
        return real(driver, manifest)

    patch.setattr(JobDriver, "_publish", publish_after)


def name_files_before_they_are_whole(patch: Patch) -> None:
    """Small files are put in the pre-commit, and readers of the table open them at once."""
    real = file_committer.FileCommitter._make_visible

    def make_visible(self: Any, file: Any) -> None:
        if not file.preview_of:
            real(self, file)

    patch.setattr(file_committer.FileCommitter, "_make_visible", make_visible)


def merge_old_epochs_again(patch: Patch) -> None:
    """A table that only knows whether the last epoch came again, and takes an older one of a zombie."""

    def of_delta(entry: Any, entry_of: Any) -> CommitStatus:
        return CommitStatus.DONE if entry_of(entry.app_id) == entry.epoch else CommitStatus.PENDING

    def of_iceberg(epoch: Any, properties: Mapping[str, str], summaries: Any) -> CommitStatus:
        last = properties.get(epoch.property_name)
        return CommitStatus.DONE if last == str(int(epoch.epoch)) else CommitStatus.PENDING

    patch.setattr(progress.EpochEntry, "commit_status", of_delta)
    patch.setattr(IcebergEpoch, "commit_status", of_iceberg)


def insert_without_replacing(patch: Patch) -> None:
    def insert(self: Any, table: Any, properties: Any) -> None:
        merger = table.merge(
            self.rows,
            "false",
            source_alias="source",
            target_alias="target",
            streamed_exec=False,
            commit_properties=properties,
        )
        merger.when_not_matched_insert_all().execute()

    patch.setattr(merge.TableMerge, "_merge", insert)
    patch.setattr(iceberg_delivery, "_rewritten_files", lambda *_: iter(()))


def keep_the_first_row_of_each_key(patch: Patch) -> None:
    def newest_by_key(tables: Iterable[pa.Table], key: Sequence[str]) -> pa.Table:
        rows = pa.concat_tables(tables)
        return rows.take(pa.array(sorted({user: at for at, user in _reversed(rows, key)}.values())))

    def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Array:
        return pa.array(sorted({user: at for at, user in _reversed(rows, key)}.values()))

    patch.setattr(merge, "newest_by_key", newest_by_key)
    patch.setattr(iceberg_rows, "_last_of_each_key", last_of_each_key)


def _reversed(rows: pa.Table, key: Sequence[str]) -> list[tuple[int, Any]]:
    return list(enumerate(rows[key[0]].to_pylist()))[::-1]


def lose_rows_of_rewritten_files(patch: Patch) -> None:
    """Files with changed keys are removed, and the other rows in them with them."""
    real = iceberg_delivery._rewritten_files

    def rewritten_files(table: Any, changed: Any) -> Any:
        return ((task, left.slice(0, 0)) for task, left in real(table, changed))

    patch.setattr(iceberg_delivery, "_rewritten_files", rewritten_files)


TABLES: Sequence[TableMutation] = (
    TableMutation("commit without looking", commit_to_delta_without_looking, DELTA, VISIBLE),
    TableMutation(
        "commit without looking", commit_to_iceberg_without_looking, ICEBERG, APPENDED, is_rare=True
    ),
    TableMutation("commit the entry apart", commit_the_entry_apart_in_delta, DELTA, APPENDED),
    TableMutation("commit the property apart", commit_the_property_apart_in_iceberg, ICEBERG, APPENDED),
    TableMutation(
        "commit to a table that has moved on",
        commit_to_a_table_that_has_moved_on,
        ICEBERG,
        VISIBLE,
        is_rare=True,
    ),
    TableMutation(
        "record only epochs with files", record_only_epochs_with_files, ICEBERG, VISIBLE, is_rare=True
    ),
    *(
        TableMutation(name, apply, table, VISIBLE)
        for table in (DELTA, ICEBERG)
        for name, apply in (
            ("append large files", append_large_files),
            ("replace what is left", replace_what_is_left),
            ("forget small files", forget_small_files),
            ("commit to the table before publishing", commit_to_the_table_before_publishing),
            ("name files before they are whole", name_files_before_they_are_whole),
        )
    ),
    *(
        TableMutation(name, apply, table, KEYED)
        for table in (DELTA, ICEBERG)
        for name, apply in (
            ("insert without replacing", insert_without_replacing),
            ("keep the first row of each key", keep_the_first_row_of_each_key),
        )
    ),
    TableMutation("say that rows are new", say_that_rows_of_large_files_are_new, DELTA, VISIBLE),
    TableMutation("add and replace in one snapshot", add_and_replace_in_one_snapshot, ICEBERG, VISIBLE),
    TableMutation("leave out large files", leave_out_large_files, ICEBERG, VISIBLE),
    *(
        TableMutation("merge old epochs again", merge_old_epochs_again, table, KEYED, is_rare=True)
        for table in (DELTA, ICEBERG)
    ),
    TableMutation("lose rows of rewritten files", lose_rows_of_rewritten_files, ICEBERG, KEYED),
    *(
        TableMutation(
            "replace without counting rows",
            replace_without_counting_rows,
            table,
            VISIBLE,
            is_rare=True,
            goes_back=True,
        )
        for table in (DELTA, ICEBERG)
    ),
)
