"""Random streams that depend on nothing but a seed."""

from __future__ import annotations

from random import Random


def random_stream(seed: int, stream: str) -> Random:
    """One random stream of a seed. Drawing from one stream does not affect the others.

    >>> random_stream(7, "work").random() == random_stream(7, "work").random()
    True
    >>> random_stream(7, "work").random() == random_stream(7, "turns").random()
    False
    """
    return Random(f"{seed}/{stream}")  # noqa: S311 - to be repeated, not to be secret
