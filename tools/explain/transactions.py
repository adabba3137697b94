"""The transactions in partitions, and what holds back consumers that read committed records.

Owns what is looked at, in a data directory or at a broker. A directory is read without a lock and nothing is written,
so a broker may run on it: a transaction that seems to hang is looked at once more, since it may have begun or ended
meanwhile. Memory grows with the transactional ids and the open transactions, not with the log.
"""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...broker.replica.producer_log import LogBatch, PartitionFiles, find
from ...broker.transactions.state import Transaction
from ...storage.errors import StorageError
from ...storage.producers.producer_state import Producer, ProducerRules
from .coordinators import ENDING, HANGING, IN_PROGRESS, UNKNOWN, Coordinators, Standing, read_directory, standing
from .transaction_history import InPartition, TransactionHistory


class Open(NamedTuple):
    """An open transaction, and how it stands with its coordinator."""

    transaction: InPartition
    standing: Standing


class Seen:
    """One partition. Take all `transactions`, then ask for the rest; the last to come are those that are open.

    `ended` counts those that are over, None where that is not known, as of a broker.
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
        """The open transaction that began first: behind its beginning nothing is stable."""
        return self.open[0] if self.open else None

    def transactions(self) -> Iterator[InPartition]:
        """Each transaction: those that are over in the order of their markers, then those that are open."""
        return iter([one.transaction for one in self.open])


class SeenFiles(Seen):
    """One partition of a data directory. `coordinators` is what was read of it before, None if nothing was."""

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
        """One batch, for who reads them himself; the transaction that it ends."""
        return self._history.step(found)

    def finish(self) -> None:
        """All batches were read: what is still open, and how that stands."""
        history = self._history
        self.end_offset, self.damage = self._files.end_offset, self._files.damage
        self.last_stable_offset = history.last_stable_offset(self.end_offset)
        self.ended = history.ended
        if not history.open:
            return
        if self.coordinators is not None:
            self.open = self._stand(self.coordinators)
        if self.coordinators is None or self._hangs():
            self.coordinators = read_directory(self._directory)
            self.open = self._stand(self.coordinators)
        if self._hangs():
            self._look_again()

    def _stand(self, coordinators: Coordinators) -> list[Open]:
        found = [Open(one, standing(self.topic, self.partition, one, coordinators)) for one in self._history.still_open]
        if self.damage is None:
            return found
        unknown = Standing(UNKNOWN, "its end may lie behind the damage")
        return [one._replace(standing=unknown) if one.standing.kind == HANGING else one for one in found]

    def _hangs(self) -> bool:
        return any(one.standing.kind == HANGING for one in self.open)

    def _look_again(self) -> None:
        """One that hangs is open here before and after a moment in which no coordinator knows of it."""
        known: dict[int, Producer] = {}
        with contextlib.suppress(StorageError):
            (now,) = find(self._directory, self.topic, self.partition)
            known, _ = now.producers(ProducerRules())
        still = {(producer_id, one.transaction_first_offset) for producer_id, one in known.items()}
        ended = Standing(ENDING, "it ended while this was read")
        self.open = [
            one._replace(standing=ended)
            if one.standing.kind == HANGING and (one.transaction.producer_id, one.transaction.first_offset) not in still
            else one
            for one in self.open
        ]


class Report:
    """What is to be printed. `partitions` are read while they are printed; `coordinators` is asked behind them."""

    def __init__(
        self, source: dict[str, str], seen: Sequence[Seen], coordinators: Coordinators, asked: Namespace
    ) -> None:
        self.source = source
        self.coordinators = coordinators
        self.is_all = None not in (asked.topic, asked.partition)
        """Whether partitions without a transaction are shown, too."""
        self._seen = seen
        self._asked = asked

    def partitions(self) -> Iterator[tuple[Seen, Iterator[InPartition]]]:
        """Each partition and those of its transactions that are asked for."""
        for seen in self._seen:
            yield seen, (one for one in seen.transactions() if self.is_wanted(one.producer_id))
            if isinstance(seen, SeenFiles) and seen.coordinators is not None:
                self.coordinators = seen.coordinators

    def is_wanted(self, producer_id: int) -> bool:
        """Whether it was asked for this producer."""
        asked = self._asked
        if asked.producer_id is not None and producer_id != asked.producer_id:
            return False
        return asked.transactional_id is None or self.coordinators.id_of(producer_id) == asked.transactional_id

    def at_coordinators(self) -> list[Transaction]:
        """What coordinators have under way, of what is asked for; with an id that is asked for by name, that one."""
        asked = self._asked
        known = [self.coordinators.transactions[name] for name in sorted(self.coordinators.transactions)]
        if asked.transactional_id is not None:
            return [one for one in known if one.transactional_id == asked.transactional_id]
        return [one for one in known if one.state in IN_PROGRESS and self._is_asked_for(one)]

    def _is_asked_for(self, one: Transaction) -> bool:
        asked = self._asked
        if asked.producer_id is not None and self.coordinators.id_of(asked.producer_id) != one.transactional_id:
            return False
        places = [(topic, index) for topic, index in one.partitions if asked.topic in (None, topic)]
        if asked.topic is None and asked.partition is None:
            return True
        return any(asked.partition in (None, index) for _, index in places)
