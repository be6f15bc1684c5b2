"""What changed in a state table between epochs, and what one key had in each of them.

May import what `inspection` may. Other layers use the names below.
"""

from lakestate.inspection.changes.history import KeyVersion, TableHistory
from lakestate.inspection.changes.state_changes import EXPIRED, StateChanges

__all__ = ["EXPIRED", "KeyVersion", "StateChanges", "TableHistory"]
