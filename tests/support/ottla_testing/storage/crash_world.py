"""Random work on a data directory, interrupted everywhere: shared by the crash tests of storage.

A `World` works on a `DataDirectory` and keeps, per partition, what was attempted, acknowledged and flushed. At every
call that changes the disk it forks the disk: one fork as after a kill (all written bytes are there, and a part of the
current write) and one as after a power loss (any state that the disk allows); `crash_check` opens each and compares it
with the expected state. All follows from one seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest import mock

from ottla.protocol.records import batch, formats
from ottla.protocol.records.validate import Rules
from ottla.storage.compaction.compaction import Clean, Group, SegmentFacts, active_producers, clean
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import Appended, PartitionLog
from ottla.storage.producers.producer_state import ProducerRules
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.crash_transactions import ABORT, COMMIT, OFFSETS, commit_of_offsets, next_of, states
from ottla_testing.storage.crash_transactions import DATA as IN_TRANSACTION
from ottla_testing.storage.old_messages import message, wrapper
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

DATA = "/data"
TOPICS = ("a", "b", "c")
Key = tuple[str, int]


class Violation(AssertionError):
    """A disk has an impossible state after an interruption."""


class Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class Batch(NamedTuple):
    """The entry of an append. `producer` is (id, epoch, first sequence) or None; `sent` the bytes that a producer would
    retry; `kind` is its role in a transaction, for `crash_transactions`."""

    rows: tuple[Row, ...]
    producer: tuple[int, int, int] | None = None
    sent: bytes = b""
    kind: str = ""

    @property
    def first(self) -> int:
        return self.rows[0].offset

    @property
    def end(self) -> int:
        return self.rows[-1].offset + 1


@dataclass
class Partition:
    """The expected state of one partition. Offsets: `acknowledged` and `flushed` are ends.

    `batches` are all attempted ones, those above `acknowledged` possibly without success. The log start lies between
    `log_start`, which was acknowledged, and `log_start_limit`, which was attempted.
    """

    topic_id: bytes
    config: LogConfig
    batches: list[Batch] = field(default_factory=list)
    acknowledged: int = 0
    flushed: int = 0
    log_start: int = 0
    log_start_limit: int = 0
    cleaned_to: int = 0
    """Below this offset a compaction may have removed records with a later record of their key, or without a key."""
    may_lack: bool = False
    """Whether a power loss may have taken some of the inner batches, see `still_there`."""
    deleted: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def copy(self) -> Partition:
        return replace(self, batches=list(self.batches))

    def rows(self) -> Iterator[Row]:
        for one in self.batches:
            yield from one.rows


class Stop(NamedTuple):
    """A disk after an interruption, and what must be on it."""

    disk: SimulatedFiles
    partitions: dict[Key, Partition]
    gone: set[bytes]
    """The topic ids of acknowledged deletions."""
    powered: bool
    """Whether it was a kill, with the power on."""
    upgrades: bool
    """Whether an opening may upgrade it to v2."""
    where: str


def topic_id(rng: random.Random) -> bytes:
    return b"\1" + rng.randbytes(15)


def open_directory(files: SimulatedFiles, rng: random.Random) -> DataDirectory:
    return DataDirectory.open(files, DATA, node_id=1, make_id=lambda: b"\2" * 16, pick=lambda bound: bound - 1)


class World:
    """One run of so many operations, of these `kinds` only if they are given. `check` is called with each
    interruption: at every call that changes the disk, or with a `stride` at some of them."""

    def __init__(
        self,
        seed: int,
        check: Callable[[Stop, random.Random], None],
        *,
        operations: int = 22,
        kinds: Collection[str] = (),
        stride: int = 1,
    ) -> None:
        self.seed = seed
        self.stride = stride
        self.first_stop = random.randrange(stride)
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)  # of the interruptions: the work is the same for any number of them
        self.check = check
        self.operations = operations
        self.flushes_all = self.rng.random() < 0.4
        self.upgrades = self.rng.random() < 0.5
        self.files = SimulatedFiles()
        self.partitions: dict[Key, Partition] = {}
        self.gone: set[bytes] = set()
        self.logs: dict[Key, PartitionLog] = {}
        self.later: list[Callable[[], None]] = []
        self.now_ms = 1000
        self.counter = 0
        self.doing = "open"
        self.stops = 0
        self.history: list[str] = []
        self.work: list[tuple[int, Callable[[], None]]] = [
            (10, self.produce),
            (8, self.produce_idempotent),
            (6, self.produce_old),
            (6, self.produce_in_transaction),
            (2, self.commit_offsets),
            (5, self.end_transaction),
            (3, self.produce_big),
            (4, self.flush),
            (3, self.retain),
            (2, self.delete_records),
            (2, self.remove_files),
            (4, self.checkpoint),
            (2, self.save),
            (2, self.reopen),
            (2, self.upgrade),
            (2, self.stop_and_continue),
            (3, self.compact),
            (1, self.change_policy),
            (2, self.create),
            (1, self.delete),
        ]
        if kinds:
            self.work = [(weight, operation) for weight, operation in self.work if operation.__name__ in kinds]

    def run(self) -> None:
        """Runs the operations. Raises Violation."""
        names = random.Random(self.chance.random())
        with mock.patch("ottla.storage.io.random_ids.uuid4", lambda: names.randbytes(16)):  # names of deleted folders
            self._run()

    def _run(self) -> None:
        self.files.on_step = self.on_step
        self.files.now_ns = self.now_ms * 10**6
        self.directory = open_directory(self.files, self.rng)
        for _ in range(self.rng.randint(1, 3)):
            self.do(self.create)
        weights = [weight for weight, _ in self.work]
        for _ in range(self.operations):
            self.now_ms += self.rng.randint(0, 30)
            self.files.now_ns = self.now_ms * 10**6
            self.do(self.rng.choices(self.work, weights)[0][1])
        self.do(self.close)

    def do(self, operation: Callable[[], None]) -> None:
        self.doing = operation.__name__
        self.history.append(self.doing)
        operation()

    # -- interruptions

    def on_step(self, step: Step) -> None:
        if step.number % self.stride != self.first_stop:
            return
        self.chance.seed(self.seed + 1 + step.number)  # the same for any stride
        where = f"{self.doing}, at step {step.number}: {step.operation} {step.path}"
        size = len(step.change.data or b"") if step.change is not None else 0
        for powered in (True, False):
            done_bytes = self.chance.choice((0, size, self.chance.randint(0, size))) if size else 0
            fork = self.files.fork(step, done_bytes)
            if powered:
                fork.restart()
            else:
                fork.crash(self.chance)
            self.stops += 1
            known = {key: partition.copy() for key, partition in self.partitions.items()}
            self.check(Stop(fork, known, set(self.gone), powered, self.upgrades, where), self.chance)

    # -- records

    def any_log(self) -> tuple[Partition, PartitionLog] | None:
        if not self.logs:
            return None
        key = self.rng.choice(sorted(self.logs))
        return self.partitions[key], self.logs[key]

    def new_rows(self, count: int, size: int, log: PartitionLog) -> list[Row]:
        made, start = [], log.log_end_offset
        keys = [b"k1", b"k2", b"k3"] + [None] * (not log.config.rules.compacted)
        for number in range(count):
            self.counter += 1
            key = self.rng.choice(keys)
            value = (
                None if key and self.rng.random() < 0.2 else b"%d:" % self.counter + b"v" * self.rng.randint(0, size)
            )
            made.append(Row(start + number, key, value, self.now_ms + self.rng.randint(-20, 20)))
        return made

    def append(
        self, partition: Partition, log: PartitionLog, data: bytes, batches: list[Batch], magic: int, target: int = 2
    ) -> None:
        """Appends these batches, and acknowledges them."""
        log.configure(replace(partition.config, rules=replace(partition.config.rules, target_magic=target)))
        self.tried(
            partition,
            log,
            batches,
            lambda: log.append(bytearray(data), now_ms=self.now_ms, produce_version=(1, 2, 13)[magic]),
        )

    def tried(
        self, partition: Partition, log: PartitionLog, batches: list[Batch], append: Callable[[], Appended]
    ) -> None:
        """Runs the call that writes these batches, and acknowledges them."""
        partition.batches += batches
        done = append()
        expected = batches[0].first, batches[-1].end - 1, False
        if (done.base_offset, done.last_offset, done.duplicate) != expected:
            raise Violation(f"appended as {done} and not {expected}")
        if self.flushes_all:
            log.flush()
            partition.flushed = partition.end
        partition.acknowledged = partition.end

    def built(self, rows: list[Row], codec: int = 0, **producer: Any) -> bytes:
        records = [batch.Record(n, row.timestamp, row.key, row.value) for n, row in enumerate(rows)]
        return bytes(batch_of(records, codec=codec, **producer))

    def produce(self, size: int = 30, most: int = 4) -> None:
        if (found := self.any_log()) is not None:
            rows = self.new_rows(self.rng.randint(1, most), size, found[1])
            data = self.built(rows, self.rng.choice((0, 0, 1)))
            self.append(*found, data, [Batch(tuple(rows), None, data)], 2)

    def produce_big(self) -> None:
        self.produce(40, 6)  # more might not fit into the smallest segments

    def produce_idempotent(self) -> None:
        if (found := self.any_log()) is None:
            return
        partition, log = found
        producer_id = self.rng.choice((7, 8))
        epoch, sequence = next_sequence(partition, producer_id, log.log_start_offset)
        if self.rng.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        rows = self.new_rows(self.rng.randint(1, 3), 20, log)
        data = self.built(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        self.append(partition, log, data, [Batch(tuple(rows), (producer_id, epoch, sequence), data)], 2)
        if self.rng.random() < 0.3:
            again = log.append(bytearray(data), now_ms=self.now_ms)
            if not again.duplicate or again.base_offset != rows[0].offset:
                raise Violation(f"a retry of {rows[0].offset} returned {again}")

    def produce_old(self) -> None:
        """Appends a set of old messages, plain or in a wrapper, kept in its format or converted to v2."""
        if (found := self.any_log()) is None:
            return
        magic, codec = self.rng.choice((0, 1)), self.rng.choice((0, 0, 1))
        rows = self.new_rows(self.rng.randint(1, 3), 20, found[1])
        sent = [row._replace(offset=number) for number, row in enumerate(rows)]
        data = wrapper(magic, codec, sent) if codec else b"".join(message(magic, *row) for row in sent)
        if magic == 0:
            rows = [row._replace(timestamp=-1) for row in rows]
        target = self.rng.choice((magic, magic, 2))
        apart = not codec and target != 2
        batches = [Batch((row,)) for row in rows] if apart else [Batch(tuple(rows))]
        self.append(*found, data, batches, magic, target)

    # -- transactions

    def produce_in_transaction(self) -> None:
        """Begins a transaction, or continues it; a repeated batch is a duplicate."""
        if (found := self.any_log()) is None:
            return
        partition, log = found
        producer_id = self.rng.choice((17, 18))
        epoch, sequence = next_of(partition.batches, producer_id, log.log_start_offset)
        rows = self.new_rows(self.rng.randint(1, 2), 20, log)
        data = self.built(
            rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        made = Batch(tuple(rows), (producer_id, epoch, sequence), data, IN_TRANSACTION)
        self.append(partition, log, data, [made], 2)
        if self.rng.random() < 0.2:
            again = log.append(bytearray(data), now_ms=self.now_ms)
            if not again.duplicate or again.base_offset != rows[0].offset:
                raise Violation(f"a retry of {rows[0].offset} returned {again}")

    def commit_offsets(self) -> None:
        """Writes a coordinator's batch in a transaction, without sequences."""
        if (found := self.any_log()) is None:
            return
        partition, log = found
        epoch = states(partition.batches)[19].epoch if 19 in states(partition.batches) else 0
        self.counter += 1
        record = commit_of_offsets(self.counter, self.now_ms)
        row = Row(log.log_end_offset, record.key, record.value, self.now_ms)
        log.configure(partition.config)
        self.tried(
            partition,
            log,
            [Batch((row,), (19, epoch, -1), kind=OFFSETS)],
            lambda: log.append_records([record], now_ms=self.now_ms, producer=(19, epoch)),
        )

    def end_transaction(self) -> None:
        """Writes a marker, as often with an open transaction as without; sometimes with a new epoch."""
        if (found := self.any_log()) is None:
            return
        partition, log = found
        known = states(partition.batches)
        open_ones = [producer_id for producer_id, state in known.items() if state.open_from >= 0]
        producer_id = self.rng.choice(open_ones or [17, 18, 19])
        kind = self.rng.choice((COMMIT, ABORT))
        epoch = (known[producer_id].epoch if producer_id in known else 0) + (self.rng.random() < 0.3)
        key, value = (b"\0\0\0\1" if kind == COMMIT else b"\0\0\0\0"), b"\0\0\0\0\0\0"
        log.configure(partition.config)
        self.tried(
            partition,
            log,
            [Batch((Row(log.log_end_offset, key, value, self.now_ms),), (producer_id, epoch, -1), kind=kind)],
            lambda: log.append_marker(
                producer_id, epoch, committed=kind == COMMIT, coordinator_epoch=0, now_ms=self.now_ms
            ),
        )

    # -- the rest of the work

    def flush(self) -> None:
        if (found := self.any_log()) is not None:
            partition, log = found
            log.flush()
            partition.flushed = log.log_end_offset

    def retain(self) -> None:
        if (found := self.any_log()) is not None:
            partition, log = found
            partition.log_start_limit = log.log_end_offset
            removed = log.retain(self.now_ms)
            if removed is not None:
                self.later.append(removed.remove)
            partition.log_start = partition.log_start_limit = log.log_start_offset

    def delete_records(self) -> None:
        if (found := self.any_log()) is not None:
            partition, log = found
            offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
            partition.log_start_limit = offset
            partition.log_start = log.delete_records_before(offset)

    def compact(self) -> None:
        """Runs a pass of the cleaner over a durable compacted log, possibly not to its end."""
        if (found := self.any_log()) is None or not found[0].config.rules.compacted:
            return
        partition, log = found
        log.flush()
        partition.flushed = log.log_end_offset
        try:
            facts = [
                SegmentFacts(one.base_offset, one.size_bytes, one.next_offset, self.files.modified_ns(one.path(".log")))
                for one in log.segments[:-1]
            ]
        except OSError as error:  # an injected error
            raise StorageError("the segments cannot be looked at") from error
        stable = min(log.last_stable_offset, log.segments[-1].base_offset)
        end_offset = max([one.base_offset for one in log.segments if one.base_offset <= stable], default=0)
        task = Clean(
            f"{DATA}/{log.topic}-{log.partition}",
            tuple(one for one in facts if one.base_offset < end_offset),
            self.first_dirty(log),
            end_offset,
            self.now_ms,
            self.rng.choice((0, 100)),
            active_producers(log.producers()),
            keep_old_formats=self.rng.random() < 0.5,
            segment_bytes=self.rng.choice((600, 1500)),
            index_interval_bytes=partition.config.index_interval_bytes,
            dedupe_buffer_bytes=24 * self.rng.choice((2, 10)),
        )
        if not task.segments or task.first_dirty_offset >= task.end_offset:
            return
        partition.cleaned_to = max(partition.cleaned_to, task.end_offset)
        if self.directory.cleaner_offset(log.topic, log.partition) is None:  # offsets may be missing from now on
            self.directory.cleaned(log, log.log_start_offset)
        for made in clean(self.files, task):
            if isinstance(made, Group):
                self.later.append(log.replace_segments(made.new, made.old).remove)
                if self.rng.random() < 0.1:  # the following steps are omitted
                    return
            else:
                self.directory.cleaned(log, made.end_offset)

    def first_dirty(self, log: PartitionLog) -> int:
        offset = self.directory.cleaner_offset(log.topic, log.partition)
        if offset is None or not log.log_start_offset <= offset <= log.log_end_offset:
            return log.log_start_offset
        return offset

    def change_policy(self) -> None:
        """Makes a topic compacted from now on or, if it was cleaned, no longer compacted."""
        if (found := self.any_log()) is not None:
            partition, log = found
            if partition.config.rules.compacted and self.directory.cleaner_offset(log.topic, log.partition) is None:
                return
            rules = replace(partition.config.rules, compacted=not partition.config.rules.compacted)
            partition.config = replace(partition.config, rules=rules)
            log.configure(partition.config)

    def remove_files(self) -> None:
        if self.later:
            self.later.pop(self.rng.randrange(len(self.later)))()

    def checkpoint(self) -> None:
        self.directory.write_checkpoints()

    def save(self) -> None:
        self.directory.save()
        for key, log in self.logs.items():
            self.partitions[key].flushed = log.log_end_offset

    def create(self) -> None:
        key = self.rng.choice(TOPICS), 0
        if key in self.logs:
            return
        rng = self.rng
        config = LogConfig(
            segment_bytes=rng.choice((450, 600, 1500)),
            segment_ms=rng.choice((60, 10**9)),
            index_interval_bytes=rng.choice((0, 100, 250)),
            segment_index_bytes=rng.choice((64, 10_000)),
            retention_bytes=rng.choice((-1, 500, 1500)),
            retention_ms=rng.choice((-1, 150)),
            rules=Rules(compacted=rng.random() < 0.4),
            producer_rules=ProducerRules(drop_below_log_start=rng.random() < 0.5),
        )
        self.partitions[key] = Partition(topic_id(rng), config)
        self.open(key)

    def open(self, key: Key, upgrade: bool = False) -> None:
        known = self.partitions[key]
        self.logs[key] = self.directory.open_partition(
            *key,
            topic_id=known.topic_id,
            config=known.config,
            now_ms=self.now_ms,
            upgrade=(lambda progress: None) if upgrade else None,
        )

    def delete(self) -> None:
        if not self.logs:
            return
        key = self.rng.choice(sorted(self.logs))
        self.partitions[key].deleted = True  # the owner records it before the directory deletes
        self.later.append(self.directory.delete_partition(*key))
        del self.logs[key]
        self.gone.add(self.partitions.pop(key).topic_id)

    def close(self) -> None:
        """Closes the directory. All is durable then, and a power loss takes nothing."""
        self.directory.close()
        self.logs, self.later = {}, []
        for partition in self.partitions.values():
            partition.flushed = partition.acknowledged

    def reopen(self, upgrade: bool = False) -> None:
        self.close()
        self.open_all(upgrade)

    def upgrade(self) -> None:
        self.reopen(upgrade=self.upgrades)

    def open_all(self, upgrade: bool = False) -> None:
        self.directory = open_directory(self.files, self.rng)
        put_strays_aside(self.directory, self.partitions)
        for key in sorted(self.partitions):
            self.open(key, upgrade)

    def stop_and_continue(self) -> None:
        """Simulates a kill or a power loss between two operations; the work continues with the remaining state."""
        self.directory.abandon()
        powered = self.rng.random() < 0.5
        if powered:
            self.files.restart()
        else:
            self.files.crash(self.rng)
        self.files.on_step = self.on_step
        self.logs, self.later = {}, []
        if not powered:
            for partition in self.partitions.values():  # an interruption in the meantime may find no more than this one
                partition.acknowledged = min(partition.acknowledged, partition.flushed)
                partition.may_lack = True
        self.open_all()
        for key, log in self.logs.items():
            partition, end = self.partitions[key], log.log_end_offset
            if not powered:
                partition.batches = still_there(partition, partition.batches, rows_of(log), log.log_start_offset)
                partition.may_lack = False
            if end < partition.acknowledged:
                raise Violation(f"{key} ends at {end} and not at {partition.acknowledged} after a stop")
            partition.batches = [one for one in partition.batches if one.end <= end]
            partition.acknowledged = max(end, partition.end)
            partition.flushed = min(partition.flushed, end)
            partition.log_start = partition.log_start_limit = log.log_start_offset


