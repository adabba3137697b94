"""The transactions of partitions, and those that hold back the last stable offset.

Owns the analysis of a data directory. It is read without a lock and nothing is written, so a broker may run on it: a
transaction that seems to hang is checked a second time, since it may have begun or ended meanwhile. Memory use grows
with the transactional ids and the open transactions, not with the log.
"""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence

from ...broker.replica.producer_log import LogBatch, PartitionFiles, find
from ...broker.transactions.state import Transaction
from ...protocol.named import NamedTuple
from ...storage.errors import StorageError
from ...storage.producers.producer_state import Producer, ProducerRules
from .coordinators import (
    ENDING,
    HANGING,
    IN_PROGRESS,
    UNKNOWN,
    Coordinators,
    Status,
    read_directory,
    status_at_coordinator,
)
from .transaction_history import InPartition, TransactionHistory


class Open(NamedTuple):
    """An open transaction with its status at the coordinator."""

    transaction: InPartition
    status: Status


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
        if self.coordinators is None or self._hangs():
            self.coordinators = read_directory(self._directory)
            self.open = self._with_status(self.coordinators)
        if self._hangs():
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

    def _hangs(self) -> bool:
        return any(one.status.kind == HANGING for one in self.open)

    def _look_again(self) -> None:
        """Reads the producer state again: a hanging transaction must still be open after the coordinators were read."""
        known: dict[int, Producer] = {}
        with contextlib.suppress(StorageError):
            (now,) = find(self._directory, self.topic, self.partition)
            known, _ = now.producers(ProducerRules())
        still = {(producer_id, one.transaction_first_offset) for producer_id, one in known.items()}
        ended = Status(ENDING, "it ended during the analysis")
        self.open = [
            one._replace(status=ended)
            if one.status.kind == HANGING and (one.transaction.producer_id, one.transaction.first_offset) not in still
            else one
            for one in self.open
        ]


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
