"""Run as a program: forks children that put objects for ever, to be killed at any moment.

Reads from standard input the pickled configuration in hex, then one line per child. Forking keeps
a child cheap; nothing has used the store before, so that obstore starts inside the child.
"""

from __future__ import annotations

import os
import pickle
import sys
from itertools import cycle

from lakestate.storage import open_store

PATH = "folder/object"
CONTENTS = (b"A" * (3 << 20), b"B" * (5 << 20))


def put_forever(config: object) -> None:
    store = open_store(config)  # type: ignore[arg-type]
    for count, data in enumerate(cycle(CONTENTS)):
        if count == 0:
            os.write(1, f"{os.getpid()}\n".encode())
        store.put(PATH, data)


def main() -> None:
    config = pickle.loads(bytes.fromhex(sys.stdin.readline()))
    while sys.stdin.readline():
        child = os.fork()
        if child == 0:
            put_forever(config)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
