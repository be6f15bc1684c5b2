"""Exports that a running job keeps fresh. Called beside the stream, one call at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lakestate.coordinator.upkeep import Exporter
from lakestate.errors import InvalidInputError
from lakestate.inspection.checkpoint import Checkpoint
from lakestate.inspection.exports.export import Export
from lakestate.job.state_backend import StateBackend
from lakestate.protocol.metadata import Manifest
from lakestate.protocol.names import did_you_mean
from lakestate.protocol.values import Epoch
from lakestate.tables.contract import Table


def keep_fresh(backend: StateBackend, job_id: str, exports: Sequence[Export]) -> Exporter:
    """What upkeep calls after an epoch, with the operators whose merged files were swapped in since."""
    exported: dict[int, Epoch] = {}
    job = Checkpoint(backend.without_cache()).job(job_id)

    def export(manifest: Manifest, compacted: Collection[str]) -> None:
        failed: list[Exception] = []
        for number, each in enumerate(exports):
            if not _is_due(each, exported.get(number), manifest.epoch, compacted):
                continue
            try:
                table = job.epoch(int(manifest.epoch)).table(each.operator, each.table)
                each.write(table, overwrite=each.catalog is None)
                exported[number] = manifest.epoch
            except Exception as error:  # noqa: BLE001 - the other exports are still written; upkeep reports it
                exported.pop(number, None)
                failed.append(error)
        if failed:
            raise failed[0]

    return export


def _is_due(each: Export, last: Epoch | None, epoch: Epoch, compacted: Collection[str]) -> bool:
    if last is None:
        return True
    return each.operator in compacted if each.every is None else epoch - last >= each.every


def check_exports(exports: Sequence[Export], declared: Mapping[str, Sequence[Table]]) -> None:
    """Refuse exports of tables that the pipeline does not have, and two with one destination."""
    for each in exports:
        tables = [table.name for table in declared.get(each.operator, ())]
        known = tables if each.operator in declared else sorted(declared)
        name = each.table if each.operator in declared else each.operator
        if name not in known:
            raise InvalidInputError(
                "an export of a table that the pipeline does not have",
                object_name=f"{each.operator}.{each.table}",
                found=", ".join(known) or "no table",
                action=did_you_mean(name, known),
            )
    places = [(each.dest, str(each.catalog)) for each in exports]
    twice = sorted({dest for dest, catalog in places if places.count((dest, catalog)) > 1})
    if twice:
        raise InvalidInputError("two exports have one destination", found=", ".join(twice))
