"""Retention: which epochs are kept, what they need, and what is deleted. Tags keep epochs under a name.

May import what `coordinator` may, and `claim`.
"""

from lakestate.coordinator.retention.known_references import KnownReferences
from lakestate.coordinator.retention.retain import references_of, retain_epochs, retain_known_epochs
from lakestate.coordinator.retention.tags import create_tag, delete_tag

__all__ = [
    "KnownReferences",
    "create_tag",
    "delete_tag",
    "references_of",
    "retain_epochs",
    "retain_known_epochs",
]
