"""Expressions that several queries share."""

from collections.abc import Callable

import lakestate as ls

DAY = "date_format(ts, 'yyyy-MM-dd') AS day"

RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
"""Ranges of prices: below 100.00, below 10,000.00, and above."""


def ranked(what: str, aggregate: Callable[..., ls.Aggregate]) -> dict[str, ls.Aggregate]:
    """An aggregate over all bids, and over those of each rank: `total_bids`, `rank1_bids`, and so on."""
    by_rank = {f"{rank}_{what}": aggregate(where=prices) for rank, prices in RANKS.items()}
    return {f"total_{what}": aggregate()} | by_rank
