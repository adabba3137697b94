"""Transactions as compaction needs them: which batches were aborted, and which markers are still needed.

The state of a walk over a log, from its first segment on. A batch is aborted if its producer has an aborted transaction
at its offset in the transaction indexes; all others are committed, since only records below the last stable offset are
cleaned. A marker is needed as long as a batch of its transaction remains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ...protocol.records.batch import BatchHeader
from ..errors import storage_errors
from ..io.files import Files
from ..producers import txn_index
from ..producers.txn_index import AbortedTransaction
from .swap import SEGMENT_FILE


def aborted_transactions(files: Files, directory: str) -> list[AbortedTransaction]:
    """Returns the entries of all transaction indexes in a partition's folder, by first offset: a marker may be segments
    after its transaction, also in the active one. An incomplete entry at the end of a file, which may be being written,
    is skipped. Raises StorageError, also for a damaged index: transactions missing from it must not be taken for
    committed."""
    found: set[AbortedTransaction] = set()
    with storage_errors(f"cannot read the transaction indexes of {directory}"):
        for name in files.list(directory):
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[2] == txn_index.SUFFIX and match[3] is None:
                data = files.read_bytes(os.path.join(directory, name))
                found.update(txn_index.parse(data[: len(data) // txn_index.ENTRY_BYTES * txn_index.ENTRY_BYTES]))
    return sorted(found, key=lambda transaction: transaction.first_offset)


class CleanedTransactions:
    """The transactions of a walk over a log. Each v2 batch must be passed in the order of offsets. For a walk that
    begins inside a log, `left` are the producers with a batch before the start in the transaction that is open there;
    `aborted` may then omit transactions that end before the start."""

    def __init__(self, aborted: Sequence[AbortedTransaction], left: Iterable[int] = ()) -> None:
        self._coming = list(reversed(aborted))
        self._aborted: dict[int, AbortedTransaction] = {}  # the current or last aborted transaction of a producer
        self._left = set(left)  # producers with a batch in their current transaction

    def on_batch(self, header: BatchHeader) -> bool:
        """Returns whether a data batch was aborted."""
        if not header.is_transactional:
            return False
        self._left.add(header.producer_id)
        return self._abort_of(header) is not None

    def on_marker(self, header: BatchHeader, data: memoryview) -> tuple[bool, AbortedTransaction | None]:
        """Returns whether a control batch is still needed, and its transaction index entry if that is still needed too.

        A control batch that is not a transaction marker is always needed; one without a record (kept for the producer
        state) never.
        """
        if not header.record_count:
            return False, None
        marker = txn_index.read_marker(data, 0, header)
        return (True, None) if marker is None else self.on_end(header, marker.kind)

    def on_end(self, header: BatchHeader, kind: int) -> tuple[bool, AbortedTransaction | None]:
        """Like `on_marker`, for a marker that was read already: `txn_index.ABORT` or `COMMIT`."""
        transaction = self._abort_of(header)
        self._aborted.pop(header.producer_id, None)
        if header.producer_id not in self._left:
            return False, None
        self._left.discard(header.producer_id)
        return True, transaction if kind == txn_index.ABORT else None

    def _abort_of(self, header: BatchHeader) -> AbortedTransaction | None:
        """Returns the aborted transaction that a batch or marker belongs to."""
        last_offset = header.last_offset
        while self._coming and self._coming[-1].first_offset <= last_offset:
            transaction = self._coming.pop()
            self._aborted[transaction.producer_id] = transaction
        transaction = self._aborted.get(header.producer_id)
        # The index may have an entry whose marker was cleaned away: later batches belong to another transaction.
        return transaction if transaction is not None and last_offset <= transaction.last_offset else None
