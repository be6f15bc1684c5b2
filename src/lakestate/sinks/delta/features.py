"""What an existing table may ask of its writers. What we do not do is refused by name, before any row.

deltalake checks much of this only when it encodes rows itself. It does not see the rows of files that
it only adds to the log, so constraints, for example, would be broken in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lakestate.errors import InvalidInputError

if TYPE_CHECKING:
    from deltalake import DeltaTable

FEATURES_READ_VERSION, FEATURES_WRITE_VERSION = 3, 7
"""From these versions on, a table lists its features by name."""

KNOWN_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
"""Those that ask nothing of files that are added, as long as the table does not use them as below."""

APPEND_ONLY = "delta.appendOnly"

_VERSIONS_KNOWN = (2, 5)
_IN_USE = {
    "delta.constraints.": "CHECK constraints: the sink does not check them",
    "delta.columnMapping.mode": "column mapping",
}
_IN_FIELD = {
    "delta.invariants": "an invariant: the sink does not check it",
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "CURRENT_DEFAULT": "a default value",
}


def check_features(table: DeltaTable, name: str) -> None:
    """Refuse a table whose protocol, properties or columns ask what the sink does not do."""
    protocol = table.protocol()
    found = [*_unknown_features(protocol.reader_features), *_unknown_features(protocol.writer_features)]
    if protocol.min_writer_version < FEATURES_WRITE_VERSION and (
        protocol.min_reader_version > _VERSIONS_KNOWN[0] or protocol.min_writer_version > _VERSIONS_KNOWN[1]
    ):
        found.append(f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}")
    found += _used_properties(table.metadata().configuration)
    for field in table.schema().fields:
        found += [f"{what} ({field.name})" for key, what in _IN_FIELD.items() if key in field.metadata]
    if found:
        raise InvalidInputError(
            "the table uses what the sink cannot write",
            object_name=name,
            found="; ".join(sorted(set(found))),
            expected=f"no features but {', '.join(sorted(KNOWN_FEATURES))}, and none that asks for more",
            action="drop the feature from the table, or write to another table",
        )


def check_can_change_rows(properties: Mapping[str, str | None], name: str) -> None:
    """Refuse a table whose rows may not be changed."""
    if (properties.get(APPEND_ONLY) or "false").lower() == "true":
        raise InvalidInputError(
            "rows of the table may not be changed",
            object_name=name,
            found=f"{APPEND_ONLY}=true",
            action="remove the property, or leave out `key` to append rows",
        )


def _unknown_features(features: Iterable[str] | None) -> list[str]:
    return [f"table feature {each}" for each in features or () if each not in KNOWN_FEATURES]


def _used_properties(properties: Mapping[str, str | None]) -> list[str]:
    return [
        f"{what} ({key})"
        for key, value in properties.items()
        for prefix, what in _IN_USE.items()
        if key.startswith(prefix) and value not in (None, "none")
    ]
