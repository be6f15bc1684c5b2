"""Recovery over real stores: the last published epoch is found, or what is broken is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.jobs.small_job import SmallJob, restored, started_job
from tests.support.storage.store_faults import flip_bit

from lakestate.coordinator.recover import recover_job
from lakestate.coordinator.retention.retain import retain_epochs
from lakestate.errors import CorruptionError, FencedError, IncompatibleStateError
from lakestate.protocol.metadata import FormatVersion
from lakestate.protocol.retention import RetentionPolicy
from lakestate.protocol.values import Epoch
from lakestate.storage import ObjectStore

KEEP_ONE = RetentionPolicy(1)


class TestRecovering:
    def test_a_job_that_never_published_starts_fresh(self, store: ObjectStore) -> None:
        assert SmallJob(store, "a").start() is None

    @pytest.mark.parametrize(
        ("path", "how"),
        [
            ("job/epochs/0000000003.json", "damaged"),
            ("job/checkpoints/3/manifest.pb", "damaged"),
            ("job/checkpoints/3/manifest.pb", "deleted"),
        ],
    )
    def test_a_broken_newest_epoch_is_named_and_the_newest_good_one_offered(
        self, store: ObjectStore, path: str, how: str
    ) -> None:
        driver = started_job(store)
        driver.run_to(3)
        if how == "damaged":
            flip_bit(store, path)
        else:
            store.delete_many([path])
        with pytest.raises(CorruptionError) as caught:
            recover_job(driver.job, driver.claim)
        assert caught.value.object_name == f"{store.url}/{path}"
        assert "epoch 3 is published but cannot be restored" in str(caught.value)
        assert "continue from epoch 2, the newest intact one" in str(caught.value)

    def test_records_that_were_all_deleted_do_not_look_like_a_fresh_job(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(3)
        retain_epochs(driver.job, driver.claim, KEEP_ONE, driver.ambient)
        store.delete_many(["job/epochs/0000000003.json"])
        with pytest.raises(CorruptionError, match=r"epoch 3 is published but .*job/epochs/0000000003\.json"):
            recover_job(driver.job, driver.claim)

    def test_an_overtaken_driver_is_fenced_even_if_what_it_sees_is_broken(self, store: ObjectStore) -> None:
        old = started_job(store, "old")
        old.run_to(1)
        started_job(store, "new")
        flip_bit(store, "job/checkpoints/1/manifest.pb")
        with pytest.raises(FencedError):
            recover_job(old.job, old.claim)

    def test_a_manifest_of_a_newer_format_asks_for_a_newer_lakestate(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.publish(replace(driver.write(Epoch(1)), format=FormatVersion(2, 0)))
        with pytest.raises(IncompatibleStateError, match="use a newer version of Lakestate"):
            recover_job(driver.job, driver.claim)

    @pytest.mark.parametrize("kind", ["metadata", "parquet"])
    def test_every_truncation_and_bit_flip_below_the_manifest_is_named(
        self, memory: ObjectStore, kind: str
    ) -> None:
        driver = started_job(memory)
        driver.run_to(1)
        path = next(info.path for info in memory.list("job/checkpoints/") if info.path.endswith(kind))
        whole = memory.get(path).data
        for damaged in (whole[:-1], b"", whole + b"x", bytes([whole[0] ^ 1]) + whole[1:]):
            memory.put(path, damaged)
            with pytest.raises(CorruptionError, match=path):
                restored(driver.job, Epoch(1))
        memory.delete_many([path])
        with pytest.raises(CorruptionError, match=f"a referenced object is missing: .*{path}"):
            restored(driver.job, Epoch(1))

    def test_a_record_in_the_place_of_another_epoch_is_found(self, store: ObjectStore) -> None:
        driver = started_job(store)
        driver.run_to(2)
        store.put("job/epochs/0000000002.json", store.get("job/epochs/0000000001.json").data)
        with pytest.raises(CorruptionError, match="found epoch 1; expected epoch 2"):
            driver.job.read_epoch(Epoch(2))
