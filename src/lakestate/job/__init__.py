"""The objects of one job in its store: read and verified, created once, never interpreted.

`JobObjects` is the access to them; `StateBackend` is what subtasks read and write state through. The
tables, the coordinator and the verification share both. May import `storage`, `codec` and `protocol`.
"""

from lakestate.job.objects import JobObjects, Versioned
from lakestate.job.published_epochs import open_epoch, open_newest_epoch
from lakestate.job.state_backend import StateBackend

__all__ = ["JobObjects", "StateBackend", "Versioned", "open_epoch", "open_newest_epoch"]
