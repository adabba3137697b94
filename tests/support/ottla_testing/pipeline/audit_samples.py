"""Data directories for audits: random producer batches as a broker would append them, with and without planted faults.

Owns the batches (`Story`), their appends as a follower, which checks no producer state, and the faults: each changes a
closed directory and returns where it must be found. `damaged` plants some, each in a segment of its own.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crc32c import crc32c

from ottla.pipeline.jobs.audit.report import AuditReport
from ottla.pipeline.jobs.audit.steps import Audit
from ottla.protocol.internal_records.metadata_values import topic_ids
from ottla.protocol.records.batch import Record
from ottla.storage import inspect
from ottla.storage.check.directory import Verification
from ottla.storage.check.facts import Finding
from ottla.storage.config import LogConfig
from ottla.storage.follower_log import FollowerLog
from ottla.storage.format import checkpoint
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir import metadata_log
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.producers import snapshot, txn_index
from ottla_testing.protocol.batches import batch_of

NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=150)
WRAP = 2**31


@dataclass
class Story:
    """Batches of a partition that a broker would append; `plant_...` adds batches that it would refuse. `planted_at`
    has the base offset of each planted batch, and words of its finding."""

    seed: int = 0
    transactions: bool = True
    offset: int = 0
    leader_epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    planted_at: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.now_ms = 1_700_000_000_000
        self.epochs: dict[int, int] = {}
        self.next: dict[int, int] = {}
        self.open: set[int] = set()

    def add(self, count: int = 0, *, producer: int = -1, epoch: int = -1, sequence: int = -1, **more: Any) -> None:
        chance = self.chance
        self.now_ms += chance.choice([0, 1, 5, -3])
        count = count or chance.randint(1, 6)
        records = [
            Record(self.offset + n, self.now_ms + chance.choice([0, n, -n]), b"k%d" % n, chance.randbytes(20))
            for n in range(count)
        ]
        self.put(
            records, codec=chance.choice([0, 0, 1, 3, 4]), producer=producer, epoch=epoch, sequence=sequence, **more
        )

    def put(self, records: Sequence[Record], *, producer: int, epoch: int, sequence: int, **more: Any) -> None:
        identity = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        more = {"leader_epoch": self.leader_epoch, **more}
        self.batches.append(bytes(batch_of(records, base_offset=self.offset, **identity, **more)))
        self.offset += len(records)

    def produce(
        self, producer: int, count: int = 0, *, transactional: bool = False, sequence: int | None = None
    ) -> None:
        """Adds a batch of an idempotent producer, by default with the next sequence."""
        epoch = self.epochs.setdefault(producer, 0)
        first = self.next.get(producer, 0) if sequence is None else sequence
        count = count or self.chance.randint(1, 4)
        self.add(count, producer=producer, epoch=epoch, sequence=first, transactional=transactional)
        self.next[producer] = (first + count) % WRAP
        if transactional:
            self.open.add(producer)

    def marker(self, producer: int, *, commit: bool, bump: bool = False) -> None:
        if bump:
            self.epochs[producer] += 1
            self.next[producer] = 0
        key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 3)
        record = Record(self.offset, self.now_ms, key, value)
        epoch = self.epochs.setdefault(producer, 0)
        self.put([record], producer=producer, epoch=epoch, sequence=-1, transactional=True, control=True)
        self.open.discard(producer)

    def step(self) -> None:
        """Adds something that a healthy log may have."""
        chance = self.chance
        kind = chance.random()
        if kind < 0.3:
            self.add()
        elif kind < 0.65 or not self.transactions:
            self.produce(chance.choice([1, 2, 3]))
        elif kind < 0.9:
            producer = chance.choice([11, 12, 13])
            if producer in self.open and chance.random() < 0.5:
                self.marker(producer, commit=chance.random() < 0.5, bump=chance.random() < 0.3)
            else:
                self.produce(producer, transactional=True)
        elif kind < 0.94:
            producer = chance.choice([1, 2, 3])  # its state was reset
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
            self.next[producer] = 0
            self.produce(producer)
        elif kind < 0.96:
            self.marker(14, commit=False)  # of a transaction without a batch here
        else:
            self.leader_epoch += chance.randint(1, 3)

    def run(self, steps: int) -> Story:
        for _ in range(steps):
            self.step()
        return self

    # Batches that no producer sends, or no broker appends.

    def plant_duplicate(self) -> None:
        for _ in range(3):
            self.produce(1, 3)
        first = self.next[1] - 9
        self.planted_at.append((self.offset, "duplicates"))
        for sequence in (first, first + 3, first + 6):
            self.produce(1, 3, sequence=sequence)

    def plant_gap(self) -> None:
        self.produce(2, 2)
        self.planted_at.append((self.offset, "missing before"))
        self.produce(2, 2, sequence=self.next[2] + 4)

    def plant_old_epoch(self) -> None:
        self.epochs[3] = self.epochs.get(3, 0) + 1
        self.next[3] = 0
        self.produce(3)
        self.planted_at.append((self.offset, "goes back"))
        first = self.chance.randint(0, 50)
        for sequence in (first, first + 2, first + 4):
            self.add(2, producer=3, epoch=self.epochs[3] - 1, sequence=sequence)

    def plant_hanging(self) -> None:
        self.produce(21, transactional=True)
        self.epochs[21] += 1
        self.next[21] = 0
        self.planted_at.append((self.offset, "its marker is missing"))
        self.produce(21, transactional=True)
        self.marker(21, commit=True)


def write(root: Path, stories: Sequence[Story], *, metadata: bool = True, close: bool = True) -> Path:
    """Writes a data directory with a partition for each story; with `metadata` the topics are known not to be
    compacted."""
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    if metadata:
        directory.open_partition("__cluster_metadata", 0, config=LogConfig(), now_ms=0)
    for number, story in enumerate(stories):
        log = directory.open_partition(
            "orders", number, topic_id=bytes(range(16)), config=CONFIG, now_ms=0, kind=FollowerLog
        )
        assert isinstance(log, FollowerLog)
        for data in story.batches:
            log.append_fetched(data, now_ms=0)
    directory.close()
    return root


# -- findings


def audited(root: Path, *, records: bool = True, topics: Sequence[str] | None = None) -> AuditReport:
    return Audit([str(root)], topics=topics, records=records).report(now_ms=NOW_MS)


def shown(findings: Sequence[Finding]) -> list[str]:
    return sorted(f"{one.file} {one.byte} {one.offset} {one.part}: {one.what}" for one in findings)


def verified(root: Path, *, records: bool = True, gaps: bool = False) -> list[Finding]:
    """Returns the findings of `ottla verify`."""
    found = Verification(
        root,
        deep=records,
        may_have_gaps=lambda topic: gaps,
        topic_ids=lambda: topic_ids(metadata_log.values(str(root))),
    ).findings()
    return [one for one in found if one.wrong]


# -- faults


class Planted(NamedTuple):
    """The place where a fault must be found. A byte or an offset of -1 matches any."""

    file: str
    byte: int | None
    offset: int | None
    part: str

    def is_in(self, finding: Finding) -> bool:
        return (finding.file, finding.part) == (self.file, self.part) and all(
            expected == -1 or expected == found
            for expected, found in ((self.byte, finding.byte), (self.offset, finding.offset))
        )


class Segment:
    """A segment of a closed directory, whose log may be changed."""

    def __init__(self, log: Path, chance: random.Random) -> None:
        self.log = log
        self.chance = chance
        self.folder = log.parent
        self.facts = [found for found in inspect.segment(log) if isinstance(found, inspect.BatchFacts)]
        following = sorted(path for path in log.parent.glob("*.log") if path > log)
        self.next = following[0] if following else None

    @property
    def name(self) -> str:
        return f"{self.folder.name}/{self.log.name}"

    def beside(self, suffix: str) -> Path:
        return self.log.with_suffix(suffix)

    def pick(self, *, first: int = 1, last: int = 1) -> inspect.BatchFacts:
        """Returns one of the entries, with at least `first` before it and `last` after it."""
        return self.chance.choice(self.facts[first : len(self.facts) - last])

    def patch(self, at: int, new: bytes) -> None:
        data = bytearray(self.log.read_bytes())
        data[at : at + len(new)] = new
        self.log.write_bytes(data)

    def rewritten(self, found: inspect.BatchFacts, at: int, form: str, value: int) -> None:
        """Changes a field of a batch's header, and updates its CRC."""
        data = bytearray(self.log.read_bytes())
        struct.pack_into(form, data, found.position + at, value)
        covered = bytes(data[found.position + 21 : found.position + found.size_bytes])
        struct.pack_into(">I", data, found.position + 17, crc32c(covered))
        self.log.write_bytes(data)

    def planted(self, found: inspect.BatchFacts, offset: int | None = None) -> Planted:
        return Planted(self.name, found.position, found.header.base_offset if offset is None else offset, "log")


