"""Which versions of Spark a pipeline runs on, and what is said at the start on others."""

from __future__ import annotations

import re
import warnings

from lakestate.errors import InvalidInputError

SUPPORTED = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""`make matrix` runs pipelines on each of them."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def check_version(found: str) -> None:
    """Refuse a version that is known not to work, and warn of one that is newer than all tested ones.

    >>> check_version("4.0.1-amzn-0")
    >>> check_version("3.4.4")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: a pipeline does not run on this version of Spark; found Spark 3.4.4;
    expected Spark 3.5, 4.0, 4.1, 4.2 or 4.3; ...
    """
    numbers = version_numbers(found)
    first, last = version_numbers(SUPPORTED[0]), version_numbers(SUPPORTED[-1])
    if not first <= numbers < (last[0] + 1, 0):
        raise InvalidInputError(
            "a pipeline does not run on this version of Spark",
            found=f"Spark {found}",
            expected=f"Spark {_SHOWN}",
            action=f'run it on one of these; pip install "pyspark=={SUPPORTED[-1]}.*" brings the newest',
        )
    if numbers > last:
        warnings.warn(
            f"Spark {found} is newer than every version that Lakestate is tested with: {_SHOWN}",
            stacklevel=3,
        )


def version_numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version, which vendors extend in their own ways.

    >>> version_numbers("3.5.6-amzn-1")
    (3, 5)
    """
    numbers = _NUMBERS.match(version)
    if numbers is None:
        raise InvalidInputError("not a version of Spark", found=version, expected="such as 4.3.0")
    return int(numbers[1]), int(numbers[2])


def needs_version_error(what: str, first: str, found: str, action: str) -> InvalidInputError:
    """The error for what an older version of Spark does not have.

    >>> print(needs_version_error('format("lakestate")', "4.0", "3.5.9", "use a Pipeline"))
    format("lakestate") needs a newer Spark; found Spark 3.5.9; expected Spark 4.0 or later; use a Pipeline
    [invalid_input]
    """
    return InvalidInputError(
        f"{what} needs a newer Spark",
        found=f"Spark {found}",
        expected=f"Spark {first} or later",
        action=action,
    )


_SHOWN = f"{', '.join(SUPPORTED[:-1])} or {SUPPORTED[-1]}"
