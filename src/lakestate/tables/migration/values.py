"""Typed Python values that can be migrated to the next version of their type.

For tables whose values are Python objects. A type names the type it replaced; every type in that chain
can be read. Nothing here decodes or stores.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Self

from lakestate.errors import IncompatibleStateError, InvalidInputError
from lakestate.tables.migration.steps import require_version


class MigratableState:
    """A value type with a version, the type it replaced, and the migration from that type.

    Works for dataclasses and `msgspec.Struct`. A type without it is version 1.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Counter(MigratableState):
    ...     VERSION = 2
    ...     PREVIOUS = int
    ...     count: int
    ...     label: str
    ...
    ...     @classmethod
    ...     def migrate(cls, previous: int) -> "Counter":
    ...         return cls(previous, "none")
    >>> migrate_value(42, 1, Counter, table="counts", key="total")
    Counter(count=42, label='none')
    """

    __slots__ = ()

    VERSION: ClassVar[int] = 1
    PREVIOUS: ClassVar[Any] = None
    """The type of version `VERSION - 1`, or None if that version can no longer be read."""

    @classmethod
    def migrate(cls, previous: Any) -> Self:
        """Convert a value of the previous type to this type."""
        raise NotImplementedError(f"{cls.__name__}.migrate")


def version_of(value_type: Any) -> int:
    """The state version of a value type.

    >>> version_of(int), version_of(dict[str, int])
    (1, 1)
    """
    return require_version(value_type.VERSION) if _is_migratable(value_type) else 1


def chain_of(value_type: Any) -> dict[int, Any]:
    """The type of each readable version, newest first.

    >>> chain_of(int)
    {1: <class 'int'>}
    """
    if not _is_migratable(value_type):
        return {1: value_type}
    return dict(_chain(value_type))


def migrate_value(value: Any, stored_version: int, value_type: Any, *, table: str, key: object) -> Any:
    """A value of some stored version, migrated to the declared type step by step."""
    if stored_version == version_of(value_type):
        return value
    steps = _steps(value_type, stored_version) if _is_migratable(value_type) else None
    if steps is None:
        raise _unreadable(table, key, stored_version, value_type)
    for version, step in enumerate(steps, start=stored_version + 1):
        try:
            value = step.migrate(value)
        except Exception as cause:
            raise _migration_error(table, key, version, step, cause) from cause
        if not isinstance(value, step):
            raise _migration_error(table, key, version, step, f"it returned {type(value).__name__}")
    return value


def _is_migratable(value_type: Any) -> bool:
    return isinstance(value_type, type) and issubclass(value_type, MigratableState)


@lru_cache(maxsize=256)
def _chain(value_type: Any) -> tuple[tuple[int, Any], ...]:
    found: list[tuple[int, Any]] = [(version_of(value_type), value_type)]
    current: Any = value_type
    while _is_migratable(current) and current.PREVIOUS is not None:
        previous = current.PREVIOUS
        # Versions go down by one at each step, so that a loop is detected like a gap.
        if version_of(previous) != current.VERSION - 1:
            raise InvalidInputError(
                "versions of state types must go down by one",
                object_name=current.__name__,
                found=f"{_type_name(previous)} of version {version_of(previous)} "
                f"before version {current.VERSION}",
                expected=f"PREVIOUS of version {current.VERSION - 1}",
            )
        _check_migrates(current)
        found.append((version_of(previous), previous))
        current = previous
    return tuple(found)


@lru_cache(maxsize=1024)
def _steps(value_type: Any, stored_version: int) -> tuple[type[MigratableState], ...] | None:
    """The types to migrate through, oldest first; None if there is no chain from that version."""
    chain = dict(_chain(value_type))
    if stored_version not in chain:
        return None
    return tuple(chain[version] for version in range(stored_version + 1, max(chain) + 1))


def _unreadable(table: str, key: object, stored_version: int, value_type: Any) -> IncompatibleStateError:
    chain = chain_of(value_type)
    newest, oldest = max(chain), min(chain)
    return IncompatibleStateError(
        f"table {table}: value of another state version",
        object_name=f"key {key!r:.200}",
        found=f"version {stored_version}",
        expected=f"version {newest}" if newest == oldest else f"versions {oldest} to {newest}",
        action="run the newer code" if stored_version > newest else "name the older type as PREVIOUS",
    )


def _check_migrates(value_type: type[MigratableState]) -> None:
    if value_type.migrate.__func__ is MigratableState.migrate.__func__:  # type: ignore[attr-defined]
        raise InvalidInputError(
            "a state type with PREVIOUS needs migrate",
            object_name=value_type.__name__,
            action="write the class method migrate(cls, previous)",
        )


def _migration_error(
    table: str, key: object, version: int, step: type, cause: BaseException | str
) -> IncompatibleStateError:
    found = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
    return IncompatibleStateError(
        f"table {table}: migration of a value from state version {version - 1} to {version} failed",
        object_name=f"key {key!r:.200}",
        found=found,
        action=f"correct {step.__name__}.migrate; nothing was changed",
    )


def _type_name(value_type: Any) -> str:
    return value_type.__name__ if isinstance(value_type, type) else str(value_type)
