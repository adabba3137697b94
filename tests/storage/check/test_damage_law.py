"""No record is lost silently: whichever file of a directory is damaged, the records are there, or a report of the start
covers them, or a reader meets an error.

One directory that was closed and one that was killed; each file of each is removed, emptied, truncated and has bits
flipped, and each folder is removed. Bits without a CRC (base offset and leader epoch of a batch; after a kill, a log
start that becomes another number) are left out, as FORMAT.md describes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla.protocol.records import batch, formats
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ottla.protocol.records.validate import Rules
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.format import checkpoint
from ottla.storage.log.losses import Loss
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import PartitionLog
from ottla_testing.storage.batches import TOPIC_ID, make, sequenced
from ottla_testing.storage.simulated_files import SimulatedFiles

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
DATA = "/data"
CONFIG = LogConfig(segment_bytes=450, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=450, index_interval_bytes=100, rules=Rules(compacted=True))
CONFIGS = {"plain": CONFIG, "begun": CONFIG, "keyed": COMPACTED, "ended": CONFIG, "empty": CONFIG}
MAY_REFUSE = ("meta.properties", "partition.metadata")  # without these files an opening is refused, in one line
Rows = dict[int, bytes | None]


class Known(NamedTuple):
    """A directory as it was left, and the records of each partition."""

    files: SimulatedFiles
    rows: dict[str, Rows]
    ends: dict[str, int]


def opened(files: SimulatedFiles) -> tuple[DataDirectory, dict[str, PartitionLog]]:
    directory = DataDirectory.open(files, DATA, node_id=1, make_id=lambda: b"\2" * 16)
    logs: dict[str, PartitionLog] = {}
    for number, (topic, config) in enumerate(CONFIGS.items()):
        topic_id = TOPIC_ID[:15] + bytes([number + 1])
        if (topic, 0) in directory.partitions() and directory.topic_id(topic, 0) not in (bytes(16), topic_id):
            directory.set_aside(topic, 0)  # as the broker does, with a line that names the partition
            continue
        logs[topic] = directory.open_partition(topic, 0, topic_id=topic_id, config=config, now_ms=0)
    return directory, logs


def rows_of(log: PartitionLog) -> Rows:
    """Returns every record as a consumer gets it. Raises CorruptRecords for a wrong CRC."""
    found: Rows = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20).records)
        if not data:
            break
        for position, header in formats.headers(data):
            if not formats.crc_matches(data, position, header):
                raise CorruptRecords("a bad CRC")
            for record in formats.records(data, position):
                if record.offset >= log.log_start_offset and not header.is_control:
                    found[record.offset] = record.value
            if header.next_offset <= offset:
                raise CorruptRecords("a batch below the requested offset")
            offset = header.next_offset
    return found


def append_to(logs: dict[str, PartitionLog], first: int, count: int) -> None:
    for number in range(first, first + count):
        logs["plain"].append(make(b"p%d" % number, b"q%d" % number, timestamp=1000 + number), now_ms=number)
        logs["begun"].append(sequenced(number, timestamp=1000 + number), now_ms=number)
        keyed = batch.build([batch.Record(0, 1000 + number, b"k%d" % (number % 3), b"v%d" % number)])
        logs["keyed"].append(bytearray(keyed), now_ms=number)
        data = make(b"t%d" % number, producer_id=5, producer_epoch=0, base_sequence=number, transactional=True)
        logs["ended"].append(data, now_ms=number)
        if number % 3 == 2:
            logs["ended"].append_marker(5, 0, committed=number % 2 == 0, coordinator_epoch=0, now_ms=number)


def left(closed: bool) -> Known:
    """Returns five partitions with several segments, some of them durable, and a log start within a segment."""
    files = SimulatedFiles()
    directory, logs = opened(files)
    append_to(logs, 0, 12)
    logs["begun"].delete_records_before(3)
    for log in logs.values():
        log.flush()
    directory.write_checkpoints()
    append_to(logs, 12, 6)
    directory.write_checkpoints(checkpoint.REPLICATION_OFFSET)
    known = Known(
        files,
        {topic: rows_of(log) for topic, log in logs.items()},
        {topic: log.log_end_offset for topic, log in logs.items()},
    )
    if closed:
        directory.close()
    files.restart()
    return known


class Damage(NamedTuple):
    """Damage to a file. `at` is a position in bytes for a cut, and in bits for a flip."""

    path: str
    what: str
    at: int = 0

    def do(self, files: SimulatedFiles) -> None:
        if self.what == "folder":
            for name in list(files.contents):
                if name.startswith(self.path + "/"):
                    del files.contents[name]
            files.directories.discard(self.path)
        elif self.what == "remove":
            del files.contents[self.path]
        elif self.what == "cut":
            del files.contents[self.path].live[self.at :]
        else:
            files.contents[self.path].live[self.at // 8] ^= 1 << self.at % 8


def uncovered(data: bytes) -> set[int]:
    """Returns the bytes of a segment without a CRC and without a length: base offsets and leader epochs."""
    found: set[int] = set()
    for position, _ in formats.headers(data):
        found.update(range(position, position + 8), range(position + 12, position + 16))
    return found


def damages(files: SimulatedFiles, rng: random.Random, each: int) -> Iterator[Damage]:
    """Yields every file removed and emptied, truncated and with a bit flipped at several places; every folder
    removed."""
    for topic in CONFIGS:
        yield Damage(f"{DATA}/{topic}-0", "folder")
    for path in sorted(files.contents):
        data = bytes(files.contents[path].live)
        if path.endswith(".lock"):
            continue
        yield Damage(path, "remove")
        if not data:
            continue
        ends = [position for position, _ in formats.headers(data)][1:] if path.endswith(".log") else []
        places = {0, len(data) - 1, *rng.sample(range(1, len(data)), min(each, len(data) - 1))}
        for at in sorted({*places, *rng.sample(ends, min(each, len(ends)))}):
            yield Damage(path, "cut", at)
        left_out = uncovered(data) if path.endswith(".log") else set()
        choice = [at for at in range(len(data)) if at not in left_out]
        for at in rng.sample(choice, min(2 * each, len(choice))):
            yield Damage(path, "flip", at * 8 + rng.randrange(8))


def moves_log_start(known: Known, damage: Damage) -> bool:
    """Returns whether the damage makes another number of a log start, which only a close notes in a second place."""
    if damage.what != "flip" or not damage.path.endswith(f"/{checkpoint.LOG_START_OFFSET}"):
        return False
    byte, bit = divmod(damage.at, 8)
    data = bytes(known.files.contents[damage.path].live)
    is_offset = b" " not in data[byte : data.index(b"\n", byte)] and data[:byte].count(b"\n") >= 2
    return is_offset and bytes([data[byte], data[byte] ^ 1 << bit]).isdigit()


def covers(losses: list[Loss], offset: int) -> bool:
    """Returns whether a reported loss covers the offset; a torn tail covers all offsets from its first on."""
    return any(loss.first <= offset and (offset < loss.end or loss.is_torn) for loss in losses)


def problem(known: Known, damage: Damage) -> str | None:
    """Returns the first silent loss, or None."""
    disk = known.files.fork()
    disk.restart()
    damage.do(disk)
    try:
        directory, logs = opened(disk)
    except StorageError as error:
        refused = damage.path.endswith(MAY_REFUSE) and "\n" not in str(error)
        return None if refused else f"refused: {error}"
    for topic, rows in known.rows.items():
        if topic not in logs:
            if damage.path.endswith("partition.metadata"):
                continue
            return f"{topic} was put aside"
        log = logs[topic]
        losses = list(log.losses)
        end, was = log.log_end_offset, known.ends[topic]
        if end < was and not all(covers(losses, offset) for offset in range(end, was)):
            return f"{topic} ends at {end} and not at {was}: {losses}"
        try:
            found = rows_of(log)
        except (CorruptRecords, InvalidRecords, UnsupportedCodec, StorageError) as error:
            if damage.what == "flip" and damage.path.startswith(f"{DATA}/{topic}-0/"):
                continue  # the reader meets it
            return f"{topic} cannot be read: {error}: {losses}"
        for offset, value in rows.items():
            if found.get(offset, b"none") != value and not covers(losses, offset):
                return f"{topic}: {value} at {offset} became {found.get(offset, b'none')}: {losses}"
    directory.abandon()
    return None


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_directory_with_any_damaged_file_loses_no_record_silently(closed: bool, stride: int) -> None:
    seed = random.randrange(2**32)
    known = left(closed)
    tried, wrong = 0, []
    possible = list(damages(known.files, random.Random(seed), max(1, round(2 * SCALE))))
    for damage in possible[random.randrange(stride) :: stride]:
        if not closed and moves_log_start(known, damage):
            continue
        tried += 1
        found = problem(known, damage)
        if found is not None:
            wrong.append(f"{damage}: {found}")
    print(f"seed {seed}: {tried} damages")
    assert tried > 300 // stride and not wrong, f"seed {seed}: {len(wrong)} of {tried}\n" + "\n".join(wrong[:20])


def test_undamaged_directories_report_no_loss() -> None:
    for closed in (True, False):
        known = left(closed)
        _, logs = opened(known.files)
        assert [list(log.losses) for log in logs.values()] == [[]] * len(CONFIGS)
        assert {topic: rows_of(log) for topic, log in logs.items()} == known.rows
