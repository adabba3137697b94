"""Converts record batches of all formats to Arrow and back, mostly without a Python loop per record.

    for found in decode(segment, Options(columns=("key", "offset"))):  # pyarrow.RecordBatch
        ...
    for built in encode(found, EncodeOptions(codec=Codec.LZ4)):        # bytes
        ...

Owns no files, no sockets and no Spark: converts bytes to Arrow and Arrow to bytes. Needs the extra `pipeline` (numpy,
pyarrow); the broker imports none of these modules.
"""

from __future__ import annotations

from .chunks import Damage, Options, decode, spans
from .columns import COLUMNS, schema
from .encoding import EncodeOptions, encode
from .rows import Rows

__all__ = ["COLUMNS", "Damage", "EncodeOptions", "Options", "Rows", "decode", "encode", "schema", "spans"]
