"""Objects as files below a directory: atomic, durable, safe between processes.

For `file://` URLs, which `open_store` turns into a `LocalStore`. The exports are for sinks that write
local files without a store, and for code that needs a folder on this machine. Standard library only,
apart from `storage` itself and `errors`.
"""

from lakestate.storage.local.errors import translate_read_errors, translate_write_errors
from lakestate.storage.local.file_tree import FileTree, TemporaryFile, fsync_folder
from lakestate.storage.local.object_files import object_file, root_of
from lakestate.storage.local.private_folder import private_temporary_folder

__all__ = [
    "FileTree",
    "TemporaryFile",
    "fsync_folder",
    "object_file",
    "private_temporary_folder",
    "root_of",
    "translate_read_errors",
    "translate_write_errors",
]
