"""Constants in Spark expressions that change with every epoch.

Spark writes a number into the code that it generates for a plan. With another number it has to generate,
compile and warm up all of that code again, which takes a quarter of an epoch of a million rows. A constant
that is an object is passed to the code instead: here the number is the only element of an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column


def epoch_constant(value: int, beside: Column) -> Column:
    """A number for comparisons with a bigint column; null where that column is null.

    The index is always 0, but Spark must not know it: it would put the number in place of the element.
    """
    return F.get(F.array(F.lit(value)), beside.bitwiseAND(F.lit(0)).cast("int"))
