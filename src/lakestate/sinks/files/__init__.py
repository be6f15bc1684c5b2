"""Files that stay open across epochs: written, uploaded, checkpointed and made visible, for any format.

May import `partitioning` and `formats`, but no format by name: those are found through the registry.
"""

from lakestate.sinks.files.committer import FileCommitter
from lakestate.sinks.files.local.output import LocalOutput
from lakestate.sinks.files.names import sink_fingerprint
from lakestate.sinks.files.open_files import OpenFile, OpenFiles
from lakestate.sinks.files.pre_commit import FilePreCommit, PreCommit
from lakestate.sinks.files.settings import FileSinkSettings
from lakestate.sinks.files.sink import FileSink, file_sink_tables

__all__ = [
    "FileCommitter",
    "FilePreCommit",
    "FileSink",
    "FileSinkSettings",
    "LocalOutput",
    "OpenFile",
    "OpenFiles",
    "PreCommit",
    "file_sink_tables",
    "sink_fingerprint",
]
