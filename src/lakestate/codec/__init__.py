"""Conversion between the frozen values of `protocol` and the Protobuf bytes in storage. No I/O.

For all layers that read or write metadata objects. May import `protocol`, `errors` and the generated `v1`.
Stored bytes are untrusted: decoding raises an error that names the object, and never executes
anything.
"""

from lakestate.codec.checkpoint import decode_manifest, decode_subtask, encode_manifest, encode_subtask
from lakestate.codec.table_codecs import GenericTableCodec, TableCodec
from lakestate.codec.tables import register_codec, require_table_type
from lakestate.codec.untrusted import UNDECODABLE

__all__ = [
    "UNDECODABLE",
    "GenericTableCodec",
    "TableCodec",
    "decode_manifest",
    "decode_subtask",
    "encode_manifest",
    "encode_subtask",
    "register_codec",
    "require_table_type",
]
