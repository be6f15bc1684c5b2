"""Streams of chance that depend on a seed and on nothing else."""

from __future__ import annotations

from random import Random


def random_stream(seed: int, stream: str) -> Random:
    """One stream of a seed. Drawing from one stream changes no other.

    >>> random_stream(7, "work").random() == random_stream(7, "work").random()
    True
    >>> random_stream(7, "work").random() == random_stream(7, "turns").random()
    False
    """
    return Random(f"{seed}/{stream}")  # noqa: S311 - to be repeated, not to be secret
