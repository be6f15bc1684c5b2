"""Between the frozen values of `protocol` and the Protobuf bytes in storage. No I/O."""

from lakestate.codec.checkpoint import decode_manifest, decode_subtask, encode_manifest, encode_subtask
from lakestate.codec.table_codecs import GenericTableCodec, TableCodec
from lakestate.codec.tables import register_codec, require_table_type

__all__ = [
    "GenericTableCodec",
    "TableCodec",
    "decode_manifest",
    "decode_subtask",
    "encode_manifest",
    "encode_subtask",
    "register_codec",
    "require_table_type",
]
