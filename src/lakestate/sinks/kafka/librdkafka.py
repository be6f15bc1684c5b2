"""The part of librdkafka that a transactional producer needs, as C has it.

It is the library that `confluent_kafka` is linked to, found through its extension module: one version, and
nothing more to install. Only functions and structures that its header publishes, and promises to keep, are
declared here. Calls release Python's lock.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

import numpy as np

PRODUCER = 0
COPY = 0x2
"""The library copies the bytes of messages."""
PURGE_ALL = 0x1 | 0x2
"""Messages that wait, and those that are under way."""
CONF_OK = 0


class Message(ctypes.Structure):
    """`rd_kafka_message_t`. Addresses are integers, so that NumPy can fill them in."""

    _fields_ = (
        ("err", c_int),
        ("topic", c_size_t),
        ("partition", c_int32),
        ("payload", c_size_t),
        ("len", c_size_t),
        ("key", c_size_t),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("opaque", c_size_t),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("address", c_size_t), ("size", c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (("name", c_size_t), ("address", c_size_t), ("size", c_size_t))


class _Value(ctypes.Union):
    _fields_ = (
        ("number", c_int),
        ("partition", c_int32),
        ("address", c_size_t),
        ("memory", _Memory),
        ("header", _Header),
        ("reserved", ctypes.c_char * 64),
    )


class Argument(ctypes.Structure):
    """`rd_kafka_vu_t`: one of the things that a message is made of."""

    _fields_ = (("kind", c_int), ("value", _Value))


class ArgumentKind:
    """`rd_kafka_vtype_t`."""

    TOPIC, PARTITION, PAYLOAD, KEY, FLAGS, HEADER = 2, 3, 4, 5, 7, 9


MESSAGE = np.dtype(
    {
        "names": [name for name, _ in Message._fields_],
        "formats": [np.dtype(kind) for _, kind in Message._fields_],
        "offsets": [getattr(Message, name).offset for name, _ in Message._fields_],
        "itemsize": ctypes.sizeof(Message),
    }
)
"""The same as `Message`."""
WORD = ctypes.sizeof(c_size_t)
ARGUMENT_WORDS = ctypes.sizeof(Argument) // WORD
"""Words of an `Argument`: its kind, then its value."""

OnFailure = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
OnError = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
OnLog = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "abort_transaction": (c_void_p, (c_void_p, c_int)),
    "begin_transaction": (c_void_p, (c_void_p,)),
    "commit_transaction": (c_void_p, (c_void_p, c_int)),
    "conf_destroy": (None, (c_void_p,)),
    "conf_new": (c_void_p, ()),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_set_dr_msg_cb": (None, (c_void_p, OnFailure)),
    "conf_set_error_cb": (None, (c_void_p, OnError)),
    "conf_set_log_cb": (None, (c_void_p, OnLog)),
    "destroy": (None, (c_void_p,)),
    "error_code": (c_int, (c_void_p,)),
    "error_destroy": (None, (c_void_p,)),
    "error_is_fatal": (c_int, (c_void_p,)),
    "error_is_retriable": (c_int, (c_void_p,)),
    "error_string": (c_char_p, (c_void_p,)),
    "error_txn_requires_abort": (c_int, (c_void_p,)),
    "fatal_error": (c_int, (c_void_p, c_char_p, c_size_t)),
    "flush": (c_int, (c_void_p, c_int)),
    "init_transactions": (c_void_p, (c_void_p, c_int)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "poll": (c_int, (c_void_p, c_int)),
    "produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "purge": (c_int, (c_void_p, c_int)),
    "set_log_queue": (c_int, (c_void_p, c_void_p)),
    "topic_destroy": (None, (c_void_p,)),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
}


class Library:
    """The functions, without the prefix `rd_kafka_` that they have in C."""

    def __init__(self, path: str) -> None:
        loaded = ctypes.CDLL(path)
        for name, (answer, arguments) in _SIGNATURES.items():
            function = getattr(loaded, f"rd_kafka_{name}")
            function.restype, function.argtypes = answer, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"rd_kafka_{name} is not declared")


@cache
def load_library() -> Library:
    """The library of this process."""
    from confluent_kafka import cimpl

    # A name that the module itself lacks is looked for in what it is linked to.
    return Library(cimpl.__file__)
