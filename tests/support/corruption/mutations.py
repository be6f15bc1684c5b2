"""Seeded ways to damage an object. The result never equals the original."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FLIPS_MAX = 8


@dataclass(frozen=True)
class Original:
    """An object as it was, with what could be put in its place."""

    data: bytes
    others: Sequence[tuple[str, bytes]]
    """Objects of its kind, or of the nearest one, by path."""
    earlier: Sequence[bytes]
    """What was here before, or in the place of it in an older epoch."""


@dataclass(frozen=True)
class Damage:
    """What to do: new content, or None to delete; and what changes with it elsewhere."""

    data: bytes | None
    swapped_with: str | None = None


Mutation = Callable[[random.Random, Original], Damage | None]
"""None if there is nothing to do it with."""


def flip(rng: random.Random, original: Original) -> Damage | None:
    if not original.data:
        return None
    changed = bytearray(original.data)
    for _ in range(rng.randint(1, FLIPS_MAX)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return Damage(bytes(changed))


def truncate(rng: random.Random, original: Original) -> Damage | None:
    return Damage(original.data[: rng.randrange(1, len(original.data))]) if len(original.data) > 1 else None


def extend(rng: random.Random, original: Original) -> Damage:
    return Damage(original.data + rng.choice([b"\0", b"\n", b" ", rng.randbytes(rng.randint(1, 100))]))


def swap(rng: random.Random, original: Original) -> Damage | None:
    if not original.others:
        return None
    path, data = rng.choice(original.others)
    return Damage(data, swapped_with=path)


def copy_of_another(rng: random.Random, original: Original) -> Damage | None:
    return Damage(rng.choice(original.others)[1]) if original.others else None


def older(rng: random.Random, original: Original) -> Damage | None:
    return Damage(rng.choice(original.earlier)) if original.earlier else None


def delete(rng: random.Random, original: Original) -> Damage:
    return Damage(None)


def empty(rng: random.Random, original: Original) -> Damage:
    return Damage(b"")


def garbage(rng: random.Random, original: Original) -> Damage:
    # Of the same size now and then: then only the content tells.
    return Damage(rng.randbytes(rng.choice([len(original.data), rng.randint(1, 500)])))


MUTATIONS: dict[str, Mutation] = {
    "flip": flip,
    "truncate": truncate,
    "extend": extend,
    "swap": swap,
    "copy": copy_of_another,
    "older": older,
    "delete": delete,
    "empty": empty,
    "garbage": garbage,
}


def damage(rng: random.Random, original: Original) -> tuple[str, Damage]:
    """A random mutation that changes something."""
    while True:
        name = rng.choice(list(MUTATIONS))
        done = MUTATIONS[name](rng, original)
        if done is not None and done.data != original.data:
            return name, done
