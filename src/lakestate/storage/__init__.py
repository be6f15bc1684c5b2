"""Object stores: one small surface over local files, S3, Google, Azure and memory.

`open_store` is the way in. Nothing above this layer knows which store it has.
"""

from lakestate.storage.opening import open_store
from lakestate.storage.store import (
    AlreadyExists,
    ByteRange,
    Created,
    CreateOutcome,
    DanglingUpload,
    Data,
    MultipartUploads,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    SwapConflict,
    SwapOutcome,
    Swapped,
    UploadedPart,
    UploadId,
    Version,
)

__all__ = [
    "AlreadyExists",
    "ByteRange",
    "CreateOutcome",
    "Created",
    "DanglingUpload",
    "Data",
    "MultipartUploads",
    "ObjectInfo",
    "ObjectStore",
    "StoredObject",
    "SwapConflict",
    "SwapOutcome",
    "Swapped",
    "UploadId",
    "UploadedPart",
    "Version",
    "open_store",
]
