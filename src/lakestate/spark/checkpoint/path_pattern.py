"""`PathPattern`: the path of a file source, which may be a pattern, as the set of files below it. Pure.

Spark matches such patterns as Hadoop does: `*` and `?` within one folder, `[a-c]`, `[^a]`, `{a,b}`, and a
backslash before a character that means itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_SPECIAL = re.compile(r"[*?\[{\\]")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """Files below a path, in the file system that a URL names.

    >>> pattern = PathPattern("file:/data", "in/*")
    >>> pattern.contains("file:///data/in/2026/a%20file.json"), pattern.contains("file:///etc/passwd")
    (True, False)
    """

    base: str
    """Without special characters, with scheme and authority, not encoded."""
    rest: str = ""
    """The part of the path that may have special characters."""

    def __str__(self) -> str:
        return f"{self.base.rstrip('/')}/{self.rest}" if self.rest else self.base

    def contains(self, url: str) -> bool:
        """Whether an encoded URL is one of the files."""
        scheme, authority, path = _split(url)
        parts = unquote(path).split("/")
        if {".", "..", ""} & set(parts[1:]):
            return False
        if (scheme, authority) != _split(self.base)[:2]:
            return False
        expected = re.escape(_split(self.base)[2].rstrip("/"))
        expected += f"/{_expression(self.rest)}" if self.rest else ""
        return re.fullmatch(f"{expected}(/.*)?", unquote(path), re.DOTALL) is not None


def split_pattern(path: str) -> tuple[str, str]:
    """A path in two: the folders before the first one with a special character, and the rest.

    >>> split_pattern("/data/in/*/x"), split_pattern("/data/in/"), split_pattern("*.json")
    (('/data/in', '*/x'), ('/data/in', ''), ('', '*.json'))
    """
    path = path.rstrip("/") or "/"
    special = _SPECIAL.search(path)
    if special is None:
        return path, ""
    folder, _, _ = path[: special.start()].rpartition("/")
    return folder, path[len(folder) :].lstrip("/")


def _split(url: str) -> tuple[str, str, str]:
    """Scheme, authority and path. A path is not a query, whatever characters it has."""
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        return "", "", url
    if not rest.startswith("//"):
        return scheme.lower(), "", rest
    authority, slash, path = rest[2:].partition("/")
    return scheme.lower(), urlsplit(f"//{authority}").netloc.lower(), slash + path


def _expression(pattern: str) -> str:
    """The regular expression of a pattern."""
    found, place, depth = "", 0, 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == "\\" and place < len(pattern):
            found, place = found + re.escape(pattern[place]), place + 1
        elif character == "*":
            found += "[^/]*"
        elif character == "?":
            found += "[^/]"
        elif character == "[" and (end := pattern.find("]", place + 1)) > 0:
            found, place = found + _one_of(pattern[place:end]), end + 1
        elif character == "{":
            found, depth = f"{found}(?:", depth + 1
        elif character == "}" and depth:
            found, depth = f"{found})", depth - 1
        else:
            found += "|" if character == "," and depth else re.escape(character)
    return found + ")" * depth


def _one_of(characters: str) -> str:
    negated = "^" if characters[:1] in ("^", "!") else ""
    inside = characters[len(negated) :].replace("\\", "").replace("[", r"\[").replace("^", r"\^")
    return f"(?!/)[{negated}{inside}]"
