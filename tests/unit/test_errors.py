from __future__ import annotations

import pickle

import pytest

from lakestate import errors
from lakestate.errors import InvalidInputError, LakestateError, MissingExtraError

CLASSES = [
    found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, LakestateError)
]
CODES = {
    "CorruptionError": "corruption",
    "ClockError": "clock",
    "ConflictError": "conflict",
    "FencedError": "fenced",
    "IncompatibleStateError": "incompatible_state",
    "InvalidInputError": "invalid_input",
    "LakestateError": "error",
    "MisplacedObjectError": "corruption",
    "MissingExtraError": "missing_extra",
    "NotFoundError": "not_found",
    "OperatorError": "operator_failed",
    "OutcomeUnknownError": "outcome_unknown",
    "StopTimeoutError": "stop_timeout",
    "StorageUnavailableError": "storage_unavailable",
    "VisibleOutputError": "visible_output",
}


def test_codes_are_stable() -> None:
    assert {found.__name__: found.code for found in CLASSES} == CODES


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_pickles_whole(kind: type[LakestateError]) -> None:
    error = kind("summary", object_name="store/object", found=1, expected=2, action="do this")
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is kind
    assert str(twin) == str(error) == f"summary: store/object; found 1; expected 2; do this [{kind.code}]"
    assert vars(twin) == vars(error)


def test_a_message_leaves_out_what_is_not_known() -> None:
    assert str(LakestateError("summary")) == "summary [error]"
    assert str(LakestateError("summary", found="x")) == "summary; found x [error]"


def test_errors_are_also_what_python_would_raise() -> None:
    assert issubclass(InvalidInputError, ValueError)
    assert issubclass(MissingExtraError, ImportError)
