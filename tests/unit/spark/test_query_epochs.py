"""The session in which epochs run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.spark.stand_in import Conf

from lakestate.coordinator.epoch_plan import Ending
from lakestate.spark import query_epochs
from lakestate.spark.execution.arrow_batches import RECORDS
from lakestate.spark.session import SESSION_SETTINGS


class Work:
    def raise_if_cancelled(self) -> None:
        return


class Epochs(query_epochs.QueryEpochs):
    """Notes the limit of rows that holds while an epoch runs."""

    def __init__(self, session: Any) -> None:
        self._pipeline: Any = SimpleNamespace(schemas=SimpleNamespace(session=session), parallelism=2)
        self._driver: Any = SimpleNamespace(next_epoch=lambda: 1)
        self._work: Any = Work()
        self._is_prepared = False
        self._prepared = None
        self.runner: Any = SimpleNamespace(arrow_batches=SimpleNamespace(begin=lambda session: None))
        self.limits: list[str | None] = []

    def _run(self, batch: Any, epoch: Any, ending: Ending) -> None:
        self.limits.append(self._pipeline.schemas.session.conf.get(RECORDS))


class Session:
    def __init__(self) -> None:
        self.conf = Conf({"spark.sql.shuffle.partitions": "2"})


def test_an_epoch_without_rows_keeps_the_limits_of_the_querys_session() -> None:
    session: Any = Session()
    epochs = Epochs(Session())
    epochs._prepare(session)
    session.conf.set(RECORDS, "4096")
    epochs.run_without_batch()
    assert epochs.limits == ["4096"]
    assert session.conf[RECORDS] == "4096"


def test_the_users_session_has_our_settings_during_an_epoch_and_its_own_afterwards() -> None:
    session: Any = Session()
    session.conf.set(RECORDS, "of the user")
    epochs = Epochs(session)
    epochs.run_without_batch()
    assert epochs.limits == [SESSION_SETTINGS[RECORDS]]
    assert session.conf[RECORDS] == "of the user"
