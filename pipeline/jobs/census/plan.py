"""What a census goes through: the segments of the partitions that are chosen, large ones in parts.

Owns the plan, which is made by looking at names, sizes, indexes, and the entries that these point at: an index that
lies makes no wrong parts.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ....protocol.internal_records import metadata_values
from ....protocol.internal_records.metadata_values import Configs
from ....storage import inspect
from ....storage.errors import StorageError
from ....storage.log_dir import metadata_log
from ...backend import ReadError, TopicPartition
from ...readers.files import indexes
from ...readers.files.windows import Gone, LogFile

PIECE_BYTES = 64 << 20
"""A part of a segment has about as much: a second or so of work."""


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """A segment from byte `start` up to `end`, where entries begin or the file did end. `is_newest`: its end is the
    partition's, which a broker may be writing."""

    topic: str
    partition: int
    path: str
    start: int
    end: int
    is_newest: bool = False

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return self.path if not self.start else f"{self.path} from byte {self.start}"


@dataclass(slots=True)
class Plan:
    """What will be looked at. `configs` are those of topics, as `__cluster_metadata-0` has them; None where it is not
    here."""

    paths: list[str]
    folders: list[inspect.PartitionFolder]
    pieces: list[SegmentPiece] = field(default_factory=list)
    configs: Configs | None = None

    @property
    def segments(self) -> int:
        return sum(len(folder.segments) for folder in self.folders)

    @property
    def bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


def plan(
    paths: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    like: re.Pattern[str] | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> Plan:
    """The pieces of these log directories and partition folders: of these topics, of those whose whole name is like
    this, or of all. Raises as `chosen`."""
    picked = chosen(paths, topics=topics, like=like)
    made = Plan(list(paths), picked, configs=topic_configs(paths))
    for folder in picked:
        for segment in folder.segments:
            made.pieces += _pieces(folder, segment, piece_bytes)
    return made


def chosen(
    paths: Sequence[str], *, topics: Sequence[str] | None = None, like: re.Pattern[str] | None = None
) -> list[inspect.PartitionFolder]:
    """The partitions that are meant, by topic and number, each folder once.

    Raises ReadError for a path that is neither a log directory nor a partition's folder, and for a topic that was named
    and is nowhere.
    """
    found = {folder.path: folder for path in paths for folder in folders(path)}
    known = {folder.topic for folder in found.values()}
    if missing := sorted(set(topics or ()) - known):
        raise ReadError(f"there is no topic {', '.join(missing)} in {', '.join(paths)}")

    def is_meant(topic: str) -> bool:
        return (topics is None or topic in topics) and (like is None or like.fullmatch(topic) is not None)

    return sorted(folder for folder in found.values() if is_meant(folder.topic))


def folders(path: str) -> list[inspect.PartitionFolder]:
    """The partitions of a log directory, or the one whose folder this is. ReadError."""
    try:
        path = inspect.followed(path)
        folder = inspect.partition_folder(path)
        return [folder] if folder is not None else inspect.partitions(path)
    except StorageError as error:
        raise ReadError(str(error)) from error


def topic_configs(paths: Sequence[str]) -> Configs | None:
    """What is set for topics, by the metadata logs in these directories, or beside these partitions; None if there is
    none, as with ZooKeeper."""
    configs: Configs | None = None
    for path in map(inspect.followed, paths):
        above = [path] if inspect.partition_of(os.path.basename(path)) is None else [path, os.path.dirname(path)]
        for root in above:
            folder = inspect.partition_folder(os.path.join(root, f"{metadata_values.TOPIC}-0"))
            if folder is not None:
                configs = {**(configs or {}), **metadata_values.topic_configs(metadata_log.values(folder))}
    return configs


def _pieces(folder: inspect.PartitionFolder, segment: inspect.SegmentFile, piece_bytes: int) -> Iterator[SegmentPiece]:
    newest = segment is folder.segments[-1]
    if not segment.size_bytes:
        return
    bounds = [0, *_cuts(segment, piece_bytes), segment.size_bytes]
    for start, end in itertools.pairwise(bounds):
        is_last = newest and end == segment.size_bytes
        yield SegmentPiece(folder.topic, folder.partition, segment.path, start, end, is_last)


def _cuts(segment: inspect.SegmentFile, piece_bytes: int) -> list[int]:
    """Where a segment may be cut into parts of about this size: where entries begin, by its index as far as the log
    confirms it, else by the headers."""
    cuts: list[int] = []
    if segment.size_bytes <= piece_bytes:
        return cuts
    with contextlib.suppress(OSError, ReadError, Gone), LogFile(segment.path) as file:
        entries = indexes.offset_entries(segment.path, segment.base_offset)
        mark = None
        while segment.size_bytes - (mark.position if mark is not None else 0) > piece_bytes:
            least = (mark.position if mark is not None else 0) + piece_bytes
            mark = indexes.behind_position(file, segment.base_offset, least, mark, entries)
            if mark is None or mark.position >= segment.size_bytes:
                break
            cuts.append(mark.position)
    return cuts