Fault = Callable[[Segment], Planted | None]
"""A function that plants a fault and returns its place; None if the segment is not suitable."""


def flip(segment: Segment) -> Planted:
    """Flips a bit that the CRC covers."""
    found = segment.pick(first=0, last=0)
    at = found.position + segment.chance.randrange(21, found.size_bytes)
    segment.patch(at, bytes([segment.log.read_bytes()[at] ^ 1 << segment.chance.randrange(8)]))
    return segment.planted(found)


def other_leader_epoch(segment: Segment) -> Planted | None:
    """Changes a field outside the CRC, between two batches with equal epochs."""
    facts = segment.facts
    epochs = [found.header.partition_leader_epoch for found in facts]
    places = [n for n in range(1, len(facts) - 1) if epochs[n - 1] == epochs[n] == epochs[n + 1]]
    if not places:
        return None
    found = facts[segment.chance.choice(places)]
    segment.patch(found.position + 12, struct.pack(">i", found.header.partition_leader_epoch | 1 << 20))
    return segment.planted(found)


def other_offset(segment: Segment) -> Planted | None:
    """Changes a field outside the CRC: a base offset that is too high, or too low."""
    found = segment.pick()
    wrong = found.header.base_offset + segment.chance.choice([-2, 1, 3, 1 << 20, 1 << 40])
    if wrong < 0:
        return None
    segment.patch(found.position, struct.pack(">q", wrong))
    return segment.planted(found, wrong)


