"""The state of transactional ids at their coordinators, and from it the status of transactions open in partitions.

Owns the status rules, which are pure, and the reading of `__transaction_state` in a data directory, without a lock. A
transaction that no coordinator will end is hanging: it holds back the last stable offset forever (KIP-664).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ...broker.metadata.record_values import TRANSACTIONS
from ...broker.trace.tracer import quoted
from ...broker.transactions.records import decode
from ...broker.transactions.state import NO_TIMEOUT_MS, Transaction, TransactionState
from ...protocol.errors import MalformedMessage
from ...protocol.named import NamedTuple
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
    """The newest state of each transactional id.

    `cannot` is the reason if no state can be read, and `damage` the reason if some states may be missing.
    """

    def __init__(self, found: Iterable[Transaction] = (), *, cannot: str | None = None, where: str = "here") -> None:
        self.transactions: dict[str, Transaction] = {}
        self.cannot = cannot
        self.damage: str | None = None
        self.partial: str | None = None
        """The reason if whole partitions of `__transaction_state` are missing."""
        self.where = where
        self._ids: dict[int, str] = {}
        for transaction in found:
            self.learn(transaction)

    def learn(self, transaction: Transaction) -> None:
        """Stores a newer state. Earlier producer ids of the transactional id still lead to it."""
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
        """Removes an expired transactional id; `id_of` still finds it by its producer ids."""
        self.transactions.pop(transactional_id, None)

    def id_of(self, producer_id: int) -> str | None:
        """Returns the transactional id of a current or earlier producer id, or None."""
        return self._ids.get(producer_id)

    def of(self, producer_id: int) -> Transaction | None:
        """Returns the state of the transactional id of a current or earlier producer id, or None."""
        return self.transactions.get(self._ids.get(producer_id, ""))


class Status(NamedTuple):
    """The status at its coordinator of a transaction that is open in a partition.

    `kind`: "ongoing" (may still be committed or aborted), "ending" (decided, the marker is not written yet), "hanging"
    (no coordinator will end it), "unknown" (the coordinator's state cannot be read). `ends_ms` is the time of the
    time-out of an ongoing transaction, -1 for none; None for the other kinds.
    """

    kind: str
    why: str
    ends_ms: int | None = None


def status_at_coordinator(topic: str, partition: int, of: InPartition, coordinators: Coordinators) -> Status:
    """Returns the status of an open transaction."""
    found = _status(topic, partition, of, coordinators)
    if found.kind == HANGING and coordinators.damage is not None:
        return Status(UNKNOWN, f"the log of its coordinator is damaged: {coordinators.damage}")
    return found


def _status(topic: str, partition: int, of: InPartition, coordinators: Coordinators) -> Status:
    if coordinators.cannot is not None:
        return Status(UNKNOWN, coordinators.cannot)
    known, name = coordinators.of(of.producer_id), coordinators.id_of(of.producer_id)
    if known is None:
        if name is None and coordinators.partial is not None:
            return Status(UNKNOWN, coordinators.partial)
        if name is None:
            return Status(HANGING, f"no coordinator {coordinators.where} has this producer: nothing will end it")
        return Status(
            HANGING, f"the transactional id {quoted(name)} has expired at its coordinator: nothing will end it"
        )
    holds = (topic, partition) in known.partitions
    state = known.state.value
    if known.state in DECIDED and holds:
        at = f" at {moment(known.last_update_ms)}" if known.last_update_ms >= 0 else ""
        return Status(ENDING, f"{state}: decided{at}, its {DECIDED[known.state]} marker is not written here yet")
    if known.state is TransactionState.ONGOING and holds:
        if known.producer_id == of.producer_id and known.producer_epoch == of.epoch:
            return _ongoing(known)
        now = f"producer {known.producer_id} epoch {known.producer_epoch}"
        return Status(HANGING, f"its coordinator has another transaction, of {now}: nothing will end this one")
    if known.state in IN_PROGRESS:
        return Status(HANGING, f"{state} at its coordinator, without this partition: nothing will end it here")
    return Status(HANGING, f"{state} at its coordinator, already ended there: nothing will end it here")


def _ongoing(known: Transaction) -> Status:
    since = f"Ongoing since {moment(known.start_ms)}"
    if known.timeout_ms >= NO_TIMEOUT_MS or known.start_ms < 0:
        return Status(ONGOING, f"{since}, no time-out", -1)
    ends_ms = known.start_ms + known.timeout_ms
    text = f"{since}, time-out {duration(known.timeout_ms)}: its coordinator aborts it after {moment(ends_ms)}"
    return Status(ONGOING, text, ends_ms)


# From files


def read_directory(directory: str) -> Coordinators:
    """Reads `__transaction_state` of a data directory. Raises StorageError if it is not a data directory."""
    folders = [folder for folder in inspect.partitions(directory) if folder.topic == TRANSACTIONS]
    found = Coordinators(where="in this directory")
    if not folders:
        found.cannot = f"no {TRANSACTIONS} in this directory: the coordinator's state is unknown"
    numbers = {folder.partition for folder in folders}
    if numbers != set(range(len(numbers))):  # a broker with several log.dirs
        found.partial = f"some partitions of {TRANSACTIONS} are in other directories: its coordinator may be there"
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
    """Yields keys and values, oldest first, until the first damage. Segments deleted meanwhile are skipped."""
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
                        raise CorruptRecords(f"at byte {found.position}: a damaged batch")
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
