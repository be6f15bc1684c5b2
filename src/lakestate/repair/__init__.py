"""Repairs that a person decides on: rebuild a damaged fence, and continue from an earlier epoch.

`lakestate.repair` is public. May import `runtime`, `sinks`, `coordinator` and everything below; none of it
knows Spark. Nothing here happens by itself, nothing is deleted, and every repair can be repeated.
"""

from lakestate.repair.fence import RebuiltFence, rebuild_fence

__all__ = ["RebuiltFence", "rebuild_fence"]
