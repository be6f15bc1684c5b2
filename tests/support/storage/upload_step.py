"""Run as a program: does one step of a multipart upload and ends.

Standard input is a pickled (configuration, upload or None, step) in hex; standard output the
pickled upload in hex.
"""

from __future__ import annotations

import pickle
import sys

from lakestate.storage import ObjectStore, UploadId, open_store

PATH = "folder/object"


def part(store: ObjectStore, number: int) -> bytes:
    return bytes([64 + number]) * (store.uploads.part_bytes_min + number)


def do(store: ObjectStore, upload: UploadId | None, step: str) -> UploadId:
    if upload is None:
        upload = store.uploads.start(PATH)
    if step == "start":
        store.uploads.put_part(upload, 1, part(store, 1))
    elif step == "continue":
        store.uploads.put_part(upload, 2, part(store, 2))
    else:
        store.uploads.complete(upload, store.uploads.list_parts(upload))
    return upload


def main() -> None:
    config, upload, step = pickle.loads(bytes.fromhex(sys.stdin.read()))
    print(pickle.dumps(do(open_store(config), upload, step)).hex())


if __name__ == "__main__":
    main()
