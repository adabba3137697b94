"""The small binary files beside a segment, described with construct for `ottla dump`.

Descriptions only: `index` and the modules of producers and transactions have their own code to read and write them; a
test compares both. All are Apache Kafka's layouts. Parsing with these raises MalformedMessage.

    .index      offset index entries, until the file ends
    .timeindex  time index entries, until the file ends
    .txnindex   aborted transactions, until the file ends
    .snapshot   one producer snapshot (version 1 is the only one)
"""

from __future__ import annotations

from ...protocol.layouts import int16, int32, int64, uint32
from ...protocol.records.schemas import ItemArray
from ...protocol.structs import Struct

OFFSET_ENTRY = Struct("relative_offset" / int32, "position" / int32)

TIME_ENTRY = Struct("timestamp" / int64, "relative_offset" / int32)

ABORTED_TRANSACTION = Struct(
    "version" / int16,
    "producer_id" / int64,
    "first_offset" / int64,
    "last_offset" / int64,
    "last_stable_offset" / int64,
)

PRODUCER_ENTRY = Struct(
    "producer_id" / int64,
    "epoch" / int16,
    "last_sequence" / int32,
    "last_offset" / int64,
    "offset_delta" / int32,
    "timestamp" / int64,
    "coordinator_epoch" / int32,
    "current_transaction_first_offset" / int64,
)

PRODUCER_SNAPSHOT = Struct("version" / int16, "crc" / uint32, "entries" / ItemArray(int32, PRODUCER_ENTRY, 46))
"""`crc` is the CRC-32C of all bytes after it."""
