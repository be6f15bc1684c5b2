"""Between the frozen values of `protocol` and the Protobuf bytes in storage. No I/O."""

from lakestate.codec.checkpoint import decode_manifest, decode_subtask, encode_manifest, encode_subtask
from lakestate.codec.tables import checked_table_type

__all__ = ["checked_table_type", "decode_manifest", "decode_subtask", "encode_manifest", "encode_subtask"]
