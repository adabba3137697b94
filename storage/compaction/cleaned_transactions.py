"""What compaction must know of transactions: which batches were aborted, and which markers are still needed.

Owns the state that goes along with a walk over a log, from its first segment on. A batch is aborted if its producer has
an aborted transaction there, by the transaction indexes; all others are committed, since nothing behind the last stable
offset is cleaned. A marker is needed as long as a batch of its transaction is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ...protocol.records.batch import BatchHeader
from ..errors import StorageError
from ..io.files import Files
from ..producers import txn_index
from ..producers.txn_index import AbortedTransaction
from .swap import SEGMENT_FILE


def aborted_transactions(files: Files, directory: str) -> list[AbortedTransaction]:
    """Those of all transaction indexes in a partition's folder, by their first offsets: a marker may lie segments
    behind its transaction, also in the active one. Of what is being written an incomplete end is passed over. Raises
    StorageError, also for an index that is damaged: what it hides must not be taken for committed."""
    found: set[AbortedTransaction] = set()
    try:
        for name in files.list(directory):
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[2] == txn_index.SUFFIX and match[3] is None:
                data = files.read_bytes(os.path.join(directory, name))
                found.update(txn_index.parse(data[: len(data) // txn_index.ENTRY_BYTES * txn_index.ENTRY_BYTES]))
    except OSError as error:
        raise StorageError(f"cannot read the transaction indexes of {directory}: {error}") from error
    return sorted(found, key=lambda transaction: transaction.first_offset)


class CleanedTransactions:
    """See the module. Every batch is to be shown, in the order of offsets; not those of other formats. Of those that
    lie before the first one that is shown, only this matters: which producers have a batch `left` there, of the
    transaction that they are in then; and of `aborted` the transactions that end behind it are enough."""

    def __init__(self, aborted: Sequence[AbortedTransaction], left: Iterable[int] = ()) -> None:
        self._coming = list(reversed(aborted))
        self._aborted: dict[int, AbortedTransaction] = {}  # the one that a producer is in, or was in last
        self._left = set(left)  # producers of which a batch was seen in the transaction they are in

    def on_batch(self, header: BatchHeader) -> bool:
        """Whether a batch of data was aborted."""
        if not header.is_transactional:
            return False
        self._left.add(header.producer_id)
        return self._abort_of(header) is not None

    def on_marker(self, header: BatchHeader, data: memoryview) -> tuple[bool, AbortedTransaction | None]:
        """Whether a control batch is still needed, and its entry of the transaction index if that is, too.

        One that is no marker always is; one without a record (whose producer is remembered by it) never.
        """
        if not header.record_count:
            return False, None
        marker = txn_index.read_marker(data, 0, header)
        return (True, None) if marker is None else self.on_end(header, marker.kind)

    def on_end(self, header: BatchHeader, kind: int) -> tuple[bool, AbortedTransaction | None]:
        """The same for a marker that was read already: `txn_index.ABORT` or `COMMIT`."""
        transaction = self._abort_of(header)
        self._aborted.pop(header.producer_id, None)
        if header.producer_id not in self._left:
            return False, None
        self._left.discard(header.producer_id)
        return True, transaction if kind == txn_index.ABORT else None

    def _abort_of(self, header: BatchHeader) -> AbortedTransaction | None:
        """The aborted transaction that a batch or marker belongs to."""
        last_offset = header.last_offset
        while self._coming and self._coming[-1].first_offset <= last_offset:
            transaction = self._coming.pop()
            self._aborted[transaction.producer_id] = transaction
        transaction = self._aborted.get(header.producer_id)
        # An index may know of one whose marker was cleaned away: what came behind that is another transaction.
        return transaction if transaction is not None and last_offset <= transaction.last_offset else None
