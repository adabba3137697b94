"""The batches of one partition, in order, read from its files; for commands that explain producers.

Owns finding the partition and its log start, and reading headers and transaction markers in sequence. It takes no lock
and writes nothing, so it works beside a running broker; batches that are appended meanwhile are not seen. Memory does
not grow with the log.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Sequence

from ...protocol.named import NamedTuple
from ...protocol.names import meant, near
from ...protocol.records import batch
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...storage import inspect
from ...storage.errors import StorageError
from ...storage.format import checkpoint
from ...storage.format.file_names import offsets_in
from ...storage.io.files import DiskFiles
from ...storage.producers import snapshot
from ...storage.producers.producer_state import Producer, ProducerRules, advance, forget_below

MARKER_BYTES_MAX = 4096  # a marker has about 80
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, the coordinator's epoch
_MARKER_TYPES = {0: "ABORT", 1: "COMMIT"}


class Marker(NamedTuple):
    """The end of a transaction, read from its control batch; "?" and -1 for unreadable parts."""

    kind: str
    coordinator_epoch: int


class LogBatch(NamedTuple):
    """One batch, or one message of format v0 or v1.

    `first_offset` is -1 for a compressed set of an old format. `log_position` is the number of bytes of the log's files
    before it. `begins_segment` is True for the first batch of a file.
    """

    header: BatchHeader
    first_offset: int
    log_position: int
    begins_segment: bool
    marker: Marker | None


class PartitionFiles:
    """The files of one partition. The attributes marked "after `batches`" are set when it has ended."""

    def __init__(self, folder: inspect.PartitionFolder, log_start_offset: int) -> None:
        self.folder = folder
        self.log_start_offset = max(log_start_offset, folder.segments[0].base_offset)
        """The log start offset; the files may begin below it."""
        self.end_offset = 0
        """After `batches`: the offset after the last batch that was read."""
        self.size_bytes = 0
        """After `batches`: the bytes up to the end of the last batch that was read, including earlier files."""
        self.damage: str | None = None
        """After `batches`: the place and the reason of damage that ended the reading early, or None. The end of the log
        and a write under way are no damage.
        """

    @property
    def name(self) -> str:
        return f"{self.folder.topic}-{self.folder.partition}"

    def batches(self, from_offset: int = 0) -> Iterator[LogBatch]:
        """Yields the batches of the segments that may have offsets from `from_offset` on, oldest first, up to the first
        damage.
        """
        segments = self.folder.segments
        first = sum(segment.base_offset <= from_offset for segment in segments[1:])
        position = sum(segment.size_bytes for segment in segments[:first])
        self.end_offset, self.size_bytes, self.damage = segments[first].base_offset, position, None
        for segment in segments[first:]:
            self.end_offset = max(self.end_offset, segment.base_offset)
            try:
                with inspect.FileSource(segment.path) as source:
                    yield from self._in_segment(segment, source, position)
            except StorageError as error:
                if os.path.exists(segment.path):
                    self.damage = str(error)
                # Else the file was deleted meanwhile: no damage, and later segments are readable.
            if self.damage is not None:
                return
            position += segment.size_bytes

    def _in_segment(self, segment: inspect.SegmentFile, source: inspect.Source, position: int) -> Iterator[LogBatch]:
        is_first = True
        for found in inspect.entries(source, check_crc=False):
            where = f"{self.name}/{os.path.basename(segment.path)} at byte {found.position}"
            if isinstance(found, inspect.Damage):
                if not found.is_tail or segment is not self.folder.segments[-1]:  # else the broker is writing it
                    self.damage = f"{where}: {found.reason}"
                return
            first, last = found.header.base_offset, found.last_offset
            if not self.end_offset <= first <= last:
                what = f"ends at offset {last}" if last < first else f"comes after offset {self.end_offset - 1}"
                self.damage = f"{where}: offset {first} {what}"
                return
            marker = _marker(source, found) if found.header.is_control else None
            yield LogBatch(found.header, found.first_offset, position + found.position, is_first, marker)
            is_first = False
            self.end_offset = found.last_offset + 1
            self.size_bytes = position + found.position + found.size_bytes

    def _snapshots(self, least: int, *, newest_first: bool = False) -> Iterator[tuple[int, dict[int, Producer]]]:
        """Yields (offset, producers) of each valid snapshot from an offset on."""
        offsets: list[int] = []
        with contextlib.suppress(OSError):
            offsets = offsets_in(os.listdir(self.folder.path), snapshot.SUFFIX)
        for offset in sorted(offsets, reverse=newest_first):
            with contextlib.suppress(StorageError):
                found = snapshot.read(DiskFiles(), self.folder.path, offset) if offset >= least else None
                if found is not None:
                    yield offset, found

    def snapshots(self) -> Iterator[tuple[int, dict[int, Producer]]]:
        """Yields (offset, producers) of each valid snapshot above the log start, newest first."""
        return self._snapshots(self.log_start_offset + 1, newest_first=True)

    def opening(self) -> dict[int, Producer]:
        """Returns the producers whose open transaction began before the first file, from the oldest valid snapshot."""
        first = self.folder.segments[0].base_offset
        _, found = next(self._snapshots(first), (first, dict[int, Producer]()))
        return {pid: known for pid, known in found.items() if 0 <= known.transaction_first_offset < first}

    def producers(self, rules: ProducerRules) -> tuple[dict[int, Producer], int | None]:
        """Returns the producer states that a broker has after opening this log, and the offset of the snapshot it
        starts from.

        Idle producers are kept: their expiry depends on the time at which the broker opens the log.
        """
        for offset, found in self.snapshots():
            known = dict(found)
            forget_below(known, self.log_start_offset, rules)
            self._replay(known, offset, rules)
            if self.end_offset >= offset:
                return known, offset
        known: dict[int, Producer] = {}
        self._replay(known, self.log_start_offset, rules)
        return known, None

    def _replay(self, known: dict[int, Producer], start: int, rules: ProducerRules) -> None:
        for found in self.batches(start):
            advance(known, found.header, start, rules, found.marker.coordinator_epoch if found.marker else -1)
        forget_below(known, self.log_start_offset, rules)


def _marker(source: inspect.Source, found: inspect.BatchFacts) -> Marker:
    if found.size_bytes > MARKER_BYTES_MAX:
        return Marker("?", -1)
    try:
        for record in batch.records(source.read(found.position, found.size_bytes)):
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
            return Marker(_MARKER_TYPES.get(kind, "?"), coordinator_epoch)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec, struct.error, OSError):
        pass
    return Marker("?", -1)


def find(directory: str, topic: str | None = None, partition: int | None = None) -> list[PartitionFiles]:
    """Returns the partitions of a data directory, by topic and number; with `topic` or `partition` only the matching
    ones.

    Raises StorageError with a text for users if none matches.
    """
    found = inspect.partitions(directory)
    chosen = [folder for folder in found if topic in (None, folder.topic) and partition in (None, folder.partition)]
    if not chosen and (topic is not None or partition is not None):
        raise StorageError(_missing(directory, found, topic, partition))
    starts: dict[tuple[str, int], int] = {}
    with contextlib.suppress(StorageError):  # only a hint, as for the broker
        starts = checkpoint.read_offsets(DiskFiles(), os.path.join(directory, checkpoint.LOG_START_OFFSET))
    return [PartitionFiles(folder, starts.get((folder.topic, folder.partition), 0)) for folder in chosen]


def _missing(directory: str, found: Sequence[inspect.PartitionFolder], topic: str | None, partition: int | None) -> str:
    topics = sorted({folder.topic for folder in found})
    if topic is None:
        return f"no topic in {directory} has a partition {partition}"
    if topic in topics:
        numbers = [folder.partition for folder in found if folder.topic == topic]
        return f"{topic} has no partition {partition} in {directory}; it has {_listed(numbers)}"
    return f"no topic {topic} in {directory}" + (meant(near(topic, topics, 3) or topics[:3]) or "; it has no topics")


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"
