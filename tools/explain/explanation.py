"""What `ottla explain` found in the log of a partition: its producers, and the answers to their next batches."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from ...broker.config.log_config import log_config
from ...broker.config.values import Config, TopicConfig
from ...broker.replica import producer_answers
from ...broker.replica.producer_answers import BatchVerdict, Judge, ProducerBatch
from ...broker.replica.producer_history import History, Stretch, Written
from ...broker.replica.producer_log import LogBatch, PartitionFiles
from ...storage.producers.producer_state import Accept, CachedBatch, Producer, advance, forget_below, judge
from .transactions import SeenFiles


class Explanation:
    """What is to be printed, found on the way: take all `stretches`, then ask for the rest.

    `known` is what a broker that has run since the log began knows of its producers; `from_snapshot` are those of which
    the log has nothing any more.
    """

    def __init__(self, parsed: Namespace, files: PartitionFiles, config: Config, topic: TopicConfig) -> None:
        wanted = log_config(topic, config)
        self.directory: str = parsed.directory
        self.files = files
        self.profile = config.profile
        self.rules = wanted.producer_rules
        self.knows_producers = config.profile.behaviour.newest_magic == 2
        self.producer_id: int | None = parsed.producer_id
        self.history = History(files.log_start_offset, only=self.producer_id, each_batch=parsed.batches)
        self.known: dict[int, Producer] = {}
        self.from_snapshot: set[int] = set()
        self._asked: Namespace = parsed
        self._magic = wanted.rules.target_magic
        self.transactions = SeenFiles(files, parsed.directory)
        """What became of transactions, of all producers."""
        self._copy: Written | None = None  # the newest batch of the log with the sequences that are asked for

    def stretches(self) -> Iterator[Stretch]:
        """Reads the log."""
        for found in self.files.batches():
            self.transactions.step(found)
            if found.header.producer_id >= 0 and self.producer_id in (None, found.header.producer_id):
                self._remember(found)
                if found.header.base_sequence == self._asked.next_sequence:
                    self._compare(found)
            yield from self.history.step(found)
        yield from self.history.finish()
        self.transactions.finish()
        forget_below(self.known, self.files.log_start_offset, self.rules)
        self._look_into_snapshot()

    def _remember(self, found: LogBatch) -> None:
        """As a broker that has run all the while: it remembers also what is below the log start now.

        A batch that it took although it does not fit to that tells that the producer had been forgotten meanwhile.
        """
        header = found.header
        known = self.known.get(header.producer_id)
        is_gone = known is not None and known.last_offset < self.files.log_start_offset and not header.is_control
        if is_gone and not isinstance(judge(known, header, self.rules), Accept):
            del self.known[header.producer_id]
        marker_epoch = found.marker.coordinator_epoch if found.marker else -1
        advance(self.known, header, 0, self.rules, marker_epoch)

    def _compare(self, found: LogBatch) -> None:
        header, asked = found.header, self._asked
        if header.last_offset_delta + 1 == (asked.count or 1) and asked.epoch in (None, header.producer_epoch):
            sequences, offsets = (header.base_sequence, header.last_sequence), (header.base_offset, header.last_offset)
            of = CachedBatch(*sequences, *offsets, header.max_timestamp)
            self._copy = Written(of, header.producer_epoch, found.log_position)

    def _look_into_snapshot(self) -> None:
        for offset, found in self.files.snapshots():
            if offset <= self.files.end_offset:
                forget_below(found, self.files.log_start_offset, self.rules)
                for producer_id in found.keys() - self.known.keys():
                    if self.producer_id in (None, producer_id):
                        self.known[producer_id] = found[producer_id]
                        self.from_snapshot.add(producer_id)
                return

    @property
    def explained(self) -> int | None:
        """The producer to whose batches answers are given: the one asked for, or the only one."""
        if self.producer_id is None and len(self.known) == 1:
            return next(iter(self.known))
        return self.producer_id

    def answers(self, producer_id: int) -> list[BatchVerdict]:
        """To the batch that is asked for, or to examples."""
        by = Judge(
            self.profile.name,
            self.rules,
            self._magic,
            self.knows_producers,
            self.files.log_start_offset,
            self.files.size_bytes,
        )
        known, history, asked = self.known.get(producer_id), self.history.producers.get(producer_id), self._asked
        if asked.next_sequence is not None:
            epoch = asked.epoch if asked.epoch is not None else known.epoch if known else 0
            copy = self._copy if self._copy is not None and self._copy.epoch == epoch else None
            in_one = known is not None and known.transaction_first_offset >= 0
            wanted = ProducerBatch("as asked", epoch, asked.next_sequence, asked.count or 1, in_one)
            return [producer_answers.batch_verdict(by, producer_id, known, wanted, copy)]
        recent = history.recent if history else []
        return [
            producer_answers.batch_verdict(by, producer_id, known, example, _copy_of(example, recent))
            for example in producer_answers.examples(known, recent, self.rules)
        ]


def _copy_of(asked: ProducerBatch, recent: Sequence[Written]) -> Written | None:
    """The newest batch with the same sequences and epoch."""
    wanted = (asked.epoch, asked.first_sequence, asked.last_sequence)
    same = [w for w in recent if (w.epoch, w.batch.first_sequence, w.batch.last_sequence) == wanted]
    return same[-1] if same else None
