"""The transactions of partitions, their statuses at the coordinators, and those that hold back the last stable offset.

Owns the analysis of a data directory, with the rules of a status, which are pure. A transaction that no coordinator
will end is hanging: it holds back the last stable offset forever (KIP-664). The directory is read without a lock and
nothing is written, so a broker may run on it: a transaction that seems to hang is checked a second time, since it may
have begun or ended meanwhile. Memory use grows with the transactional ids and the open transactions, not with the log.
"""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ...broker.metadata.record_values import TRANSACTIONS
from ...broker.replica.producer_log import LogBatch, PartitionFiles, find
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
from ...storage.producers.producer_state import Producer, ProducerRules

OPEN, COMMITTED, ABORTED, ENDED, EMPTY = "open", "committed", "aborted", "ended", "empty"
_ENDINGS = {"COMMIT": COMMITTED, "ABORT": ABORTED}

DECIDED = {TransactionState.PREPARE_COMMIT: "COMMIT", TransactionState.PREPARE_ABORT: "ABORT"}
IN_PROGRESS = {TransactionState.ONGOING, *DECIDED}
ONGOING, ENDING, HANGING, UNKNOWN = "ongoing", "ending", "hanging", "unknown"


# In a log


class InPartition(NamedTuple):
    """A transaction in one partition; unknown numbers are -1.

    `first_offset` and `last_offset` are those of its records. `first_offset` is -1 for a marker without records: none
    were written here, or they are no longer in the log. `batches` and `records` count those in the log now; they and
    `last_offset` are -1 if the source is a broker. `begun_ms` is the timestamp of the first batch. `state` is open,
    committed, aborted, or ended for an unreadable marker. `marker_epoch` is above `epoch` if the end of the transaction
    bumped the epoch, to fence the producer or by KIP-890.
    """

    producer_id: int
    epoch: int
    first_offset: int
    last_offset: int
    batches: int
    records: int
    begun_ms: int
    newest_ms: int
    state: str
    marker_offset: int = -1
    marker_epoch: int = -1
    coordinator_epoch: int = -1
    ended_ms: int = -1


class TransactionHistory:
    """Follows the transactions of a log. `opening` are the producers with a transaction open where the files begin."""

    def __init__(self, log_start_offset: int, opening: Mapping[int, Producer] | None = None) -> None:
        self._log_start_offset = log_start_offset
        self.open: dict[int, InPartition] = {
            producer_id: _begun(producer_id, known.epoch, known.transaction_first_offset)
            for producer_id, known in (opening or {}).items()
        }
        """The open transactions, by producer."""
        self.ended: Counter[str] = Counter()
        """The number of transactions ended at or above the log start, by state; EMPTY for those without records."""

    def step(self, found: LogBatch) -> InPartition | None:
        """Processes the next batch. Returns the transaction that it ends, unless the marker is below the log start."""
        header = found.header
        if header.producer_id < 0:
            return None
        known = self.open.get(header.producer_id)
        if not header.is_control:
            if known is not None or header.is_transactional:
                known = known or _begun(header.producer_id, header.producer_epoch, header.base_offset)
                self.open[header.producer_id] = _joined(known, found) if header.is_transactional else known
            return None
        self.open.pop(header.producer_id, None)
        if header.last_offset < self._log_start_offset:
            return None
        kind, coordinator_epoch = found.marker or ("?", -1)
        state = _ENDINGS.get(kind, ENDED)
        self.ended[EMPTY if known is None else state] += 1
        return (known or _begun(header.producer_id, header.producer_epoch, -1))._replace(
            state=state,
            marker_offset=header.base_offset,
            marker_epoch=header.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            ended_ms=header.max_timestamp,
        )

    @property
    def still_open(self) -> list[InPartition]:
        """The open transactions, by first offset."""
        return sorted(self.open.values(), key=lambda one: one.first_offset)

    def last_stable_offset(self, end_offset: int) -> int:
        """Returns the last stable offset of a log that ends at `end_offset`."""
        first = min((one.first_offset for one in self.open.values()), default=end_offset)
        return max(first, self._log_start_offset)


def _begun(producer_id: int, epoch: int, first_offset: int) -> InPartition:
    return InPartition(producer_id, epoch, first_offset, -1, 0, 0, -1, -1, OPEN)


def _joined(known: InPartition, found: LogBatch) -> InPartition:
    header = found.header
    first_ms = header.max_timestamp if header.has_delete_horizon else header.base_timestamp
    is_first = not known.batches and known.first_offset == header.base_offset
    return known._replace(
        epoch=header.producer_epoch,
        last_offset=header.last_offset,
        batches=known.batches + 1,
        records=known.records + max(header.record_count, 0),
        begun_ms=first_ms if is_first else known.begun_ms,
        newest_ms=max(known.newest_ms, header.max_timestamp),
    )


# At the coordinators


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
        for producer_id in (transaction.previous_producer_id, transaction.next_producer_id, transaction.producer_id):
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


# Of partitions


class Open(NamedTuple):
    """An open transaction with its status at the coordinator."""

    transaction: InPartition
    status: Status


def looked_at_again(known: list[Open], still: Collection[tuple[int, int]]) -> list[Open]:
    """Returns open transactions, hanging only if they are `still` open, by producer id and first offset, after the
    coordinators were read."""
    ended = Status(ENDING, "it ended during the analysis")
    return [
        one._replace(status=ended)
        if one.status.kind == HANGING and (one.transaction.producer_id, one.transaction.first_offset) not in still
        else one
        for one in known
    ]


