"""Run as a program: forks children that put objects forever, to be killed at any moment.

Reads from standard input the pickled configuration in hex, then one line per child; a child writes
its process id and then a line after every put. Forking keeps a child cheap; nothing has used the
store before, so that obstore starts inside the child.
"""

from __future__ import annotations

import os
import pickle
import sys
from itertools import cycle

from lakestate.storage import open_store

PATH = "folder/object"
DONE = b"done\n"
CONTENTS = (b"A" * (2 << 20), b"B" * (3 << 20))


def put_forever(config: object) -> None:
    store = open_store(config)  # type: ignore[arg-type]
    os.write(1, f"{os.getpid()}\n".encode())
    for data in cycle(CONTENTS):
        store.put(PATH, data)
        os.write(1, DONE)


def main() -> None:
    config = pickle.loads(bytes.fromhex(sys.stdin.readline()))
    while sys.stdin.readline():
        child = os.fork()
        if child == 0:
            put_forever(config)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
