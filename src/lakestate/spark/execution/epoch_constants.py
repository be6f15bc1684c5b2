"""Constants in Spark expressions that change with every epoch.

Spark writes a number into the code that it generates for a plan. With another number it has to generate,
compile and warm up all of that code again, which takes a quarter of an epoch of a million rows. A constant
that is an object is passed to the code instead: here the number is the only element of an array.
"""

from __future__ import annotations


def epoch_constant_sql(value: int, beside: str) -> str:
    """A number for comparisons with a bigint expression; null where that expression is null.

    The index is always 0, but Spark must not know it: it would put the number in place of the element.

    >>> epoch_constant_sql(7, "unix_micros(ts)")
    'get(array(7L), CAST((unix_micros(ts)) & 0L AS INT))'
    """
    return f"get(array({value}L), CAST(({beside}) & 0L AS INT))"
