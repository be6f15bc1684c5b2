"""What decoding MessagePack or JSON may raise when the bytes are not what they should be.

Besides its own errors msgspec lets through invalid UTF-8 and numbers out of range as Python raises
them, and nesting that is deeper than the stack. None of them may leave the decoder that met it.
"""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
