"""Records of a partition for the web pages: from an offset on, or before one.

Bounds how much of a log one request may read, decode and keep: a search ends after so many bytes and records, and
returns the offset where the next may begin. The log is read on the broker's loop in slices; each slice is decoded in a
thread. Nothing is hidden: markers, records of aborted transactions and batches that cannot be decoded are included.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ....protocol.records import formats
from ....protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ....protocol.records.schemas import CONTROL_TYPES
from ....storage.errors import OffsetOutOfRange, StorageError
from ...admin_api.views import NotFound, OperationError
from ...cooperative import in_thread
from .logs import format_name

if TYPE_CHECKING:
    from ....protocol.records.batch import BatchHeader, Record
    from ....storage.producers.txn_index import AbortedTransaction
    from ...broker_state import BrokerState
    from ...metadata.topics import Topic
    from ...replica.partition import Partition

SLICE_BYTES = 256 * 1024
LOOK_BYTES = 8 * 1024 * 1024  # of slices, in one search
LOOK_RECORDS = 100_000  # that are searched for a text
OPENED_BYTES = 16 * 1024 * 1024  # of one batch, decompressed
KEPT_BYTES = 600  # of a key or a value in a list
BACK_STEPS = 33  # each four times as far as the last: enough for any log
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")

_DAMAGE = (CorruptRecords, InvalidRecords, UnsupportedCodec)

OPEN, ABORTED = "open", "aborted"


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of some bytes, and the size of all; `head` is None for null."""

    head: bytes | None
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether bytes are missing."""
        return self.head is not None and self.size > len(self.head)


def cut(value: bytes | None, most: int | None) -> Cut:
    """Returns at most so many bytes of a value, all of them with None."""
    return Cut(value if value is None or most is None else value[:most], len(value or b""))


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The facts in the header of a record's batch. `fate` is OPEN, ABORTED or empty. `crc_ok` is None if it was not
    checked."""

    header: BatchHeader
    fate: str = ""
    crc_ok: bool | None = None

    @property
    def format(self) -> str:
        """Its message format with its codec."""
        return format_name(self.header.magic, self.header.codec)


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record, or a batch whose records cannot be read: `problem` is the reason."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Cut
    value: Cut
    headers: tuple[tuple[str, bytes | None], ...]
    batch: BatchFacts
    marker: str = ""
    problem: str | None = None

    @property
    def kept_bytes(self) -> int:
        """The number of bytes that are kept."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key.head or b"") + len(self.value.head or b"") + headers


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of a search. `next_offset` is where the next search may begin. `is_whole` is whether this one was
    complete: it found as many records as wanted, or reached the end. `looked` counts the records that were read."""

    records: list[SeenRecord]
    next_offset: int
    is_whole: bool
    looked: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search: `count` records from `offset` to below `until`, with the bytes `contains` in some part; with `newest`
    the last such records. Keys, values and headers are cut to `kept_bytes`; None keeps them whole. A search ends after
    the record with which it keeps `most_bytes`."""

    offset: int
    until: int
    count: int
    contains: bytes = b""
    newest: bool = False
    kept_bytes: int | None = KEPT_BYTES
    most_bytes: int | None = None

    def fits(self, record: Record) -> bool:
        """Returns whether a record contains the text."""
        text = self.contains
        return (
            not text
            or text in (record.key or b"")
            or text in (record.value or b"")
            or any(
                text in name.encode("utf-8", "surrogateescape") or text in (value or b"")
                for name, value in record.headers
            )
        )


@dataclass(slots=True)
class _Slice:
    """A slice of a log, to be decoded in a thread."""

    data: bytes
    partition: int
    aborted: Sequence[AbortedTransaction]
    stable_offset: int


@dataclass(slots=True)
class _Found:
    """The records found so far; used by one thread at a time."""

    records: deque[SeenRecord] = field(default_factory=deque[SeenRecord])
    next_offset: int = 0
    looked: int = 0
    kept_bytes: int = 0

    def has_enough(self, wanted: Wanted) -> bool:
        """Returns whether the wanted records are found."""
        return not wanted.newest and len(self.records) >= wanted.count

    def is_full(self, wanted: Wanted) -> bool:
        """Returns whether a bound is reached: of the records that are searched, or of the bytes that are kept."""
        is_kept = wanted.most_bytes is not None and self.kept_bytes >= wanted.most_bytes
        return is_kept or self.looked >= LOOK_RECORDS


def topic_named(state: BrokerState, name: str) -> Topic:
    """Returns a topic. Raises NotFound."""
    found = state.topics.get(name)
    if found is None:
        raise NotFound(f"there is no topic {name}")
    return found


def partition_of(state: BrokerState, topic: str, index: int) -> Partition:
    """Returns a partition. Raises NotFound."""
    found = topic_named(state, topic)
    check_partition(found, index)
    return found.partitions[index]


def check_partition(topic: Topic, index: int) -> None:
    """Raises NotFound for an index that the topic does not have."""
    if index >= len(topic.partitions):
        raise NotFound(f"{topic.name} has no partition {index}; it has {len(topic.partitions)}")


async def look(state: BrokerState, partition: Partition, wanted: Wanted) -> Seen:
    """Runs a search within the bounds of one request. Raises OperationError if the log cannot be read."""
    found = _Found(deque(maxlen=wanted.count if wanted.newest else None))
    try:
        log = partition.log
        found.next_offset = max(wanted.offset, log.log_start_offset)
        read = 0
        while True:
            log = partition.log  # again: it changes if the partition moves to another log directory
            until = min(wanted.until, log.high_watermark)
            if found.next_offset >= until or found.has_enough(wanted):
                return Seen(list(found.records), found.next_offset, True, found.looked)
            if read >= LOOK_BYTES or found.is_full(wanted):
                return Seen(list(found.records), found.next_offset, False, found.looked)
            before, stable_offset = found.next_offset, log.last_stable_offset
            part = log.read(before, SLICE_BYTES, committed=before < stable_offset)  # later batches have no fate yet
            piece = _Slice(bytes(part.records), partition.index, part.aborted, stable_offset)
            await state.scheduler.run(in_thread(partial(_open, piece, replace(wanted, until=until), found)))
            if found.next_offset == before:  # only offsets without records follow
                found.next_offset = until
            read += len(piece.data)
    except (StorageError, OffsetOutOfRange, CorruptRecords) as error:
        raise OperationError(f"{ErrorCode.KAFKA_STORAGE_ERROR.name}: {error}") from error


async def look_back(state: BrokerState, partition: Partition, before: int, wanted: Wanted) -> Seen:
    """Returns the last records below an offset. Steps back until it finds some, or reaches the beginning."""
    span = max(wanted.count, 1)
    seen = Seen([], before, True, 0)
    try:
        start = partition.log.log_start_offset
    except StorageError as error:
        raise OperationError(f"{ErrorCode.KAFKA_STORAGE_ERROR.name}: {error}") from error
    for _ in range(BACK_STEPS):
        first = max(start, before - span)
        step = replace(wanted, offset=first, until=before, newest=True)
        seen = await look(state, partition, step)
        if len(seen.records) >= min(wanted.count, before - start) or first == start or not seen.is_whole:
            break
        if seen.looked > LOOK_RECORDS // 4:
            break
        span *= 4
    return seen


def _open(piece: _Slice, wanted: Wanted, found: _Found) -> None:
    """Takes the wanted records from a slice; in a thread. Moves `found.next_offset` past the batches that were read."""
    for position, header in formats.headers(piece.data):
        if header.last_offset < found.next_offset:
            continue
        if found.next_offset >= wanted.until or found.is_full(wanted) or found.has_enough(wanted):
            return
        facts = BatchFacts(header, _fate(piece, header), formats.crc_matches(piece.data, position, header))
        try:
            if _take(formats.records(piece.data, position, max_bytes=OPENED_BYTES), piece, facts, wanted, found):
                return
        except _DAMAGE as error:
            if not wanted.contains:
                offset, time_ms = max(header.base_offset, found.next_offset), header.max_timestamp
                nothing = Cut(None, 0)
                found.records.append(
                    SeenRecord(piece.partition, offset, time_ms, nothing, nothing, (), facts, problem=str(error))
                )
        found.next_offset = max(found.next_offset, header.last_offset + 1)


def _take(records: Iterable[Record], piece: _Slice, facts: BatchFacts, wanted: Wanted, found: _Found) -> bool:
    """Takes records of one batch; returns whether the search ends here."""
    first = found.next_offset
    for record in records:
        if record.offset < first:
            continue
        if record.offset >= wanted.until or found.is_full(wanted) or found.has_enough(wanted):
            return True
        found.looked += 1
        found.next_offset = record.offset + 1
        if wanted.fits(record):
            seen = _seen(record, piece.partition, facts, wanted.kept_bytes)
            found.records.append(seen)
            found.kept_bytes += seen.kept_bytes
    return False


def _seen(record: Record, partition: int, facts: BatchFacts, kept_bytes: int | None) -> SeenRecord:
    headers = tuple((name, cut(value, kept_bytes).head) for name, value in record.headers)
    return SeenRecord(
        partition,
        record.offset,
        record.timestamp,
        cut(record.key, kept_bytes),
        cut(record.value, kept_bytes),
        headers,
        facts,
        _marker(record) if facts.header.is_control else "",
    )


def _marker(record: Record) -> str:
    """Describes a control record."""
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        return "control record of no known kind"
    kind = _MARKER_KEY.unpack_from(record.key)[1]
    text = CONTROL_TYPES.get(kind, f"control record of type {kind}")
    if kind in (0, 1) and record.value is not None and len(record.value) >= _MARKER_VALUE.size:
        text += f", coordinator epoch {_MARKER_VALUE.unpack_from(record.value)[1]}"
    return text


def _fate(piece: _Slice, header: BatchHeader) -> str:
    if not header.is_transactional or header.is_control:
        return ""
    if header.base_offset >= piece.stable_offset:
        return OPEN
    is_aborted = any(
        one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
        for one in piece.aborted
    )
    return ABORTED if is_aborted else ""
