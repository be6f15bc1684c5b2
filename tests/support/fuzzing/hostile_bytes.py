"""Hostile bytes: valid ones with changes, made at random or with knowledge of the format.

Code that decodes bytes from storage must return a value or raise an error of `lakestate.errors`, soon
and in little memory. It must not run code, or write outside of its root. `decodes_or_refuses` checks
that.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec._utils import get_class_annotations

from lakestate.errors import LakestateError

SECONDS_MAX = 5.0
"""Far more than any of these small inputs takes, on a machine that is busy."""

MEMORY_BYTES_MAX = 200 << 20
"""Likewise; the inputs have a few kilobytes."""

TRIED: Counter[str] = Counter()
"""What this process has tried; told at the end of a soak."""

FUZZ = settings(
    # The same inputs in every ordinary run; a soak looks for new ones.
    derandomize="SOAK_MINUTES" not in os.environ,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)

NUMBERS = [-(2**63), -(2**31) - 1, -1, 0, 1, 2, 127, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53]
NUMBERS += [2**62, 2**63 - 1, 2**63, 2**64 - 1]
TEXTS = ["", ".", "..", "/", "/etc/passwd", "../../x", "a/../b", "a\\b", "\x00", "a\nb", "é" * 100, "-1"]
TEXTS += ["x" * 2000, "9" * 5000, "1e400", "nan", "00", "struct<a:int", "decimal(99,99)", ".lakestate/x"]


def decodes_or_refuses(decode: Callable[[], Any], root: Path | None = None) -> Any:
    """What `decode` returns, or None if it refuses; anything else than these two is a bug.

    Files may be written below `root` only.
    """
    TRIED["inputs"] += 1
    forget_peak()
    before_bytes = peak_bytes()
    started_s = time.perf_counter()
    try:
        with watch_audit_events(root):
            return decode()
    except LakestateError as refusal:
        TRIED["refused"] += 1
        str(refusal).encode(errors="surrogatepass")
        return None
    finally:
        took_s = time.perf_counter() - started_s
        took_bytes = peak_bytes() - before_bytes
        assert took_s < SECONDS_MAX, f"it took {took_s:.1f} s"
        assert took_bytes < MEMORY_BYTES_MAX, f"it took {took_bytes >> 20} MiB"


def peak_bytes() -> int:
    """The most memory that this process has had since `forget_peak`; where there is no /proc, ever.

    Not `ru_maxrss` alone: it starts with the value of the parent process.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used << 10
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def forget_peak() -> None:
    """Begin anew with what is used now, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


RUNS = {
    "exec", "compile", "code.__new__", "marshal.loads", "pickle.find_class", "ctypes.dlopen",
    "subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
    "pty.spawn", "socket.connect", "socket.bind",
}  # fmt: skip
"""Audit events of running code and of connecting to other processes."""

CHANGES = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree",
}  # fmt: skip
"""Audit events of changes of files, whose first arguments are paths; and `open`, which may be one."""

READS_TYPES = get_class_annotations.__code__
"""Evaluates the annotations of a class, which are source and no data."""

OPEN_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_noticed: list[str] | None = None
_root: str | None = None


@contextmanager
def watch_audit_events(root: Path | None = None) -> Iterator[None]:
    """Fails if what is done inside runs code, reaches out, or changes files that are not below `root`.

    Each is stopped as well, and told at the end even if the error was swallowed. Native code is not seen.
    """
    global _noticed, _root
    assert _noticed is None, "one watch at a time"
    noticed: list[str] = []
    _noticed, _root = noticed, None if root is None else os.path.realpath(root)
    try:
        yield
    finally:
        _noticed = _root = None
        assert not noticed, f"it did what nothing that reads may do: {'; '.join(noticed)}"


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    noticed = _noticed
    if noticed is None or not _is_forbidden(event, arguments) or _is_of_ours():
        return
    noticed.append(f"{event} {arguments!r:.200}")
    raise AssertionError(f"{event} is not allowed here")


def _is_forbidden(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        path, _, flags = arguments
        return bool(flags & OPEN_TO_WRITE) and _is_outside(path)
    return event in RUNS or (event in CHANGES and any(_is_outside(path) for path in arguments[:2]))


def _is_outside(path: object) -> bool:
    """True for a path that is not below the root. What is not a path was opened before."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    real = os.path.realpath(os.fsdecode(path))
    return _root is None or os.path.commonpath([_root, real]) != _root


def _is_of_ours() -> bool:
    """True if what runs is our own source, at its first use: a module that is imported, a class's types."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib") or frame.f_code is READS_TYPES:
            return True
        frame = frame.f_back
    return False


# A hook stays for as long as the process does.
sys.addaudithook(_notice)


@st.composite
def mutated(draw: st.DrawFn, valid: bytes) -> bytes:
    """Valid bytes with a few places changed; sometimes bytes that never were valid."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 6)):
            case 0:
                del data[place:]
            case 1:
                data[place : place + draw(st.integers(1, 16))] = b""
            case 2:
                data[place:place] = draw(st.binary(min_size=1, max_size=16))
            case 3:
                data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case 4:
                data[place:place] = data[place : place + draw(st.integers(1, 64))]
            case 5:
                data[place : place + 4] = draw(st.sampled_from(NUMBERS)).to_bytes(16, "little", signed=True)[
                    :8
                ]
            case 6:
                data[place : place + draw(st.integers(0, 3))] = varint(draw(st.sampled_from(NUMBERS)))
    return bytes(data)