def missing_batch(segment: Segment) -> Planted:
    found = segment.pick()
    data = segment.log.read_bytes()
    segment.log.write_bytes(data[: found.position] + data[found.position + found.size_bytes :])
    return Planted(segment.name, found.position, found.header.next_offset, "log")


def copied_batch(segment: Segment) -> Planted:
    """Repeats the bytes of a batch."""
    found = segment.pick()
    data, end = segment.log.read_bytes(), found.position + found.size_bytes
    segment.log.write_bytes(data[:end] + data[found.position :])
    return Planted(segment.name, end, found.header.base_offset, "log")


def copied_batches(segment: Segment) -> Planted | None:
    """Repeats several consecutive batches: one fault."""
    count = segment.chance.randint(2, 3)
    if len(segment.facts) < count + 2:
        return None
    first = segment.chance.randrange(1, len(segment.facts) - count)
    found, last = segment.facts[first], segment.facts[first + count - 1]
    data, end = segment.log.read_bytes(), last.position + last.size_bytes
    segment.log.write_bytes(data[:end] + data[found.position :])
    return Planted(segment.name, end, found.header.base_offset, "log")


def torn_tail(segment: Segment) -> Planted | None:
    if segment.next is not None:
        return None
    found = segment.facts[-1]
    cut = found.position + segment.chance.randrange(1, found.size_bytes)
    segment.log.write_bytes(segment.log.read_bytes()[:cut])
    return segment.planted(found)


def wrong_index(segment: Segment) -> Planted | None:
    path = segment.beside(".index")
    data = bytearray(path.read_bytes())
    if not data:
        return None
    at = segment.chance.randrange(0, len(data), 8)
    position = struct.unpack_from(">i", data, at + 4)[0]
    struct.pack_into(">i", data, at + 4, position + segment.chance.choice([-1, 1, 7]))
    path.write_bytes(data)
    return Planted(f"{segment.folder.name}/{path.name}", at, None, "index")


def wrong_time_index(segment: Segment) -> Planted | None:
    path = segment.beside(".timeindex")
    data = bytearray(path.read_bytes())
    if not data:
        return None
    at = segment.chance.randrange(0, len(data), 12)
    timestamp = struct.unpack_from(">q", data, at)[0]
    struct.pack_into(">q", data, at, timestamp + segment.chance.choice([-100_000, 100_000]))
    path.write_bytes(data)
    return Planted(f"{segment.folder.name}/{path.name}", -1, None, "index")


def lying_snapshot(segment: Segment) -> Planted | None:
    """Writes another sequence of the producer that wrote last."""
    at = int(segment.next.stem) if segment.next else segment.facts[-1].header.next_offset
    path = segment.folder / snapshot.file_name(at)
    numbered = [found for found in segment.facts if found.header.base_sequence >= 0]
    if not path.exists() or not numbered:
        return None
    known = snapshot.parse(path.read_bytes(), at)
    assert known is not None
    producer_id = numbered[-1].header.producer_id
    entry = known.get(producer_id)
    if entry is None or not entry.batches:
        return None
    lie = entry.batches[-1]._replace(last_sequence=entry.batches[-1].last_sequence + 1)
    path.write_bytes(snapshot.dump({**known, producer_id: entry._replace(batches=(lie,))}))
    return Planted(f"{segment.folder.name}/{path.name}", None, at, "snapshot")


