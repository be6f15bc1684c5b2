"""How long a file is and what its bytes add up to, without following links."""

from __future__ import annotations

import zlib
from pathlib import Path

from lakestate.errors import NotFoundError
from lakestate.storage.local.errors import translate_read_errors

_CHUNK_BYTES = 1 << 20


def size_of(path: Path) -> int | None:
    """The length of a file; None if it is gone."""
    try:
        return path.lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def checksum_of(path: Path, size_bytes: int) -> int | None:
    """The CRC-32 of the first bytes of a file; None if it is gone or not that long."""
    checksum, missing = 0, size_bytes
    try:
        with translate_read_errors(str(path)), path.open("rb", buffering=0) as file:
            while missing and (data := file.read(min(_CHUNK_BYTES, missing))):
                checksum, missing = zlib.crc32(data, checksum), missing - len(data)
    except NotFoundError:
        return None
    return None if missing else checksum
