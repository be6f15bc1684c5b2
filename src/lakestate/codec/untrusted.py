"""The errors that decoding untrusted MessagePack or JSON may raise.

Besides its own errors, msgspec passes on Python's errors for invalid UTF-8, for numbers out of range
and for nesting deeper than the stack. A decoder must catch all of them.
"""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
