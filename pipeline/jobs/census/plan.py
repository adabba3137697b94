"""The plan of a census: the segments of the chosen partitions, large ones in parts.

Owns the plan, made from names, sizes, indexes and the entries they point to; a wrong index causes no wrong parts.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....protocol.internal_records.metadata_values import Configs
from ....storage import inspect
from ...backend import ReadError
from ...objects.logs import LogPlace, places_of
from ...readers.files import indexes
from ...readers.files.windows import Gone, LogFile
from ..partitions import chosen, topic_configs
from ..report import total

PIECE_BYTES = 64 << 20
"""The size of a part of a segment: about a second of work."""


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """A segment from byte `start` to `end`, each the start of an entry or the end of the file. `is_newest`: the end is
    the partition's end, to which a broker may be writing. `objects`: the places of logs in object stores."""

    topic: str
    partition: int
    path: str
    start: int
    end: int
    is_newest: bool = False
    objects: tuple[LogPlace, ...] = ()

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return self.path if not self.start else f"{self.path} from byte {self.start}"


@dataclass(slots=True)
class Plan:
    """The segments to count. `configs` are the topic configs from `__cluster_metadata-0`; None if that is missing."""

    paths: list[str]
    folders: list[inspect.PartitionFolder]
    pieces: list[SegmentPiece] = field(default_factory=list)
    configs: Configs | None = None

    @property
    def segments(self) -> int:
        return sum(len(folder.segments) for folder in self.folders)

    bytes = total("pieces", "size_bytes")


def plan(
    paths: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    piece_bytes: int = PIECE_BYTES,
    store_conf: Mapping[str, str] | None = None,
) -> Plan:
    """Returns the pieces of these log directories and partition folders: of `topics`, or of all. They may be copies in
    an object store, with `store_conf` as its settings. Raises the errors of `chosen`, StoreError."""
    objects = places_of(paths, store_conf)
    picked = chosen(paths, topics=topics)
    made = Plan(list(paths), picked, configs=topic_configs(paths))
    for folder in picked:
        for segment in folder.segments:
            made.pieces += [replace(piece, objects=objects) for piece in _pieces(folder, segment, piece_bytes)]
    return made


def _pieces(folder: inspect.PartitionFolder, segment: inspect.SegmentFile, piece_bytes: int) -> Iterator[SegmentPiece]:
    newest = segment is folder.segments[-1]
    if not segment.size_bytes:
        return
    bounds = [0, *_cuts(segment, piece_bytes), segment.size_bytes]
    for start, end in itertools.pairwise(bounds):
        is_last = newest and end == segment.size_bytes
        yield SegmentPiece(folder.topic, folder.partition, segment.path, start, end, is_last)


def _cuts(segment: inspect.SegmentFile, piece_bytes: int) -> list[int]:
    """Returns the positions at which a segment may be split into parts of about this size: starts of entries, by the
    index as far as the log confirms it, else by the headers."""
    cuts: list[int] = []
    if segment.size_bytes <= piece_bytes:
        return cuts
    with contextlib.suppress(OSError, ReadError, Gone), LogFile(segment.path) as file:
        entries = indexes.offset_entries(segment.path, segment.base_offset)
        mark = None
        while segment.size_bytes - (mark.position if mark is not None else 0) > piece_bytes:
            least = (mark.position if mark is not None else 0) + piece_bytes
            mark = indexes.at_or_after(file, segment.base_offset, least, mark, entries)
            if mark is None or mark.position >= segment.size_bytes:
                break
            cuts.append(mark.position)
    return cuts