class Seen:
    """The transactions of one partition. The other attributes are complete after all `transactions` were consumed.

    `ended` counts the ended transactions by state; None if the source is a broker.
    """

    def __init__(self, topic: str, partition: int, log_start_offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.log_start_offset = log_start_offset
        self.end_offset = -1
        self.last_stable_offset = -1
        self.open: list[Open] = []
        self.ended: Counter[str] | None = None
        self.damage: str | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def holder(self) -> Open | None:
        """The open transaction with the lowest first offset, which is the last stable offset; None without one."""
        return self.open[0] if self.open else None

    @property
    def hangs(self) -> bool:
        """Whether an open transaction seems to hang."""
        return any(one.status.kind == HANGING for one in self.open)

    def transactions(self) -> Iterator[InPartition]:
        """Yields the ended transactions in the order of their markers, then the open ones."""
        return iter([one.transaction for one in self.open])


class SeenFiles(Seen):
    """The transactions of a partition in a data directory. `coordinators` is None if they were not read yet."""

    def __init__(self, files: PartitionFiles, directory: str, coordinators: Coordinators | None = None) -> None:
        super().__init__(files.folder.topic, files.folder.partition, files.log_start_offset)
        self.coordinators = coordinators
        self._files = files
        self._directory = directory
        self._history = TransactionHistory(files.log_start_offset, files.opening())

    def transactions(self) -> Iterator[InPartition]:
        for found in self._files.batches():
            ended = self.step(found)
            if ended is not None:
                yield ended
        self.finish()
        yield from super().transactions()

    def step(self, found: LogBatch) -> InPartition | None:
        """Processes the next batch, for a caller that reads the log itself. Returns the transaction that it ends."""
        return self._history.step(found)

    def finish(self) -> None:
        """Determines the open transactions and their statuses, after all batches."""
        history = self._history
        self.end_offset, self.damage = self._files.end_offset, self._files.damage
        self.last_stable_offset = history.last_stable_offset(self.end_offset)
        self.ended = history.ended
        if not history.open:
            return
        if self.coordinators is not None:
            self.open = self._with_status(self.coordinators)
        if self.coordinators is None or self.hangs:
            self.coordinators = read_directory(self._directory)
            self.open = self._with_status(self.coordinators)
        if self.hangs:
            self._look_again()

    def _with_status(self, coordinators: Coordinators) -> list[Open]:
        found = [
            Open(one, status_at_coordinator(self.topic, self.partition, one, coordinators))
            for one in self._history.still_open
        ]
        if self.damage is None:
            return found
        unknown = Status(UNKNOWN, "its marker may be after the damage")
        return [one._replace(status=unknown) if one.status.kind == HANGING else one for one in found]

    def _look_again(self) -> None:
        """Reads the producer state again: a hanging transaction must still be open after the coordinators were read."""
        known: dict[int, Producer] = {}
        with contextlib.suppress(StorageError):
            (now,) = find(self._directory, self.topic, self.partition)
            known, _ = now.producers(ProducerRules())
        still = {(producer_id, one.transaction_first_offset) for producer_id, one in known.items()}
        self.open = looked_at_again(self.open, still)


class Report:
    """The report on several partitions, which are read while `partitions` is consumed."""

    def __init__(
        self, source: dict[str, str], seen: Sequence[Seen], coordinators: Coordinators, arguments: Namespace
    ) -> None:
        self.source = source
        self.coordinators = coordinators
        self.is_all = None not in (arguments.topic, arguments.partition)
        """Whether partitions without a transaction are shown: if a single one was requested."""
        self._seen = seen
        self._arguments = arguments

    def partitions(self) -> Iterator[tuple[Seen, Iterator[InPartition]]]:
        """Yields each partition with its transactions that match the filters."""
        for seen in self._seen:
            yield seen, (one for one in seen.transactions() if self.is_wanted(one.producer_id))
            if isinstance(seen, SeenFiles) and seen.coordinators is not None:
                self.coordinators = seen.coordinators

    def is_wanted(self, producer_id: int) -> bool:
        """Returns whether a producer matches --producer-id and --transactional-id."""
        arguments = self._arguments
        if arguments.producer_id is not None and producer_id != arguments.producer_id:
            return False
        return arguments.transactional_id is None or self.coordinators.id_of(producer_id) == arguments.transactional_id

    def at_coordinators(self) -> list[Transaction]:
        """Returns the matching transactions in progress at their coordinators; with --transactional-id, that one."""
        arguments = self._arguments
        known = [self.coordinators.transactions[name] for name in sorted(self.coordinators.transactions)]
        if arguments.transactional_id is not None:
            return [one for one in known if one.transactional_id == arguments.transactional_id]
        return [one for one in known if one.state in IN_PROGRESS and self._matches(one)]

    def _matches(self, one: Transaction) -> bool:
        arguments = self._arguments
        if arguments.producer_id is not None and self.coordinators.id_of(arguments.producer_id) != one.transactional_id:
            return False
        places = [(topic, index) for topic, index in one.partitions if arguments.topic in (None, topic)]
        if arguments.topic is None and arguments.partition is None:
            return True
        return any(arguments.partition in (None, index) for _, index in places)
