"""The average of what drivers measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.shop_job import PARTS_MS, make_shop

import lakestate as ls
from lakestate.inspection.profile import average_profile
from lakestate.protocol.metadata import Manifest, PartDuration
from lakestate.protocol.values import Epoch, Generation


def _manifest(**parts_us: int) -> Manifest:
    parts = tuple(PartDuration(part, us) for part, us in parts_us.items())
    return Manifest("job", Epoch(2), Generation(1), Epoch(1), 0, 0, Epoch(1), parent_parts=parts)


def test_the_average_is_of_the_epochs_that_were_measured() -> None:
    found = average_profile([_manifest(scan=3000, lookup=1000), _manifest(), _manifest(scan=1000)])
    assert found.epochs == 2
    assert [(part.part, part.milliseconds, part.share) for part in found.parts] == [
        ("scan", 2.0, 0.8),
        ("lookup", 0.5, 0.2),
    ]
    assert found.milliseconds == 2.5


def test_parts_come_in_the_order_of_an_epoch_and_unknown_ones_last() -> None:
    found = average_profile([_manifest(commit=1, later=1, trigger=1)])
    assert [part.part for part in found.parts] == ["trigger", "commit", "later"]


def test_without_a_measured_epoch_there_is_nothing() -> None:
    assert average_profile([_manifest()]).parts == ()


def test_a_job_shows_its_newest_epochs(tmp_path: Path) -> None:
    make_shop(tmp_path, "memory://profile-out")
    found = ls.open(tmp_path).job("shop").profile()
    assert found.epochs == 3
    assert {part.part: part.milliseconds for part in found.parts} == PARTS_MS
    assert "200 ms, the average of 3 epochs" in repr(found)
    assert "<td>lookup</td>" in found._repr_html_()
    shares = found.parts.to_arrow()["share"].to_pylist()
    assert shares == pytest.approx([ms / 200 for ms in PARTS_MS.values()])
