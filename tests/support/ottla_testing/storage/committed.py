"""The records that a read_committed consumer returns, for the tests of transactions."""

from __future__ import annotations

from ottla.protocol.records import formats
from ottla.storage.partition_log import PartitionLog
from ottla.storage.producers import txn_index
from ottla.storage.producers.txn_index import ABORT


def consumed(log: PartitionLog, offset: int, max_bytes: int) -> list[int]:
    """Returns the offsets that a `read_committed` consumer returns: it drops a producer's records between the first
    offset of an aborted transaction and its next abort marker."""
    found: list[int] = []
    while True:
        result = log.read(offset, max_bytes, committed=True)
        begins = sorted((one.first_offset, one.producer_id) for one in result.aborted)
        dropped: set[int] = set()
        records = bytes(result.records)
        if not records:
            return found
        start = offset
        for position, header in formats.headers(records):
            while begins and begins[0][0] <= header.last_offset:
                dropped.add(begins.pop(0)[1])
            read = txn_index.read_marker(records, position, header)
            if read is not None:
                dropped -= {header.producer_id} if read.kind == ABORT else set()
            elif not (header.is_transactional and header.producer_id in dropped):
                found += [r.offset for r in formats.records(records, position) if r.offset >= start]
            offset = header.next_offset
