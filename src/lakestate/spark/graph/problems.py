"""What becomes of a problem that a check finds: a start raises the first, a dry run collects them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeAlias

from lakestate.errors import LakestateError

OnProblem: TypeAlias = Callable[[LakestateError], object]


def raise_problem(problem: LakestateError) -> NoReturn:
    """End with the first problem."""
    raise problem


@contextmanager
def report_problems(on_problem: OnProblem) -> Iterator[None]:
    """Pass on the problem that a check raises, and continue after the block.

    >>> found: list[LakestateError] = []
    >>> for number in range(2):
    ...     with report_problems(found.append):
    ...         raise LakestateError(f"problem {number}")
    >>> print(*found)
    problem 0 [error] problem 1 [error]
    """
    try:
        yield
    except LakestateError as problem:
        on_problem(problem)
