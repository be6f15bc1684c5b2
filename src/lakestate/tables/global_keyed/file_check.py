"""One data file of entries against its reference: that it decodes, and holds as many entries as is said."""

from __future__ import annotations

import msgspec

from lakestate.codec.untrusted import UNDECODABLE
from lakestate.errors import CorruptionError
from lakestate.protocol.metadata import TableConfig
from lakestate.protocol.values import FileRef
from lakestate.tables.context import TableContext
from lakestate.tables.data_files import expect
from lakestate.tables.global_keyed.files import read_entries


def check_entry_file(file: FileRef, config: TableConfig, context: TableContext) -> None:
    """Raise if a file is not what its reference and its table say."""
    shown = context.objects.url_of(file.path)
    for stored in read_entries([file], config, context):
        removed = sum(value is None for value in stored.values)
        found = (len(stored.keys), removed, stored.state_version)
        expected = (file.row_count, file.removed_count, file.state_version)
        names = ("entries", "removed entries", "state version")
        for name, one, other in zip(names, found, expected, strict=True):
            expect(one, other, f"a data file has other {name} than its reference says", shown)
        for data in (*stored.keys, *(value for value in stored.values if value is not None)):
            _check_message(data, shown)


def _check_message(data: bytes, shown: str) -> None:
    try:
        msgspec.msgpack.decode(data)
    except msgspec.ValidationError:
        # It is MessagePack, of a value that only its declared type can make a Python object of.
        return
    except UNDECODABLE as cause:
        raise CorruptionError(
            "an entry cannot be decoded", object_name=shown, found=str(cause)[:200]
        ) from cause
