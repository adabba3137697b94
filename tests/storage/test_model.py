"""A log compared with a list: any sequence of appends in any format, reads, look-ups, reopenings and kills."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.protocol.records import batch, formats
from ottla.protocol.records.validate import Rules
from ottla.storage import errors
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla.storage.producers.producer_state import ProducerRules
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.batches import FOLDER, GZIP, make, message, old, open_log
from ottla_testing.storage.simulated_files import SimulatedFiles

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))


class Known(NamedTuple):
    """A batch or an old message that was appended."""

    base_offset: int
    timestamps: list[int]
    values: list[bytes]
    size_bytes: int
    magic: int
    leader_epoch: int = -1
    producer: tuple[int, int, int] | None = None  # id, epoch, first sequence
    sent: bytes = b""

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.values) - 1


class LogMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([250, 700, 5000]),
        index_interval_bytes=st.sampled_from([0, 100, 1000]),
        segment_ms=st.sampled_from([50, 10**9]),
        segment_index_bytes=st.sampled_from([48, 10_000]),
    )
    def open(self, **config: Any) -> None:
        self.config = LogConfig(producer_rules=ProducerRules(drop_below_log_start=True), **config)
        self.files = SimulatedFiles()
        self.log = open_log(self.files, config=self.config)
        self.batches: list[Known] = []
        self.log_start = 0
        self.end = 0
        self.now_ms = 0
        self.producer_epochs = {3: 0, 4: 0}
        self.epochs: list[tuple[int, int]] = []

    @rule(
        timestamps=st.lists(st.integers(0, 200), min_size=1, max_size=4),
        size=st.integers(0, 90),
        codec=st.sampled_from([0, 0, 1, 4]),
        producer_id=st.sampled_from([None, 3, 4]),
    )
    def append(self, timestamps: list[int], size: int, codec: int, producer_id: int | None) -> None:
        values = [b"%d-%d" % (self.end, n) + b"x" * (size // len(timestamps)) for n in range(len(timestamps))]
        records = [batch.Record(n, t, None, v) for n, (t, v) in enumerate(zip(timestamps, values, strict=True))]
        fields: dict[str, Any] = {}
        producer = None
        if producer_id is not None:
            producer = producer_id, self.producer_epochs[producer_id], self.next_sequence(producer_id)
            fields = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
        sent = batch_of(records, codec=codec, **fields)
        copy = bytes(sent)
        self.store_in(2)
        segments, rolls = len(self.log._segments), self.must_roll(len(sent), max(timestamps))
        done = self.log.append(sent, now_ms=self.now_ms)
        assert done == (self.end, self.end + len(values) - 1, -1, self.log_start, False)
        rolled = len(self.log._segments) > segments
        assert rolled == rolls or (rolled and self.config.segment_index_bytes == 48)  # its index was full
        self.batches.append(Known(self.end, timestamps, values, len(copy), 2, self.log.leader_epoch, producer, copy))
        self.note_epoch(2)
        self.end += len(values)

    def must_roll(self, size_bytes: int, timestamp: int) -> bool:
        """Returns whether Kafka's rules by size and time roll, from the list."""
        segment = self.log._active
        held = [known for known in self.batches if known.base_offset >= segment.base_offset]
        if not held:
            return False
        first_ms = max(held[0].timestamps)
        waited_ms = timestamp - first_ms if first_ms >= 0 else self.now_ms - segment.created_ms
        held_bytes = sum(known.size_bytes for known in held)
        return held_bytes + size_bytes > self.config.segment_bytes or waited_ms > self.config.segment_ms

    def of_producer(self, producer_id: int) -> list[Known]:
        """Returns the remaining batches of a producer; without any it is dropped."""
        own = [known for known in self.batches if known.producer is not None and known.producer[0] == producer_id]
        return own if own and own[-1].last_offset >= self.log_start else []

    def next_sequence(self, producer_id: int) -> int:
        own = self.of_producer(producer_id)
        if not own or own[-1].producer is None or own[-1].producer[1] != self.producer_epochs[producer_id]:
            return 0
        return own[-1].producer[2] + len(own[-1].values)

    @rule(producer_id=st.sampled_from([3, 4]))
    def new_producer_epoch(self, producer_id: int) -> None:
        self.producer_epochs[producer_id] += 1

    @rule(producer_id=st.sampled_from([3, 4]), back=st.integers(0, 8))
    def retry(self, producer_id: int, back: int) -> None:
        """Retries a batch: it is never written again, however old it is."""
        own = [known for known in self.of_producer(producer_id) if known.last_offset >= self.log_start]
        if back >= len(own):
            return
        known, newest = own[-1 - back], own[-1]
        assert known.producer is not None and newest.producer is not None
        self.store_in(2)
        if known.producer[1] != newest.producer[1]:
            with pytest.raises(errors.FencedProducer):
                self.log.append(bytearray(known.sent), now_ms=self.now_ms)
            return
        done = self.log.append(bytearray(known.sent), now_ms=self.now_ms)
        assert done == (known.base_offset, known.last_offset, max(known.timestamps), self.log_start, True)

    @rule(producer_id=st.sampled_from([3, 4]), ahead=st.integers(1, 5))
    def leave_a_gap(self, producer_id: int, ahead: int) -> None:
        epoch, sequence = self.producer_epochs[producer_id], self.next_sequence(producer_id)
        sent = make(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence + ahead)
        self.store_in(2)
        with pytest.raises((errors.OutOfOrderSequence, errors.UnknownProducer)):
            self.log.append(sent, now_ms=self.now_ms)

    @rule(by=st.integers(1, 3))
    def new_leader_epoch(self, by: int) -> None:
        self.log.leader_epoch += by

    @rule(epoch=st.integers(-1, 9))
    def end_of_epoch(self, epoch: int) -> None:
        known = self.epochs
        if not known and self.batches:
            expected = -1, -1
        elif epoch == self.log.leader_epoch:
            expected = epoch, self.end
        else:
            # The current leader epoch begins at the end, if it has no batches.
            is_new = not known or known[-1][0] < self.log.leader_epoch
            newest = [(self.log.leader_epoch, self.end)] if is_new else []
            later = [(number, start) for number, start in [*known, *newest] if number > epoch]
            before = [number for number, _ in known if number <= epoch]
            expected = (before[-1] if before else epoch, later[0][1]) if later and epoch >= 0 else (-1, -1)
        assert self.log.end_offset_for_epoch(epoch) == expected

    @rule(by_bytes=st.sampled_from([-1, 0, 300, 900]), by_ms=st.sampled_from([-1, 0, 60]), wait_ms=st.integers(0, 80))
    def retain(self, by_bytes: int, by_ms: int, wait_ms: int) -> None:
        """Checks that the oldest segments were deleted; `test_retention.py` has a model of which."""
        self.now_ms += wait_ms
        self.files.now_ns = self.now_ms * 10**6
        before = [segment.base_offset for segment in self.log._segments]
        self.log.configure(dataclasses.replace(self.config, retention_bytes=by_bytes, retention_ms=by_ms))
        removed = self.log.retain(self.now_ms)
        self.log.configure(self.config)
        after = [segment.base_offset for segment in self.log._segments]
        assert after == before[len(before) - len(after) :] or (after == [self.end] and before[-1] < self.end)
        self.log_start = max(self.log_start, after[0] if removed is not None else 0)
        self.batches = [known for known in self.batches if known.base_offset >= after[0]]
        self.forget_epochs()
        if removed is not None:
            removed.remove()

    def store_in(self, magic: int) -> None:
        self.config = dataclasses.replace(self.config, rules=Rules(target_magic=magic))
        self.log.configure(self.config)

    @rule(
        magic=st.integers(0, 1),
        timestamp=st.integers(0, 190),
        step=st.integers(-3, 3),
        count=st.integers(1, 4),
        size=st.integers(0, 90),
        codec=st.sampled_from([0, 0, GZIP]),
    )
    def append_old(self, magic: int, timestamp: int, step: int, count: int, size: int, codec: int) -> None:
        timestamp += 9
        values = [b"%d-%d" % (self.end, n) + b"x" * (size // count) for n in range(count)]
        sent = old(magic, *values, timestamp=timestamp, step=step, codec=codec)
        self.store_in(magic)
        before = self.log.size_bytes
        try:
            done = self.log.append(sent, now_ms=self.now_ms, produce_version=1 + magic)
        except errors.RecordListTooLarge:
            assert len(sent) > self.config.segment_bytes - 10  # a v0 wrapper is compressed again
            return
        assert done == (self.end, self.end + count - 1, -1, self.log_start, False)
        stamps = [timestamp + n * step if magic else -1 for n in range(count)]
        if codec:
            self.batches.append(Known(self.end, stamps, values, self.log.size_bytes - before, magic))
        else:
            for n, (stamp, value) in enumerate(zip(stamps, values, strict=True)):
                self.batches.append(Known(self.end + n, [stamp], [value], len(message(magic, value)), magic))
        self.note_epoch(magic)
        self.end += count

    @rule(where=st.floats(0, 1), max_bytes=st.integers(0, 1500), at_least_one=st.booleans())
    def read(self, where: float, max_bytes: int, at_least_one: bool) -> None:
        offset = self.log_start + round(where * (self.end - self.log_start))
        data = self.log.read(offset, max_bytes, at_least_one_batch=at_least_one).records
        found = [
            (header.last_offset, header.magic, [record.value for record in formats.records(data, position)])
            for position, header in formats.headers(data)
        ]
        after = self.from_offset(offset)
        assert found == [(known.last_offset, known.magic, known.values) for known in after[: len(found)]]
        assert len(data) == sum(known.size_bytes for known in after[: len(found)])
        if after:
            assert len(data) <= max_bytes or len(found) == 1
            assert found or not (at_least_one or after[0].size_bytes <= max_bytes)
        assert self.log.available_bytes(offset) >= sum(known.size_bytes for known in after)

    def from_offset(self, offset: int) -> list[Known]:
        return [known for known in self.batches if known.last_offset >= offset]

    @rule(where=st.floats(0, 1), max_bytes=st.integers(0, 1500))
    def read_with_a_hard_limit(self, where: float, max_bytes: int) -> None:
        offset = self.log_start + round(where * (self.end - self.log_start))
        data = bytes(self.log.read(offset, max_bytes, hard_limit=True).records)
        after = self.from_offset(offset)
        # So many bytes of the segment's whole entries, of which the last may be cut.
        whole = b"".join(bytes(self.log.read(known.last_offset, 1).records) for known in after[:60])
        assert data == whole[: len(data)]
        bases = [segment.base_offset for segment in self.log._segments]
        ends = [base for base in bases if after and base > after[0].last_offset] or [self.end]
        left = sum(known.size_bytes for known in after if known.last_offset < ends[0])
        assert len(data) == min(max_bytes, left)

    @rule(wanted=st.integers(0, 210))
    def find_timestamp(self, wanted: int) -> None:
        found = self.log.find_timestamp(wanted)
        expected = next(((t, o) for o, t in self.stamps() if t >= wanted), None)
        assert (found and found[:2]) == expected

    @rule()
    def max_timestamp(self) -> None:
        stamps = self.stamps()
        top = max((t for _, t in stamps), default=-1)
        found = self.log.max_timestamp()
        assert (found and found[:2]) == (None if top < 0 else next((t, o) for o, t in stamps if t == top))

    def stamps(self) -> list[tuple[int, int]]:
        everything = [(known.base_offset + n, t) for known in self.batches for n, t in enumerate(known.timestamps)]
        return [(offset, timestamp) for offset, timestamp in everything if offset >= self.log_start]

    @rule(where=st.floats(0, 1))
    def delete_records(self, where: float) -> None:
        if where < 0.8:
            self.log_start += round(where * (self.end - self.log_start) / 3)
        assert self.log.delete_records_before(self.log_start) == self.log_start
        self.forget_epochs()
        assert {key for key in (3, 4) if self.of_producer(key)} == self.log.producers().keys()

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end

    @rule()
    def reopen_clean(self) -> None:
        self.log.close()
        self.log = self.opened()
        assert self.log.cut_bytes == 0

    def opened(self, **more: Any) -> PartitionLog:
        return open_log(self.files, config=self.config, now_ms=self.now_ms, log_start_offset=self.log_start, **more)

    @rule(
        garbage=st.binary(max_size=130),
        torn_entry=st.sampled_from([b"", bytes(make(b"torn")), message(0, b"torn"), message(1, b"torn")]),
        cut=st.integers(1, 60),
    )
    def reopen_after_kill(self, garbage: bytes, torn_entry: bytes, cut: int) -> None:
        """Adds bytes of an unacknowledged write after the last batch."""
        point = self.log.recovery_point
        self.log.abandon()
        torn = torn_entry[:-cut] or garbage
        newest = max(name for name in self.files.list(FOLDER) if name.endswith(".log"))
        self.files.contents[f"{FOLDER}/{newest}"].live += torn
        self.log = self.opened(clean=False, recovery_point=point)
        assert self.log.cut_bytes == len(torn)

    @rule(
        suffix=st.sampled_from([".index", ".timeindex", ".snapshot"]),
        number=st.integers(0, 20),
        flip=st.integers(0, 200),
    )
    def garble_a_hint(self, suffix: str, number: int, flip: int) -> None:
        self.log.close()
        names = sorted(name for name in self.files.list(FOLDER) if name.endswith(suffix))
        if names:
            live = self.files.contents[f"{FOLDER}/{names[number % len(names)]}"].live
            if live:
                live[flip % len(live)] ^= 1 << flip % 8
        self.log = self.opened()

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert (log.log_start_offset, log.log_end_offset) == (self.log_start, self.end)
            assert log.size_bytes == sum(known.size_bytes for known in self.batches)
            assert log._epochs.entries == self.epochs
            assert all(segment.size_bytes <= self.config.segment_bytes for segment in log._segments) or any(
                known.size_bytes > self.config.segment_bytes for known in self.batches
            )

    def note_epoch(self, magic: int) -> None:
        """Clears the epochs for old messages; otherwise adds that of the newest batch at its first offset."""
        if magic < 2:
            self.epochs = []
        elif not self.epochs or self.epochs[-1][0] < self.log.leader_epoch:
            kept = [entry for entry in self.epochs if entry[1] < self.end]
            self.epochs = [*kept, (self.log.leader_epoch, self.end)]

    def forget_epochs(self) -> None:
        """Drops epochs below the log start, except the last one, which then begins there."""
        below = [epoch for epoch, start in self.epochs if start <= self.log_start]
        after = [entry for entry in self.epochs if entry[1] > self.log_start]
        self.epochs = [(epoch, self.log_start) for epoch in below[-1:]] + after


class TestLog(LogMachine.TestCase):
    pytestmark: ClassVar = [pytest.mark.soak, pytest.mark.timeout(900 * max(1.0, SCALE))]
