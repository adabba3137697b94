"""The check of a plain batch: one v2 batch of a client, uncompressed, that is stored as it is.

Nearly every small Produce request has one. `plain_header` applies the rules of validate.py and validate_batch.py to it
in one function; whatever breaks a rule, or is not plain, is left to these, which raise the errors.
tests/protocol/records/test_plain.py compares the two.
"""

from __future__ import annotations

from ..limits import INT64_MAX, INT64_MIN
from . import walk
from .batch import MAGIC, BatchHeader
from .checksum import crc32c
from .layout import CRC_FROM, HEADER, HEADER_BYTES, PREFIX_BYTES
from .new_tuple import new_tuple
from .rules import Buffer, Rules, may_be_out_of_range


def plain_header(records: Buffer, rules: Rules, now_ms: int) -> BatchHeader | None:
    """Returns the header of a plain batch that keeps every rule, None for anything else. `records` must hold at least
    a header, and nothing after the batch. Raises nothing.
    """
    header = new_tuple(BatchHeader, HEADER.unpack_from(records))
    base_offset, length, _, magic, crc, attributes, delta, base_ms, max_ms, producer_id, _, sequence, count = header
    size = len(records)
    if (
        magic != MAGIC
        or attributes
        or base_offset
        or length != size - PREFIX_BYTES
        or size > rules.max_message_bytes
        or count != delta + 1
        or not 0 < count <= walk.RECORDS_AT_ONCE
        or (producer_id >= 0 and sequence < 0)
        or rules.target_magic != MAGIC
        or rules.compression
        or rules.log_append_time
        or max_ms < 0
    ):
        return None
    view = memoryview(records)
    if crc32c(view[CRC_FROM:]) != crc:
        return None
    if rules.walk_records or rules.compacted:
        data = view[HEADER_BYTES:]
        end, found, low, high, _ = walk.whole_from(data, 0, count, 0, INT64_MIN, INT64_MAX, rules.compacted)
        if found < count or end != size - HEADER_BYTES or base_ms + high != max_ms:
            return None
        base_ms += low
    return None if may_be_out_of_range(base_ms, max_ms, rules, now_ms) else header
