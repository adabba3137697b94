"""A data directory with everything that a reader may meet, read by others as well: aiokafka's compiled decoder, and
consumers.

Topics `v0-none` ... `v2-zstd` have all formats with all codecs, several segments each; `events` has four partitions
whose records are a second apart, for filters to skip files; `transactions` has committed, aborted and open ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.record._crecords import MemoryRecords

from ottla.protocol.records import legacy
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.validate import Rules
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla_testing.protocol.batches import batch_of

NOW_MS = 1_700_000_000_000
STEP_MS = 1000
BATCHES, PER_BATCH = 8, 15
EVENTS, EVENT_BATCHES, PER_EVENT_BATCH = 4, 40, 10
FORMATS = {
    f"v{magic}-{codec.name.lower()}": (magic, codec)
    for magic in (0, 1, 2)
    for codec in Codec
    if magic == 2 or codec is not Codec.ZSTD
}


class Row(NamedTuple):
    """A record as a consumer sees it; repeated header keys are kept."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def some(first: int, count: int, magic: int, step_ms: int = STEP_MS) -> list[Record]:
    """Returns records of all kinds: nulls, empty and long values, headers if the format has them."""
    found: list[Record] = []
    for n in range(first, first + count):
        headers = (
            (Header("h", b"%d" % n), Header("h", None), Header("\u00fc", b"")) if magic == 2 and n % 3 == 0 else ()
        )
        key = None if n % 5 == 0 else b"key-%d" % (n % 11)
        value = None if n % 7 == 0 else b"" if n % 13 == 0 else b"value %d " % n * (1 + n % 40)
        # Within a batch timestamps sometimes go back.
        found.append(Record(n, NOW_MS + (n + (3 if n % 4 == 0 else 0)) * step_ms, key, value, headers))
    return found


def write_directory(root: Path) -> None:
    """Writes the directory with the storage of a broker, and closes it cleanly."""
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)

    def opened(topic: str, partition: int, magic: int = 2, segment_bytes: int = 6000) -> Any:
        config = LogConfig(rules=Rules(target_magic=magic), segment_bytes=segment_bytes, index_interval_bytes=500)
        return directory.open_partition(topic, partition, config=config, now_ms=NOW_MS)

    for topic, (magic, codec) in FORMATS.items():
        log = opened(topic, 0, magic)
        for number in range(BATCHES):
            records = some(number * PER_BATCH, PER_BATCH, magic)
            log.append(bytearray(entry(records, magic, codec)), now_ms=NOW_MS, produce_version=13 if magic == 2 else 2)
    for partition in range(EVENTS):
        log = opened("events", partition, segment_bytes=22_000)
        for number in range(EVENT_BATCHES * (partition > 0)):
            records = some(number * PER_EVENT_BATCH, PER_EVENT_BATCH, 2)
            log.append(bytearray(entry(records, 2, Codec.NONE)), now_ms=NOW_MS)
    write_transactions(opened("transactions", 0))
    directory.close()


def entry(records: list[Record], magic: int, codec: int, **options: Any) -> bytes:
    """Returns the bytes that a producer sends."""
    if magic == 2:
        return bytes(batch_of([r._replace(offset=i) for i, r in enumerate(records)], codec=codec, **options))
    return bytes(legacy.build([r._replace(offset=i) for i, r in enumerate(records)], magic=magic, codec=codec))


def write_transactions(log: Any) -> None:
    """Writes two producers: one commits and aborts alternately, the last transaction of the other stays open."""

    def batch_of(producer: int, sequence: int) -> None:
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        log.append(bytearray(entry(some(log.log_end_offset, 3, 2), 2, Codec.NONE, **options)), now_ms=NOW_MS)

    def ended(producer: int, committed: bool) -> None:
        log.append_marker(producer, 0, committed=committed, coordinator_epoch=1, now_ms=NOW_MS)

    for turn in range(4):
        batch_of(7, 6 * turn)
        log.append(bytearray(entry(some(log.log_end_offset, 2, 2), 2, Codec.LZ4)), now_ms=NOW_MS)
        batch_of(7, 6 * turn + 3)
        ended(7, committed=turn % 2 == 0)
    batch_of(8, 0)
    batch_of(7, 24)
    ended(7, committed=True)


def by_aiokafka(folder: Path) -> Iterator[Row]:
    """Yields the records of a partition's folder without control records, decoded by aiokafka's compiled decoder."""
    topic, _, partition = folder.name.rpartition("-")
    for path in sorted(folder.glob("*.log")):
        found = MemoryRecords(path.read_bytes())
        while (one := found.next_batch()) is not None:
            if getattr(one, "is_control_batch", False):
                continue
            for record in one:
                time = -1 if record.timestamp is None else record.timestamp
                kind = -1 if record.timestamp_type is None else record.timestamp_type
                headers = tuple(record.headers)
                yield Row(topic, int(partition), record.offset, time, kind, record.key, record.value, headers)