@st.composite
def hostile_values(draw: st.DrawFn, *, surrogates: bool = False) -> Any:
    """Values that no field expects."""
    match draw(st.integers(0, 8)):
        case 0:
            return draw(st.sampled_from(NUMBERS))
        case 1:
            return draw(st.sampled_from(TEXTS))
        case 2:
            return draw(st.sampled_from([None, True, False, [], {}, b"", [[]], {"": None}]))
        case 3:
            return draw(st.sampled_from([0.5, -0.0, 1e300, float("inf"), float("-inf"), float("nan")]))
        case 4:
            return nested(draw(st.integers(1, 150)))
        case 5:
            return draw(st.text(max_size=20))
        case 6:
            return draw(st.lists(st.integers(-5, 5), max_size=5))
        case 7:
            return "\ud800" if surrogates else draw(st.binary(max_size=20))
        case _:
            return draw(st.integers(-(2**63), 2**64 - 1))


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def mutated_tree(draw: st.DrawFn, tree: Any, *, surrogates: bool = False) -> Any:
    """Plain data (dicts, lists, scalars) with one to three of its parts replaced, lost or doubled."""
    for _ in range(draw(st.integers(1, 3))):
        tree = _with_one_change(draw, tree, hostile_values(surrogates=surrogates))
    return tree


def _with_one_change(draw: st.DrawFn, tree: Any, values: st.SearchStrategy[Any]) -> Any:
    if not isinstance(tree, dict | list) or not tree or draw(st.integers(0, 9)) == 0:
        return draw(values)
    copy: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    key = draw(st.sampled_from(list(copy) if isinstance(copy, dict) else range(len(copy))))
    match draw(st.integers(0, 5)):
        case 0:
            del copy[key]
        case 1 if isinstance(copy, list):
            copy += [copy[key]] * draw(st.sampled_from([1, 2, 300]))
        case 1:
            copy[draw(st.text(max_size=5))] = draw(values)
        case _:
            copy[key] = _with_one_change(draw, copy[key], values)
    return copy


def varint(number: int) -> bytes:
    """A number as Protobuf and Thrift write it; a negative one as 64 bits."""
    number &= 2**64 - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


WireField = tuple[int, int, Any]
"""Number, wire type, and the number, the bytes, or the fields of a message inside."""


def wire_fields(data: bytes) -> list[WireField] | None:
    """The fields of a Protobuf message; None of bytes that are none."""
    fields: list[WireField] = []
    place = 0
    while place < len(data):
        tag, place = _varint_at(data, place)
        number, wire = tag >> 3, tag & 7
        if not number or place > len(data):
            return None
        if wire == 0:
            value, place = _varint_at(data, place)
        elif wire == 2:
            length, place = _varint_at(data, place)
            value, place = data[place : place + length], place + length
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
            value, place = data[place : place + length], place + length
        else:
            return None
        if place > len(data):
            return None
        fields.append((number, wire, value))
    return fields


def _varint_at(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
    return value, len(data) + 1


def wire_bytes(fields: Sequence[WireField]) -> bytes:
    """The message of these fields."""
    out = bytearray()
    for number, wire, value in fields:
        out += varint(number << 3 | wire)
        if wire == 0:
            out += varint(value)
        elif wire == 2:
            content = value if isinstance(value, bytes) else wire_bytes(value)
            out += varint(len(content)) + content
        else:
            out += value
    return bytes(out)


@st.composite
def mutated_message(draw: st.DrawFn, valid: bytes) -> bytes:
    """A Protobuf message with some fields changed, at any depth, in ways that Protobuf itself allows."""
    data = valid
    for _ in range(draw(st.integers(1, 3))):
        data = _with_one_field_changed(draw, data)
    return data


def _with_one_field_changed(draw: st.DrawFn, data: bytes) -> bytes:
    fields = wire_fields(data)
    if not fields:
        return draw(st.binary(max_size=30))
    index = draw(st.integers(0, len(fields) - 1))
    number, wire, value = fields[index]
    match draw(st.integers(0, 7)):
        case 0:
            del fields[index]
        case 1:
            fields += [fields[index]] * draw(st.sampled_from([1, 2, 500]))
        case 2:
            fields[index] = (draw(st.integers(1, 40)), wire, value)
        case 3:
            fields.insert(index, (number, 0, draw(st.sampled_from(NUMBERS))))
        case 4:
            fields.insert(index, (number, 2, draw(st.binary(max_size=12))))
        case _ if wire == 2:
            inside = isinstance(value, bytes) and wire_fields(value)
            if inside and draw(st.integers(0, 4)):
                fields[index] = (number, wire, _with_one_field_changed(draw, value))
            else:
                text = draw(st.sampled_from(TEXTS)).encode()
                fields[index] = (number, wire, draw(st.sampled_from([text, b"\xff\xfe", value * 50])))
        case _:
            fields[index] = (number, 0, draw(st.sampled_from(NUMBERS)))
    return wire_bytes(fields)
