"""What came of many mutations, as a table for people."""

from __future__ import annotations

import re
from collections import Counter

COLUMNS = ("flip", "truncate", "extend", "empty", "garbage", "copy", "swap", "older", "delete")
OUTCOMES = ("named", "harmless")
KINDS = (
    "fence", "retention boundary", "epoch record", "tag", "manifest", "commit marker", "subtask metadata",
    "run of a KeyedTable", "run of a TimeKeyTable", "run of a GlobalKeyedTable", "run of a sink",
    "sink part", "upload record", "hidden file", "part without reference", "lane claim", "orphan",
)  # fmt: skip


def table_of(outcomes: Counter[tuple[str, str, str]]) -> str:
    """The outcomes by kind, as they are shown in the documentation."""
    struck = {kind for kind, _, _ in outcomes}
    rows: dict[str, Counter[str]] = {
        kind: Counter() for kind in (*KINDS, *sorted(struck - {*KINDS}), "all") if kind in {*struck, "all"}
    }
    for (kind, mutation, outcome), times in outcomes.items():
        for name in (kind, "all"):
            rows[name][mutation] += times
            rows[name][outcome] += times
    columns = (*COLUMNS, *OUTCOMES)
    lines = [f"| object | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, found in rows.items():
        shown = re.sub(r"\w+Table", r"`\g<0>`", name)
        lines.append(f"| {shown} | {' | '.join(str(found[column]) for column in columns)} |")
    return "\n".join(lines)
