"""Converts record batches of all formats to Arrow and back, mostly without a Python loop per record.

    for found in decode(segment, Options(columns=("key", "offset"))):  # pyarrow.RecordBatch
        ...
    for built in encode(found, EncodeOptions(codec=Codec.LZ4)):        # bytes
        ...

Owns no files, no sockets and no Spark: converts bytes to Arrow and Arrow to bytes. Needs the extra `pipeline` (numpy,
pyarrow); the broker imports none of these modules.
"""

from __future__ import annotations

from .chunks import CHUNK_BYTES, Damage, Options, decode, spans
from .columns import ALL_COLUMNS, COLUMNS, METADATA, SCHEMA, SIZES, schema
from .encoding import EncodeOptions, encode
from .rows import HeaderSpans, Rows, Spans

__all__ = [
    "ALL_COLUMNS",
    "CHUNK_BYTES",
    "COLUMNS",
    "METADATA",
    "SCHEMA",
    "SIZES",
    "Damage",
    "EncodeOptions",
    "HeaderSpans",
    "Options",
    "Rows",
    "Spans",
    "decode",
    "encode",
    "schema",
    "spans",
]
