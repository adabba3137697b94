"""What coordinators know of transactional ids, and what that means for a transaction that is open in a partition.

Owns the verdict, and reading `__transaction_state` in a data directory; it takes no lock. The verdict is pure. A
transaction that no coordinator is going to end hangs: it holds the last stable offset back for ever (KIP-664).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...broker.metadata.record_values import TRANSACTIONS
from ...broker.trace.tracer import quoted
from ...broker.transactions.records import decode
from ...broker.transactions.state import NO_TIMEOUT_MS, Transaction, TransactionState
from ...protocol.errors import MalformedMessage
from ...protocol.records import batch
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.text import duration, moment
from ...storage import inspect
from ...storage.errors import StorageError
from .transaction_history import InPartition

DECIDED = {TransactionState.PREPARE_COMMIT: "COMMIT", TransactionState.PREPARE_ABORT: "ABORT"}
IN_PROGRESS = {TransactionState.ONGOING, *DECIDED}
ONGOING, ENDING, HANGING, UNKNOWN = "ongoing", "ending", "hanging", "unknown"


class Coordinators:
    """The newest that is known of each transactional id. `cannot` is why nothing can be, if so, and `damage` why some
    may be missing."""

    def __init__(self, found: Iterable[Transaction] = (), *, cannot: str | None = None, where: str = "here") -> None:
        self.transactions: dict[str, Transaction] = {}
        self.cannot = cannot
        self.damage: str | None = None
        self.partial: str | None = None
        """Why there may be ids that are not seen at all."""
        self.where = where
        self._ids: dict[int, str] = {}
        for transaction in found:
            self.learn(transaction)

    def learn(self, transaction: Transaction) -> None:
        """Something newer. Producer ids from before stay with their transactional id."""
        name = transaction.transactional_id
        self.transactions[name] = transaction
        for producer_id in (
            transaction.previous_producer_id,
            transaction.next_producer_id,
            transaction.producer_id,
        ):
            if producer_id >= 0:
                self._ids[producer_id] = name

    def forget(self, transactional_id: str) -> None:
        """It has expired; whose producer id it was is still known."""
        self.transactions.pop(transactional_id, None)

    def id_of(self, producer_id: int) -> str | None:
        """Whose producer id it is, or was."""
        return self._ids.get(producer_id)

    def of(self, producer_id: int) -> Transaction | None:
        """What is known of the transactional id whose producer id it is, or was."""
        return self.transactions.get(self._ids.get(producer_id, ""))


class Standing(NamedTuple):
    """How a transaction that is open in a partition stands with its coordinator.

    `kind`: "ongoing" (it may be committed or aborted), "ending" (decided, the marker is on its way), "hanging" (nobody
    is going to end it), "unknown" (there is no coordinator to ask). `ends_ms` is when an ongoing one times out, -1 for
    never, None for the others.
    """

    kind: str
    why: str
    ends_ms: int | None = None


def standing(topic: str, partition: int, of: InPartition, coordinators: Coordinators) -> Standing:
    """How an open transaction stands."""
    found = _standing(topic, partition, of, coordinators)
    if found.kind == HANGING and coordinators.damage is not None:
        return Standing(UNKNOWN, f"the log of its coordinator may tell more: {coordinators.damage}")
    return found


def _standing(topic: str, partition: int, of: InPartition, coordinators: Coordinators) -> Standing:
    if coordinators.cannot is not None:
        return Standing(UNKNOWN, coordinators.cannot)
    known, name = coordinators.of(of.producer_id), coordinators.id_of(of.producer_id)
    if known is None:
        if name is None and coordinators.partial is not None:
            return Standing(UNKNOWN, coordinators.partial)
        if name is None:
            return Standing(HANGING, f"no coordinator {coordinators.where} knows this producer: nothing will end it")
        return Standing(
            HANGING, f"its coordinator has forgotten the transactional id {quoted(name)}: nothing will end it"
        )
    holds = (topic, partition) in known.partitions
    state = known.state.value
    if known.state in DECIDED and holds:
        at = f" at {moment(known.last_update_ms)}" if known.last_update_ms >= 0 else ""
        return Standing(ENDING, f"{state}: decided{at}, its {DECIDED[known.state]} marker is to be written here")
    if known.state is TransactionState.ONGOING and holds:
        if known.producer_id == of.producer_id and known.producer_epoch == of.epoch:
            return _ongoing(known)
        now = f"producer {known.producer_id} epoch {known.producer_epoch}"
        return Standing(HANGING, f"its coordinator is at another transaction, of {now}: nothing will end this one")
    if known.state in IN_PROGRESS:
        return Standing(HANGING, f"{state} at its coordinator, but without this partition: nothing will end it here")
    return Standing(HANGING, f"{state} at its coordinator, where it is over: nothing will end it here")


def _ongoing(known: Transaction) -> Standing:
    since = f"Ongoing since {moment(known.start_ms)}"
    if known.timeout_ms >= NO_TIMEOUT_MS or known.start_ms < 0:
        return Standing(ONGOING, f"{since}, without a time-out", -1)
    ends_ms = known.start_ms + known.timeout_ms
    text = f"{since}, time-out {duration(known.timeout_ms)}: its coordinator aborts it from {moment(ends_ms)} on"
    return Standing(ONGOING, text, ends_ms)


# -- from files


def read_directory(directory: str) -> Coordinators:
    """What `__transaction_state` in a data directory tells. Raises StorageError if it is no data directory."""
    folders = [folder for folder in inspect.partitions(directory) if folder.topic == TRANSACTIONS]
    found = Coordinators(where="in this directory")
    if not folders:
        found.cannot = f"there is no {TRANSACTIONS} in this directory: it cannot be told whether it will be ended"
    numbers = {folder.partition for folder in folders}
    if numbers != set(range(len(numbers))):  # as with several log.dirs
        found.partial = f"some partitions of {TRANSACTIONS} lie elsewhere: its coordinator may be there"
    for folder in folders:
        for key, value in _records(folder, found):
            try:
                entry = decode(key, value)
            except MalformedMessage:
                continue  # `ottla dump` shows it
            if entry is not None:
                if entry.transaction is None:
                    found.forget(entry.transactional_id)
                else:
                    found.learn(entry.transaction)
    return found


def _records(folder: inspect.PartitionFolder, into: Coordinators) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values, oldest first, up to the first damage; what is deleted meanwhile is passed over."""
    for segment in folder.segments:
        where = f"{folder.topic}-{folder.partition}/{os.path.basename(segment.path)}"
        try:
            with inspect.FileSource(segment.path) as source:
                for found in inspect.entries(source):
                    if isinstance(found, inspect.Damage):
                        if found.is_tail and segment is folder.segments[-1]:  # it is being written
                            return
                        raise CorruptRecords(f"at byte {found.position}: {found.reason}")
                    if not found.crc_ok or found.size_bytes > inspect.ENTRY_BYTES_MAX:
                        raise CorruptRecords(f"at byte {found.position}: an entry that is not sound")
                    if not found.header.is_control:
                        for record in batch.records(source.read(found.position, found.size_bytes)):
                            yield bytes(record.key or b""), None if record.value is None else bytes(record.value)
        except StorageError as error:
            if os.path.exists(segment.path):
                into.damage = str(error)
                return
        except (CorruptRecords, InvalidRecords, UnsupportedCodec, OSError) as error:
            into.damage = f"{where} {error}"
            return