def demand(condition: bool, what: str, *facts: object) -> None:
    if not condition:
        raise Violation(", ".join([what, *map(str, facts)]))


def rows_of(log: PartitionLog) -> list[Row]:
    """Returns every record from the log start on, as a consumer gets them, with all checksums checked."""
    found: list[Row] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 700).records)
        if not data:  # nothing remains here
            break
        for position, header in formats.headers(data):
            demand(formats.crc_matches(data, position, header), "a bad checksum at", header)
            for record in formats.records(data, position):
                if record.offset >= log.log_start_offset:
                    found.append(Row(record.offset, record.key, record.value, record.timestamp))
            demand(header.next_offset > offset, "a batch below the requested offset", header)
            offset = header.next_offset
    return found


def still_there(partition: Partition, batches: list[Batch], found: list[Row], start: int) -> list[Batch]:
    """Returns the batches without those that a power loss took from the middle of a compacted log, where missing
    offsets are not reported as a loss. None of them was flushed. Those below the log start are unknown."""
    if not partition.config.rules.compacted and not partition.cleaned_to:
        return batches
    offsets = {row.offset for row in found}
    flushed = max(partition.flushed, start)
    return [one for one in batches if one.end <= flushed or any(row.offset in offsets for row in one.rows)]


def next_sequence(partition: Partition, producer_id: int, log_start: int) -> tuple[int, int]:
    """Returns the epoch and sequence with which a producer continues, according to the batches from the log start
    on."""
    for one in reversed(partition.batches):
        if one.producer is not None and one.producer[0] == producer_id:
            if one.end <= log_start:  # dropped
                return one.producer[1] + 1, 0
            return one.producer[1], one.producer[2] + len(one.rows)
    return 0, 0


def put_strays_aside(directory: DataDirectory, known: dict[Key, Partition]) -> None:
    """Sets folders of unknown topics aside, as the broker does at its start."""
    for key in directory.partitions():
        if key not in known or known[key].deleted or directory.topic_id(*key) not in (bytes(16), known[key].topic_id):
            directory.set_aside(*key)
