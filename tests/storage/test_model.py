"""A list of records against a log: any sequence of appends in any format, reads, look-ups, reopenings and kills."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar, NamedTuple

import pytest
from batches import FOLDER, GZIP, make, message, old, open_log
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from simulated_files import SimulatedFiles

from ottla.protocol.records import batch, formats
from ottla.protocol.records.validate import Rules
from ottla.storage import errors
from ottla.storage.log import LogConfig

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))


class Known(NamedTuple):
    """A batch or an old message that was appended."""

    base_offset: int
    timestamps: list[int]
    values: list[bytes]
    size_bytes: int
    magic: int

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
        self.config = LogConfig(**config)
        self.files = SimulatedFiles()
        self.log = open_log(self.files, config=self.config)
        self.batches: list[Known] = []
        self.log_start = 0
        self.end = 0
        self.sequence = 0

    @rule(
        timestamps=st.lists(st.integers(0, 200), min_size=1, max_size=4),
        size=st.integers(0, 90),
        codec=st.sampled_from([0, 0, 1, 4]),
        idempotent=st.booleans(),
    )
    def append(self, timestamps: list[int], size: int, codec: int, idempotent: bool) -> None:
        values = [b"%d-%d" % (self.end, n) + b"x" * (size // len(timestamps)) for n in range(len(timestamps))]
        records = [batch.Record(n, t, None, v) for n, (t, v) in enumerate(zip(timestamps, values, strict=True))]
        fields: dict[str, Any] = {}
        if idempotent:
            fields = {"producer_id": 3, "producer_epoch": 0, "base_sequence": self.sequence}
        sent = batch.build(records, codec=codec, **fields)
        copy = bytearray(sent)
        size_bytes = len(sent)
        self.store_in(2)
        done = self.log.append(sent, now_ms=0)
        assert done == (self.end, self.end + len(values) - 1, -1, self.log_start, False)
        if idempotent:
            self.sequence += len(values)
            assert self.log.append(copy, now_ms=0) == (*done[:2], max(timestamps), self.log_start, True)
        self.batches.append(Known(self.end, timestamps, values, size_bytes, 2))
        self.end += len(values)

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
            done = self.log.append(sent, now_ms=0, produce_version=1 + magic)
        except errors.RecordListTooLarge:
            assert len(sent) > self.config.segment_bytes - 10  # a v0 wrapper is written anew
            return
        assert done == (self.end, self.end + count - 1, -1, self.log_start, False)
        stamps = [timestamp + n * step if magic else -1 for n in range(count)]
        if codec:
            self.batches.append(Known(self.end, stamps, values, self.log.size_bytes - before, magic))
        else:
            for n, (stamp, value) in enumerate(zip(stamps, values, strict=True)):
                self.batches.append(Known(self.end + n, [stamp], [value], len(message(magic, value)), magic))
        self.end += count

    @rule(where=st.floats(0, 1), max_bytes=st.integers(0, 1500), at_least_one=st.booleans())
    def read(self, where: float, max_bytes: int, at_least_one: bool) -> None:
        offset = self.log_start + round(where * (self.end - self.log_start))
        data = self.log.read(offset, max_bytes, at_least_one_batch=at_least_one).records
        found = [
            (header.last_offset, header.magic, [record.value for record in formats.records(data, position)])
            for position, header in formats.headers(data)
        ]
        behind = self.from_offset(offset)
        assert found == [(known.last_offset, known.magic, known.values) for known in behind[: len(found)]]
        assert len(data) == sum(known.size_bytes for known in behind[: len(found)])
        if behind:
            assert len(data) <= max_bytes or len(found) == 1
            assert found or not (at_least_one or behind[0].size_bytes <= max_bytes)
        assert self.log.available_bytes(offset) >= sum(known.size_bytes for known in behind)

    def from_offset(self, offset: int) -> list[Known]:
        return [known for known in self.batches if known.last_offset >= offset]

    @rule(where=st.floats(0, 1), max_bytes=st.integers(0, 1500))
    def read_with_a_hard_limit(self, where: float, max_bytes: int) -> None:
        offset = self.log_start + round(where * (self.end - self.log_start))
        data = bytes(self.log.read(offset, max_bytes, hard_limit=True).records)
        behind = self.from_offset(offset)
        # So many bytes of the segment's whole entries, of which the last may be cut.
        whole = b"".join(bytes(self.log.read(known.last_offset, 1).records) for known in behind[:60])
        assert data == whole[: len(data)]
        bases = [segment.base_offset for segment in self.log._segments]
        ends = [base for base in bases if behind and base > behind[0].last_offset] or [self.end]
        left = sum(known.size_bytes for known in behind if known.last_offset < ends[0])
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
        producer = self.log._known_producers().get(3)
        if producer is None:
            self.sequence = 0

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end

    @rule()
    def reopen_clean(self) -> None:
        self.log.close()
        self.log = open_log(self.files, config=self.config, log_start_offset=self.log_start)
        assert self.log.cut_bytes == 0

    @rule(
        garbage=st.binary(max_size=130),
        torn_entry=st.sampled_from([b"", bytes(make(b"torn")), message(0, b"torn"), message(1, b"torn")]),
        cut=st.integers(1, 60),
    )
    def reopen_after_kill(self, garbage: bytes, torn_entry: bytes, cut: int) -> None:
        """Behind the last batch stands what a write left that was never acknowledged."""
        point = self.log.recovery_point
        self.log.abandon()
        torn = torn_entry[:-cut] or garbage
        newest = max(name for name in self.files.list(FOLDER) if name.endswith(".log"))
        self.files.contents[f"{FOLDER}/{newest}"].live += torn
        self.log = open_log(
            self.files, config=self.config, clean=False, recovery_point=point, log_start_offset=self.log_start
        )
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
        self.log = open_log(self.files, config=self.config, log_start_offset=self.log_start)

    @invariant()
    def offsets_agree(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert (log.log_start_offset, log.log_end_offset) == (self.log_start, self.end)
            assert log.size_bytes == sum(known.size_bytes for known in self.batches)
            assert log._epochs.entries == self.epochs()
            assert all(segment.size_bytes <= self.config.segment_bytes for segment in log._segments) or any(
                known.size_bytes > self.config.segment_bytes for known in self.batches
            )

    def epochs(self) -> list[tuple[int, int]]:
        """The epochs since the last old message: all is written in epoch 0."""
        since = max((number + 1 for number, known in enumerate(self.batches) if known.magic < 2), default=0)
        return [(0, max(known.base_offset, self.log_start)) for known in self.batches[since : since + 1]]


class TestLog(LogMachine.TestCase):
    pytestmark: ClassVar = [pytest.mark.soak, pytest.mark.timeout(120 * max(1.0, SCALE))]
