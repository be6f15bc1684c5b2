"""Commits of published epochs, interrupted and repeated, over real stores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.jobs.small_job import SmallJob, outputs, started_job
from tests.support.storage.store_faults import flip_bit

from lakestate.coordinator.claim import claim_generation
from lakestate.coordinator.commit import commit_epoch
from lakestate.coordinator.recover import recover_job
from lakestate.errors import FencedError, InvalidInputError
from lakestate.protocol.publication import Published
from lakestate.protocol.values import Epoch
from lakestate.storage import ObjectStore
from lakestate.testing.stepping import SteppingAmbient


class TestCommitting:
    def test_an_epoch_without_its_marker_is_committed_by_the_next_driver(self, store: ObjectStore) -> None:
        first = started_job(store, "a")
        manifest = first.write(Epoch(1))
        assert isinstance(first.publish(manifest), Published)
        assert outputs(store) == {}
        second = SmallJob(store, "b")
        found = second.start()
        assert found is not None
        assert (found.manifest, found.permit is not None) == (manifest, True)
        assert outputs(store) == {1: manifest.sinks[0].data.decode()}
        again = recover_job(second.job, second.claim)
        assert again is not None
        assert again.permit is None

    def test_a_damaged_marker_means_commit_again(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(1)
        flip_bit(store, "job/checkpoints/1/committed.json")
        found = recover_job(driver.job, driver.claim)
        assert found is not None
        assert found.permit is not None

    def test_a_driver_that_was_fenced_after_publishing_leaves_the_commit_to_the_other(
        self, store: ObjectStore
    ) -> None:
        old = started_job(store, "old")
        manifest = old.write(Epoch(1))
        outcome = old.publish(manifest)
        assert isinstance(outcome, Published)
        claim_generation(old.job, SteppingAmbient("new"))
        with pytest.raises(FencedError):
            old.commit(outcome.permit, manifest)
        assert outputs(store) == {}

    def test_output_of_a_sink_that_the_job_no_longer_has_is_not_dropped(self, store: ObjectStore) -> None:
        driver = started_job(store)
        manifest = driver.write(Epoch(1))
        outcome = driver.publish(manifest)
        assert isinstance(outcome, Published)
        with pytest.raises(
            InvalidInputError, match="found out; expected none; start once with them as they were"
        ):
            commit_epoch(driver.job, driver.claim, outcome.permit, manifest, {})
        assert driver.job.read_committed(Epoch(1)) is None

    def test_a_permit_is_for_its_own_manifest_only(self, store: ObjectStore) -> None:
        driver = started_job(store)
        manifest = driver.write(Epoch(1))
        outcome = driver.publish(manifest)
        assert isinstance(outcome, Published)
        with pytest.raises(AssertionError):
            driver.commit(outcome.permit, replace(manifest, epoch=Epoch(2)))
