"""What a driver knows of the engine that reads the sources: its files, its batches, and its silence.

May import `coordinator` and everything below. The engine itself is in `spark`.
"""

from lakestate.coordinator.engine.batches import (
    BatchNumbers,
    EngineFiles,
    engine_files_without_batch,
    has_offsets,
    require_position,
)
from lakestate.coordinator.engine.logs import join_pieces, read_logs, store_logs

__all__ = [
    "BatchNumbers",
    "EngineFiles",
    "engine_files_without_batch",
    "has_offsets",
    "join_pieces",
    "read_logs",
    "require_position",
    "store_logs",
]
