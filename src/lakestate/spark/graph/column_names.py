"""Names of columns as users give them: what they may refer to, and how they are written in SQL.

Spark resolves a name that no column has to a function without parameters if there is one: a key `user`
would be the user who runs Spark. Here a name is a column of the stream, and a function has parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from lakestate.errors import InvalidInputError
from lakestate.protocol.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FUNCTIONS_WITHOUT_PARENTHESES = (
    "current_date",
    "current_time",
    "current_timestamp",
    "current_user",
    "localtime",
    "session_user",
    "user",
)
"""What Spark takes for a call if no column has the name."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`")


def quote_name(name: str) -> str:
    """A column's name in SQL, whatever characters it has.

    >>> print(quote_name("order.id"), quote_name("a`b"))
    `order.id` `a``b`
    """
    return "`" + name.replace("`", "``") + "`"


def is_name(text: str) -> bool:
    """Whether an expression is nothing but a name, in backticks or not.

    >>> is_name("user"), is_name("`order.id`"), is_name("user as u"), is_name("current_user()")
    (True, True, False, False)
    """
    return _NAME.fullmatch(text.strip()) is not None


def column_named(text: str, columns: Collection[str]) -> str | None:
    """The column with this name, which may be written in backticks; None if there is none.

    >>> column_named("`order.id`", ["order.id"]), column_named("order.id", ["order.id"])
    ('order.id', 'order.id')
    """
    if text in columns:
        return text
    inner = text.strip()[1:-1].replace("``", "`")
    return inner if inner in columns and quote_name(inner) == text.strip() else None


def unknown_column_error(
    what: str, name: str, columns: Collection[str], shown: str | None = None
) -> InvalidInputError:
    """The error for a name that no column of the stream has. `shown` is the expression it stands in.

    >>> print(unknown_column_error("key_by", "uzer", ["user", "amount"]))
    key_by names a column that the rows do not have: uzer; found user, amount; did you mean user? ...
    """
    function = name.strip("`").lower()
    actions = [did_you_mean(name.strip("`"), columns) or "name one of those"]
    if function in FUNCTIONS_WITHOUT_PARENTHESES:
        actions.append(f"Spark's function is written {function}()")
    return InvalidInputError(
        f"{what} names a column that the rows do not have",
        object_name=name if shown in (None, name) else f"{name} in {shown}",
        found=", ".join(columns) or "no column",
        action="; ".join(actions),
    )


def check_names_are_columns(what: str, shown: str, expression: Column, frame: DataFrame) -> None:
    """Refuse an expression in which Spark takes a name for a function, because no column has it."""
    known = {name.lower() for name in frame.columns}
    names = [name for name in FUNCTIONS_WITHOUT_PARENTHESES if name not in known]
    # Beside two columns of that name, a reference to it is ambiguous, and a call is still a call.
    doubled = frame.select("*", *[F.lit(None).alias(name) for name in names for _ in range(2)])
    name = _ambiguous_name(doubled, expression)
    if name is not None:
        raise unknown_column_error(what, name, frame.columns, shown)


def _ambiguous_name(frame: DataFrame, expression: Column) -> str | None:
    """The name of which a frame has several columns, if an expression refers to one."""
    try:
        frame.select(expression)
    except AnalysisException as cause:
        if cause.getCondition() == "AMBIGUOUS_REFERENCE":
            return (cause.getMessageParameters() or {})["name"].strip("`")
    # Anything else is reported when the expression is used.
    return None
