"""`NoTableChecks`: for histories without a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakestate.protocol.metadata import Manifest
from lakestate.protocol.values import Epoch


class NoTableChecks:
    """For histories without a table."""

    def on_publish(self, manifest: Manifest) -> None:
        """Do nothing."""

    def on_marker(self, epoch: Epoch) -> None:
        """Do nothing."""

    def check_paused(self, epoch: Epoch) -> None:
        """Do nothing."""

    def check_final(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""
