"""Reading the state of a job as tables, without the code that declared it: nothing is written or cached.

It may import everything below `runtime/`; it stands beside `verification/`, and neither knows the other.
Other layers use `read_state` and `StateSource`.
"""

from lakestate.inspection.state import StateSource, read_state

__all__ = ["StateSource", "read_state"]
