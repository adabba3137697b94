"""The analysis of `ottla explain`: the producers in a partition's log, and the responses to their next batches."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from ...broker.config.log_config import log_config
from ...broker.config.values import Config, TopicConfig
from ...broker.replica import producer_answers
from ...broker.replica.producer_answers import BatchVerdict, Judge, ProducerBatch
from ...broker.replica.producer_history import History, Stretch, Written
from ...broker.replica.producer_log import LogBatch, PartitionFiles
from ...storage.producers.producer_state import ACCEPT, CachedBatch, Producer, advance, forget_below, judge
from .transactions import SeenFiles


class Explanation:
    """The analysis of one partition. The other attributes are complete after all `stretches` were consumed.

    `known` is the producer state of a broker that has run since the log began; `from_snapshot` are the producers that
    have no batch in the log and are known from a snapshot only.
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
        self._arguments: Namespace = parsed
        self._magic = wanted.rules.target_magic
        self.transactions = SeenFiles(files, parsed.directory)
        """The transactions of all producers."""
        self._copy: Written | None = None  # the newest batch with the requested sequences

    def stretches(self) -> Iterator[Stretch]:
        """Reads the log, and yields the history of the producers."""
        for found in self.files.batches():
            self.transactions.step(found)
            if found.header.producer_id >= 0 and self.producer_id in (None, found.header.producer_id):
                self._remember(found)
                if found.header.base_sequence == self._arguments.next_sequence:
                    self._compare(found)
            yield from self.history.step(found)
        yield from self.history.finish()
        self.transactions.finish()
        forget_below(self.known, self.files.log_start_offset, self.rules)
        self._look_into_snapshot()

    def _remember(self, found: LogBatch) -> None:
        """Updates the producer state as a broker does that has run since the log began.

        Entries below the log start offset are kept. If a later batch was appended that does not follow such an entry,
        the broker had expired the producer before, so the entry is dropped.
        """
        header = found.header
        known = self.known.get(header.producer_id)
        is_gone = known is not None and known.last_offset < self.files.log_start_offset and not header.is_control
        if is_gone and judge(known, header, self.rules) is not ACCEPT:
            del self.known[header.producer_id]
        marker_epoch = found.marker.coordinator_epoch if found.marker else -1
        advance(self.known, header, 0, self.rules, marker_epoch)

    def _compare(self, found: LogBatch) -> None:
        header, given = found.header, self._arguments
        if header.last_offset_delta + 1 == (given.count or 1) and given.epoch in (None, header.producer_epoch):
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
        """The producer whose batches are explained: that of --producer-id, or the only one."""
        if self.producer_id is None and len(self.known) == 1:
            return next(iter(self.known))
        return self.producer_id

    def responses(self, producer_id: int) -> list[BatchVerdict]:
        """Returns the responses to the batch of --next-sequence, or to examples."""
        by = Judge(self.profile, self.rules, self._magic, self.files.log_start_offset, self.files.size_bytes)
        known, history, given = self.known.get(producer_id), self.history.producers.get(producer_id), self._arguments
        if given.next_sequence is not None:
            epoch = given.epoch if given.epoch is not None else known.epoch if known else 0
            copy = self._copy if self._copy is not None and self._copy.epoch == epoch else None
            in_one = known is not None and known.transaction_first_offset >= 0
            wanted = ProducerBatch("as given", epoch, given.next_sequence, given.count or 1, in_one)
            return [producer_answers.batch_verdict(by, producer_id, known, wanted, copy)]
        recent = history.recent if history else []
        return [
            producer_answers.batch_verdict(by, producer_id, known, example, _copy_of(example, recent))
            for example in producer_answers.examples(known, recent, self.rules)
        ]


def _copy_of(wanted: ProducerBatch, recent: Sequence[Written]) -> Written | None:
    """Returns the newest batch with the same sequences and epoch, or None."""
    key = (wanted.epoch, wanted.first_sequence, wanted.last_sequence)
    same = [w for w in recent if (w.epoch, w.batch.first_sequence, w.batch.last_sequence) == key]
    return same[-1] if same else None
