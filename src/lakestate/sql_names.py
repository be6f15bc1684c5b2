"""Names in standard SQL, as DuckDB, PostgreSQL and deltalake take them. Spark has quotes of its own."""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """A name as SQL takes it, whatever it is: `user` is a word of the language.

    >>> quote_identifier('12" disc')
    '"12"" disc"'
    """
    return '"' + name.replace('"', '""') + '"'
