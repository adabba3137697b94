"""Byte positions of the fields of an entry in message formats v0, v1 and v2, counted from the entry's first byte.

An entry is a batch (v2), or a message or a wrapper of messages (v0 and v1, called legacy here). The offset, the length
and the magic byte have the same position in every format. The tables of fields are in `batch` and `legacy`.
"""

from __future__ import annotations

import struct

# Every format.
OFFSET_AT = 0
LENGTH_AT = 8
PREFIX_BYTES = 12  # offset and length: the bytes that the length does not count
MAGIC_AT = 16
OFFSET_AND_LENGTH = struct.Struct(">qi")
LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")

# Format v2.
LEADER_EPOCH_AT = 12
CRC_AT = 17
CRC_FROM = 21  # first byte that the CRC covers
ATTRIBUTES_AT = 21
CODEC_AT = 22  # low byte of the attributes
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
HEADER_BYTES = 61
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_FRONT = struct.Struct(">qiibI")  # the header up to its CRC ...
HEADER_COVERED = struct.Struct(">hiqqqhii")  # ... and from CRC_FROM on

# Formats v0 and v1.
LEGACY_CRC_AT = 12
LEGACY_CRC_FROM = 16
LEGACY_ATTRIBUTES_AT = 17
LEGACY_TIMESTAMP_AT = 18  # v1
LEGACY_KEY_AT = (18, 26)  # by magic; a nullable key is preceded by its length

MIN_BYTES = (26, 34, HEADER_BYTES)
"""The smallest entry of each format, by magic: a v0 or v1 message with null key and value, an empty v2 batch."""
