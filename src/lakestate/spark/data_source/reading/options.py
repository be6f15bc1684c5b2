"""The options of reading with `format("lakestate")`: text as users write it in Spark, checked and typed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakestate.config import StoreConfig, size_bytes
from lakestate.errors import InvalidInputError
from lakestate.inspection.splitting import PART_BYTES
from lakestate.protocol.names import did_you_mean, require_name
from lakestate.spark.data_source.options import STORE_PREFIX, location_url

METADATA_TABLES = ("jobs", "epochs", "operators", "tables", "files")

_OPTIONS = (
    "path",
    "job",
    "operator",
    "table",
    "epoch",
    "readChangeFeed",
    "startEpoch",
    "endEpoch",
    "maxEpochsPerTrigger",
    "reader",
    "metadata",
    "columns",
    "where",
    "partitionBytes",
)


@dataclass(frozen=True)
class ReadOptions:
    """What to read."""

    checkpoint: StoreConfig
    job: str | None = None
    operator: str | None = None
    table: str | None = None
    epoch: str = "newest"
    change_feed: bool = False
    start_epoch: int | None = None
    end_epoch: str | None = None
    epochs_max: int = 1
    """Of a stream: epochs in one micro-batch."""
    reader: str | None = None
    """Of a stream: the name under which the epochs that it needs are tagged."""
    metadata: str | None = None
    columns: tuple[str, ...] | None = None
    where: Mapping[str, Any] | None = None
    part_bytes: int = PART_BYTES

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check and parse all options. Case does not matter in names.

        >>> found = ReadOptions.of({"path": "/data/state", "job": "shop", "operator": "o", "table": "t"})
        >>> found.checkpoint.url, found.epoch
        ('file:///data/state', 'newest')
        """
        given = {name.lower(): value for name, value in options.items()}
        store = {
            name.removeprefix(STORE_PREFIX): value
            for name, value in given.items()
            if name.startswith(STORE_PREFIX)
        }
        if "job" not in given and "metadata" not in given:
            raise InvalidInputError(
                "no option says which state table to read",
                object_name=given.get("path"),
                action="set job, operator and table, or metadata; read the files that the sink wrote with "
                "spark.read.parquet or spark.read.json",
            )
        _check_known([name for name in given if not name.startswith(STORE_PREFIX)])
        found = cls(
            StoreConfig(location_url(_require(given, "path", "where the checkpoint is")), store),
            given.get("job"),
            given.get("operator"),
            given.get("table"),
            given.get("epoch", "newest"),
            _flag(given, "readChangeFeed"),
            _number(given, "startEpoch"),
            given.get("endepoch"),
            _number(given, "maxEpochsPerTrigger") or 1,
            given.get("reader"),
            given.get("metadata"),
            _columns(given),
            _where(given),
            size_bytes(given["partitionbytes"]) if "partitionbytes" in given else PART_BYTES,
        )
        found._check_together(given)
        return found

    @property
    def reads_changes(self) -> bool:
        """Whether changes are wanted, not rows."""
        return self.change_feed or self.start_epoch is not None or self.end_epoch is not None

    def require_changes(self) -> ReadOptions:
        """The options, if they ask for changes: a stream has nothing else."""
        if not self.reads_changes:
            raise InvalidInputError(
                "a stream reads the changes of a state table",
                object_name="option readChangeFeed",
                action='set it to "true": rows then have the columns _change, _expired and _epoch',
            )
        return self

    def table_names(self) -> tuple[str, str, str]:
        """Job, operator and table, which must be given."""
        given = {"job": self.job, "operator": self.operator, "table": self.table}
        job, operator, table = (_require(given, name, f"which {name} to read") for name in given)
        return require_name("job", job), operator, table

    def _check_together(self, given: Mapping[str, str]) -> None:
        if self.metadata is not None:
            if self.metadata not in METADATA_TABLES:
                raise InvalidInputError(
                    "no such metadata table",
                    object_name=f"option metadata = {self.metadata}",
                    expected=", ".join(METADATA_TABLES),
                    action=did_you_mean(self.metadata, METADATA_TABLES),
                )
            return
        self.table_names()
        if self.reads_changes and "epoch" in given:
            raise InvalidInputError(
                "either the rows of one epoch are read, or the changes of several",
                found="option epoch, and readChangeFeed, startEpoch or endEpoch",
                action="leave one of them out",
            )


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in given:
        return None
    return tuple(name.strip() for name in given["columns"].split(",") if name.strip())


def _where(given: Mapping[str, str]) -> Mapping[str, Any] | None:
    if "where" not in given:
        return None
    try:
        parsed = json.loads(given["where"])
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidInputError(
            "bad value of an option",
            object_name="option where",
            found=given["where"][:80],
            expected='JSON of columns and values, such as {"user": ["ada", "bob"]}',
        )
    return parsed


def _flag(given: Mapping[str, str], option: str) -> bool:
    text = given.get(option.lower(), "false").lower()
    if text not in ("true", "false"):
        raise InvalidInputError(
            "bad value of an option", object_name=f"option {option}", found=text, expected="true or false"
        )
    return text == "true"


def _number(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(
            "bad value of an option", object_name=f"option {option}", found=text, expected="a number from 1"
        )
    return int(text)


def _require(given: Mapping[str, str | None], name: str, what: str) -> str:
    value = given.get(name)
    if not value:
        raise InvalidInputError(f"no option says {what}", object_name=f"option {name}", action="set it")
    return value


def _check_known(names: list[str]) -> None:
    known = {name.lower(): name for name in _OPTIONS}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InvalidInputError(
            "unknown option of a query that reads",
            object_name=", ".join(unknown),
            expected=", ".join(_OPTIONS) + f", or {STORE_PREFIX}… for the object store",
            action=did_you_mean(unknown[0], known),
        )
