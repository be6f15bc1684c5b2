"""Multipart uploads: files that grow part by part, and can be finished by another process.

For the stores of `local/` and `remote/`, which import `local`, `s3` or `part_objects` themselves. May
import `storage` and `protocol`. The exports are what every kind of upload agrees on, for sinks and
for the simulated store.
"""

from lakestate.storage.multipart.part_objects import PartObjectUploads
from lakestate.storage.multipart.parts import (
    PART_NUMBER_MAX,
    changed_part_error,
    check_parts,
    missing_upload_error,
    require_completed_object,
    require_part_number,
)

__all__ = [
    "PART_NUMBER_MAX",
    "PartObjectUploads",
    "changed_part_error",
    "check_parts",
    "missing_upload_error",
    "require_completed_object",
    "require_part_number",
]
