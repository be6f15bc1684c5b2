"""Streams of chance that depend on a seed and on nothing else."""

from __future__ import annotations

from random import Random


def chance(seed: int, stream: str) -> Random:
    """One stream of a seed. Drawing from one stream changes no other.

    >>> chance(7, "work").random() == chance(7, "work").random()
    True
    >>> chance(7, "work").random() == chance(7, "turns").random()
    False
    """
    return Random(f"{seed}/{stream}")  # noqa: S311 - to be repeated, not to be secret