def damaged_snapshot(segment: Segment) -> Planted | None:
    path = segment.folder / snapshot.file_name(int(segment.log.stem))
    if not path.exists():
        return None
    data = bytearray(path.read_bytes())
    data[segment.chance.randrange(len(data))] ^= 1
    path.write_bytes(data)
    return Planted(f"{segment.folder.name}/{path.name}", 0, int(segment.log.stem), "snapshot")


def abort_missing(segment: Segment) -> Planted | None:
    path = segment.beside(".txnindex")
    if not path.exists() or not path.stat().st_size:
        return None
    entries = txn_index.parse(path.read_bytes())
    gone = segment.chance.randrange(len(entries))
    path.write_bytes(txn_index.dump(entries[:gone] + entries[gone + 1 :]))
    return Planted(f"{segment.folder.name}/{path.name}", None, entries[gone].last_offset, "transactions")


def abort_lying(segment: Segment) -> Planted | None:
    path = segment.beside(".txnindex")
    if not path.exists() or not path.stat().st_size:
        return None
    entries = txn_index.parse(path.read_bytes())
    at = segment.chance.randrange(len(entries))
    entries[at] = entries[at]._replace(first_offset=entries[at].first_offset - 1)
    path.write_bytes(txn_index.dump(entries))
    return Planted(f"{segment.folder.name}/{path.name}", at * 34, entries[at].last_offset, "transactions")


def wrong_count(segment: Segment) -> Planted | None:
    """Writes a record count that is one too low."""
    some = [found for found in segment.facts if found.record_count > 1]
    if not some:
        return None
    found = segment.chance.choice(some)
    segment.rewritten(found, 57, ">i", found.record_count - 1)
    return segment.planted(found)


def wrong_last_offset(segment: Segment) -> Planted:
    """Writes a last offset delta above the records."""
    found = segment.pick(first=0)
    segment.rewritten(found, 23, ">i", found.header.last_offset_delta + segment.chance.choice([1, 5]))
    return segment.planted(found)


def wrong_largest_time(segment: Segment) -> Planted:
    found = segment.pick(first=0, last=0)
    segment.rewritten(found, 35, ">q", found.header.max_timestamp + 77)
    return segment.planted(found)


def missing_segment(segment: Segment) -> Planted | None:
    if segment.next is None or segment.log == min(segment.folder.glob("*.log")):
        return None
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        segment.beside(suffix).unlink(missing_ok=True)
    return Planted(f"{segment.folder.name}/{segment.next.name}", 0, int(segment.next.stem), "log")


def lying_checkpoint(segment: Segment) -> Planted:
    name = segment.chance.choice([checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET])
    path = str(segment.folder.parent / name)
    topic, _, partition = segment.folder.name.rpartition("-")
    offsets = checkpoint.read_offsets(DiskFiles(), path)
    wrong = offsets[topic, int(partition)] + segment.chance.randint(1, 9)
    checkpoint.write_offsets(DiskFiles(), path, {**offsets, (topic, int(partition)): wrong})
    return Planted(name, None, wrong, "checkpoint")


def lying_epochs(segment: Segment) -> Planted:
    path = segment.folder / checkpoint.LEADER_EPOCH
    epochs = checkpoint.read_epochs(DiskFiles(), str(path))
    checkpoint.write_epochs(DiskFiles(), str(path), [*epochs, (epochs[-1][0] + 1, 10**9)])
    return Planted(f"{segment.folder.name}/{path.name}", None, None, "epochs")


FAULTS: tuple[Fault, ...] = (
    flip,
    other_leader_epoch,
    other_offset,
    missing_batch,
    copied_batch,
    copied_batches,
    torn_tail,
    wrong_index,
    wrong_time_index,
    lying_snapshot,
    damaged_snapshot,
    abort_missing,
    abort_lying,
    wrong_count,
    wrong_last_offset,
    wrong_largest_time,
    missing_segment,
    lying_checkpoint,
    lying_epochs,
)


def segments(root: Path) -> list[Path]:
    """Returns the logs of the stories' partitions with at least some entries."""
    return [path for path in sorted(root.glob("orders-*/*.log")) if path.stat().st_size > 800]
