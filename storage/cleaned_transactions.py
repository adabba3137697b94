"""What compaction must know of transactions: which batches were aborted, and which markers are still needed.

Owns the state that goes along with a walk over a log, from its first segment on. A batch is aborted if its producer has
an aborted transaction there, by the transaction indexes; all others are committed, since nothing behind the last stable
offset is cleaned. A marker is needed as long as a batch of its transaction is left.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..protocol.records import batch
from ..protocol.records.batch import BatchHeader
from .errors import StorageError
from .files import Files
from .rewrite import TXN_INDEX_SUFFIX
from .swap import SEGMENT_FILE

# version, producer id, offsets of the first record and of the marker, last stable offset then
_ENTRY = struct.Struct(">hqqqq")
_MARKER_KEY = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index, in the order in which a walk meets the transactions."""

    first_offset: int
    marker_offset: int
    producer_id: int
    entry: bytes


def aborted_transactions(files: Files, directory: str) -> list[AbortedTransaction]:
    """Those of all transaction indexes in a partition's folder: a marker may lie segments behind its transaction, also
    in the active one. Of what is being written an incomplete end is passed over. Raises StorageError."""
    found: set[AbortedTransaction] = set()
    try:
        for name in files.list(directory):
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[2] == TXN_INDEX_SUFFIX and match[3] is None:
                data = files.read_bytes(os.path.join(directory, name))
                for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
                    _, producer_id, first_offset, marker_offset, _ = _ENTRY.unpack_from(data, at)
                    entry = data[at : at + _ENTRY.size]
                    found.add(AbortedTransaction(first_offset, marker_offset, producer_id, entry))
    except OSError as error:
        raise StorageError(f"cannot read the transaction indexes of {directory}: {error}") from error
    return sorted(found)


class CleanedTransactions:
    """See the module. Every batch is to be shown, in the order of offsets; not those of other formats."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = list(reversed(aborted))
        self._aborted: dict[int, AbortedTransaction] = {}  # the one that a producer is in, or was in last
        self._left: set[int] = set()  # producers of which a batch was seen in the transaction they are in

    def on_batch(self, header: BatchHeader) -> bool:
        """Whether a batch of data was aborted."""
        if not header.is_transactional:
            return False
        self._left.add(header.producer_id)
        return self._abort_of(header) is not None

    def on_marker(self, header: BatchHeader, data: memoryview) -> tuple[bool, bytes | None]:
        """Whether a control batch is still needed, and its entry of the transaction index if that is, too.

        One that is no marker always is; one without a record (whose producer is remembered by it) never.
        """
        record = next(batch.records(data), None) if header.record_count else None
        if record is None:
            return False, None
        kind = _MARKER_KEY.unpack_from(record.key)[1] if record.key and len(record.key) >= _MARKER_KEY.size else -1
        if kind not in (_ABORT, _COMMIT):
            return True, None
        transaction = self._abort_of(header)
        self._aborted.pop(header.producer_id, None)
        if header.producer_id not in self._left:
            return False, None
        self._left.discard(header.producer_id)
        return True, transaction.entry if transaction and kind == _ABORT else None

    def _abort_of(self, header: BatchHeader) -> AbortedTransaction | None:
        """The aborted transaction that a batch or marker belongs to."""
        last_offset = header.last_offset
        while self._coming and self._coming[-1].first_offset <= last_offset:
            transaction = self._coming.pop()
            self._aborted[transaction.producer_id] = transaction
        transaction = self._aborted.get(header.producer_id)
        # An index may know of one whose marker was cleaned away: what came behind that is another transaction.
        return transaction if transaction is not None and last_offset <= transaction.marker_offset else None
