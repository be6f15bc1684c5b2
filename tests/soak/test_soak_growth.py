"""A pipeline on local Spark over many small epochs: what it uses is printed, and must not grow.

`make soak` runs 1,000 epochs; EPOCHS=200 runs fewer.
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("pyspark")

from benchmarks.state.spark_growth import grown, print_curve

SAMPLES = 10


@pytest.mark.soak
def test_nothing_grows_over_many_small_epochs_on_spark(capsys: pytest.CaptureFixture[str]) -> None:
    epochs = int(os.environ.get("EPOCHS", "1000"))
    with capsys.disabled():
        print()
        samples = print_curve(epochs, epochs // SAMPLES)
    assert grown(samples) == {}
