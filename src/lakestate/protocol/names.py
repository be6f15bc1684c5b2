"""The rules for names that users choose: jobs, operators, tables, tags. Pure.

A name becomes part of an object path on every store, so it is checked here before anything is
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from lakestate.errors import InvalidInputError

NAME_CHARS_MAX = 128

# No slash and no leading dot, so that a name cannot leave its folder; no character that a store, a
# URL or a shell would change.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

# The folder of operator `a-0.metadata` would have the same name as the metadata object of operator
# `a`, subtask 0, and a file system cannot hold both.
_TAKEN_ENDINGS = {"operator": ".metadata"}


def require_name(kind: str, name: str) -> str:
    """The name itself, if it is valid for this kind of thing.

    >>> require_name("operator", "totals-v2")
    'totals-v2'
    >>> require_name("job", "a/../b")
    Traceback (most recent call last):
    lakestate.errors.InvalidInputError: not a valid job name: 'a/../b'; expected letters, ...
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX or ".." in name:
        raise InvalidInputError(
            f"not a valid {kind} name",
            object_name=_abbreviation(name),
            expected=f"letters, digits, '_', '-' and single '.', at most {NAME_CHARS_MAX} of them, "
            "beginning with a letter, a digit or '_'",
            action=f"choose another {kind} name",
        )
    ending = _TAKEN_ENDINGS.get(kind)
    if ending is not None and name.endswith(ending):
        raise InvalidInputError(
            f"not a valid {kind} name",
            object_name=_abbreviation(name),
            expected=f"an ending other than {ending!r}, which metadata objects have",
            action=f"choose another {kind} name",
        )
    return name


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """The known names that look most like one that is not known, best first; at most three.

    >>> nearest_names("cuonts", ["counts", "windows"])
    ['counts']
    """
    names = sorted(known)
    same = [each for each in names if each.lower() == name.lower()]
    return same or get_close_matches(name, names, n=3)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A question with the known names that look most like one that is not known; None if none does.

    >>> did_you_mean("User", ["user", "amount"])
    'did you mean user?'
    """
    nearest = nearest_names(name, known)
    return f"did you mean {' or '.join(nearest)}?" if nearest else None


def _abbreviation(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:77]}… ({len(text)} characters)"
