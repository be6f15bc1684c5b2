"""Names such as totals@12 in SQL: a table of another epoch. DuckDB's own lexer says what is a name."""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUOTED_AT_EPOCH = re.compile(r'"([^"@]+)@([^"]+)"')
_NAME = re.compile(r'"?([\w.$-]+)"?')
_EPOCH = re.compile(r"\w+(?:-\w+)*", re.ASCII)
"""A number, a tag, a date or newest. A dot ends it, so that a column may follow; other names need quotes."""

_BEFORE_A_TABLE = {"from", "join", "."}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    first: int
    last: int
    """Behind the text, and before the space that follows."""


def quote_epochs(sql: str) -> tuple[str, list[str]]:
    """The query with quotes around each name@epoch that lacks them, and the epochs that it names.

    Only a name that is directly followed by @ and an epoch counts, which nothing else in DuckDB's SQL looks
    like. What is in strings and comments stays as it is.

    >>> quote_epochs("SELECT 'a@1', b.n FROM per_user.totals@12 a JOIN \\"totals@sale\\" b ON @a.n > 1")[0]
    'SELECT \\'a@1\\', b.n FROM per_user."totals@12" a JOIN "totals@sale" b ON @a.n > 1'
    >>> quote_epochs("FROM totals@before-sale, totals@newest -- or totals@2")[1]
    ['before-sale', 'newest']
    """
    tokens = _tokenize(sql)
    named: list[str] = []
    written, done = "", 0
    for index, token in enumerate(tokens):
        if token.first < done:
            continue
        quoted = _QUOTED_AT_EPOCH.fullmatch(token.text)
        if token.kind == "identifier" and quoted:
            named.append(quoted[2])
        elif _is_name(tokens, index) and (epoch := _epoch_after(sql, tokens, index)):
            name = _NAME.fullmatch(token.text)
            assert name is not None
            named.append(epoch)
            written += f'{sql[done : token.first]}"{name[1]}@{epoch}"'
            done = token.last + 1 + len(epoch)
    return written + sql[done:], list(dict.fromkeys(named))


def _is_name(tokens: list[_Token], index: int) -> bool:
    """Whether a token can be the name of a table. Words of SQL are names only where a table must stand."""
    token = tokens[index]
    if not _NAME.fullmatch(token.text):
        return False
    if token.kind == "keyword":
        return index > 0 and tokens[index - 1].text.lower() in _BEFORE_A_TABLE
    return token.kind == "identifier"


def _epoch_after(sql: str, tokens: list[_Token], index: int) -> str | None:
    """The epoch that directly follows a name and an @."""
    end = tokens[index].last
    at = tokens[index + 1] if index + 1 < len(tokens) else None
    if at is None or (at.kind, at.text, at.first) != ("operator", "@", end):
        return None
    found = _EPOCH.match(sql, end + 1)
    return None if found is None else found[0]


def _tokenize(sql: str) -> list[_Token]:
    import duckdb

    data = sql.encode()
    try:
        starts = [*duckdb.tokenize(sql)]
    except duckdb.Error:
        # Whoever runs the query is told what is wrong with it.
        return []
    tokens: list[_Token] = []
    ends = [*(first for first, _ in starts), len(data)][1:]
    position = len(data[: starts[0][0]].decode()) if starts else 0
    for (first, kind), end in zip(starts, ends, strict=True):
        text = data[first:end].decode(errors="replace")
        tokens.append(_Token(kind.name, text.rstrip(), position, position + len(text.rstrip())))
        position += len(text)
    return tokens
