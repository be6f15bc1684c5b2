"""The config file and the environment: names for places, so that commands stay short.

    default = "prod"

    [places.prod]
    url = "s3://bucket/checkpoints"
    options = { region = "eu-west-1" }

Credentials belong in the environment; the options of a place are those of `StoreConfig`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakestate.config import StoreConfig
from lakestate.errors import InvalidInputError, NotFoundError
from lakestate.protocol.names import did_you_mean

CONFIG = "LAKESTATE_CONFIG"
AT = "LAKESTATE_AT"
OUTPUT = "LAKESTATE_OUTPUT"
PIPELINE = "LAKESTATE_PIPELINE"
DEFAULT_FILE = "~/.config/lakestate/config.toml"

_KEYS = {"default", "output", "places"}
_PLACE_KEYS = {"url", "options", "pipeline"}


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint URL with the options of its store."""

    store: StoreConfig
    name: str | None = None
    pipeline: str | None = None
    """`module:pipeline` of the jobs there, for the commands that need their code."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the config file says."""

    file: Path
    places: Mapping[str, Place] = field(default_factory=dict)
    default: str | None = None
    output: str | None = None

    def place(self, named: str | None) -> Place:
        """The place of a name, a URL or a path; the default one if nothing is named."""
        wanted = named or self.default
        if wanted is None and len(self.places) == 1:
            wanted = next(iter(self.places))
        if wanted is None:
            raise InvalidInputError(
                "which checkpoints?",
                found="no --at, no LAKESTATE_AT, and no default place",
                action=f"pass --at with a URL, a path or the name of a place in {self.file}",
            )
        if wanted in self.places:
            return self.places[wanted]
        if "/" in wanted or ":" in wanted or wanted.startswith("."):
            return Place(StoreConfig(wanted))
        raise NotFoundError(
            "no such place",
            object_name=wanted,
            found=", ".join(sorted(self.places)) or f"no place in {self.file}",
            action=did_you_mean(wanted, self.places) or "a path or a URL has a slash, such as ./checkpoints",
        )


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of the config file; none if there is no file where it is looked for by default."""
    variables = os.environ if environment is None else environment
    chosen = variables.get(CONFIG)
    file = Path(chosen or DEFAULT_FILE).expanduser()
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as missing:
        if chosen:
            raise NotFoundError(
                f"{CONFIG} names a file that does not exist", object_name=str(file)
            ) from missing
        return Settings(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as cause:
        raise InvalidInputError(
            "the config file cannot be read", object_name=str(file), found=cause
        ) from cause
    return _settings_of(content, file)


def _settings_of(content: Mapping[str, object], file: Path) -> Settings:
    _check_keys(content, _KEYS, file, "the config file")
    places = content.get("places", {})
    if not isinstance(places, dict):
        raise _wrong("places", places, "a table for each place", file)
    found = {name: _place_of(name, value, file) for name, value in places.items()}
    default = _text(content, "default", file)
    if default is not None and default not in found:
        raise InvalidInputError(
            "the default place is not one of the places",
            object_name=str(file),
            found=default,
            expected=", ".join(sorted(found)) or "a place",
        )
    return Settings(file, found, default, _text(content, "output", file))


def _place_of(name: str, value: object, file: Path) -> Place:
    if isinstance(value, str):
        return Place(StoreConfig(value), name)
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        raise _wrong(f"places.{name}", value, 'a URL, or a table with url = "…"', file)
    _check_keys(value, _PLACE_KEYS, file, f"place {name}")
    options = value.get("options", {})
    if not isinstance(options, dict):
        raise _wrong(f"places.{name}.options", options, "a table", file)
    texts = {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in options.items()}
    return Place(StoreConfig(value["url"], texts), name, _text(value, "pipeline", file))


def _check_keys(content: Mapping[str, object], known: set[str], file: Path, what: str) -> None:
    unknown = sorted(content.keys() - known)
    if unknown:
        raise InvalidInputError(
            f"{what} has a key that is not known",
            object_name=str(file),
            found=", ".join(unknown),
            expected=", ".join(sorted(known)),
            action=did_you_mean(unknown[0], known),
        )


def _text(content: Mapping[str, object], key: str, file: Path) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise _wrong(key, value, "text", file)
    return value


def _wrong(key: str, value: object, expected: str, file: Path) -> InvalidInputError:
    return InvalidInputError(
        f"{key} is not what it should be",
        object_name=str(file),
        found=type(value).__name__,
        expected=expected,
    )
