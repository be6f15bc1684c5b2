"""Object stores: one small interface over local files, S3, Google Cloud Storage, Azure and memory.

For every layer that reads or writes objects: open a store with `open_store`. Nothing above this
layer knows which store it has. May import `protocol`, `config`, `errors` and `ambient`.

`local/` and `remote/` are the two kinds of stores, `multipart/` holds their multipart uploads, and
`cache/` is the run cache of a host. Client libraries are imported only when a URL needs them.
"""

from lakestate.storage.object_path import (
    PART_BYTES_MAX,
    PATH_BYTES_MAX,
    RESERVED,
    require_key,
    require_path,
    require_prefix,
)
from lakestate.storage.opening import open_store
from lakestate.storage.parallel import InlineExecutor, is_sequential, map_in_parallel, run_sequentially
from lakestate.storage.spans import BeyondEndError
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
    "PART_BYTES_MAX",
    "PATH_BYTES_MAX",
    "RESERVED",
    "AlreadyExists",
    "BeyondEndError",
    "ByteRange",
    "CreateOutcome",
    "Created",
    "DanglingUpload",
    "Data",
    "InlineExecutor",
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
    "is_sequential",
    "map_in_parallel",
    "open_store",
    "require_key",
    "require_path",
    "require_prefix",
    "run_sequentially",
]
