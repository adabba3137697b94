"""The plan of an import: the rows of each partition in offset order, divided into tasks at file boundaries.

Owns the choice and the names of topics, the numbering of rows without offsets, and the division. Pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ....protocol.limits import INT64_MAX
from ...backend import ReadError, TopicPartition
from ...readers.files.catalog import INTERNAL
from ..export.layout import file_name
from ..report import total
from . import rows
from .files import Found, Part
from .rows import FilePart

PIECE_BYTES = 256 << 20
"""A piece ends after the file with which it reaches this size of rows in memory: each piece begins a segment, so pieces
must not be small."""

HOLES_MAX = 10_000
"""The most missing partitions of a topic that a broker creates when it starts on a directory."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one partition with the offsets `first` to `last`, the work of one task. `topic` is the target."""

    topic: str
    partition: int
    number: int
    clusters: tuple[tuple[FilePart, ...], ...]
    rows: int
    first: int
    last: int
    plain_bytes: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, see `rows.read`. Raises ReadError."""
        return rows.read(self.clusters)

    def __str__(self) -> str:
        return f"{self.key} from offset {self.first}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The pieces to import; `partitions` has the number of partitions of each topic, those without rows included."""

    pieces: tuple[Piece, ...]
    files: int
    file_bytes: int

    @property
    def partitions(self) -> dict[str, int]:
        """{topic: highest partition + 1}."""
        found: dict[str, int] = {}
        for piece in self.pieces:
            found[piece.topic] = max(found.get(piece.topic, 0), piece.partition + 1)
        return dict(sorted(found.items()))

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions with rows."""
        return sorted({piece.key for piece in self.pieces})

    rows, plain_bytes = (total("pieces", name) for name in ("rows", "plain_bytes"))


class _Source(NamedTuple):
    """A part of a file, before its assignment to a piece."""

    found: Found
    part: Part
    file: FilePart

    @property
    def plain_bytes(self) -> int:
        return self.found.plain_bytes * self.part.rows // max(1, sum(part.rows for part in self.found.parts))


def plan(
    found: Sequence[Found],
    *,
    to_topic: str | None = None,
    topics: Iterable[str] | None = None,
    like: re.Pattern[str] | None = None,
    piece_bytes: int = PIECE_BYTES,
    no_partition: int = 0,
) -> Plan:
    """Returns the pieces of these files: of `topics`, of topics whose full name matches `like`, or of all but internal
    topics; for the target `to_topic`, or topics of the same names.

    Rows without a partition get the partition `no_partition`; rows without offsets are numbered, in the order of the
    file names. Raises ReadError.
    """
    chosen = _chosen(found, None if topics is None else set(topics), like)
    if to_topic is not None:
        _check_name(to_topic)
        names = sorted({source.part.topic for source in chosen if source.part.topic is not None})
        if len(names) > 1:
            raise ReadError(f"the files have several topics, {', '.join(names[:5])}: choose one of them for {to_topic}")
    by_key: dict[TopicPartition, list[_Source]] = {}
    for source in chosen:
        topic = to_topic if to_topic is not None else source.part.topic
        if topic is None:
            raise ReadError(f"{source.found.file.path} has no topic: name one with --to-topic")
        _check_name(topic)
        partition = source.part.partition
        by_key.setdefault(TopicPartition(topic, no_partition if partition is None else partition), []).append(source)
    _check_holes(by_key)
    pieces: list[Piece] = []
    for key in sorted(by_key):
        pieces += _pieces(key, by_key[key], piece_bytes)
    files = {source.found.file.path: source.found.size_bytes for source in chosen}
    return Plan(tuple(pieces), len(files), sum(files.values()))


def _check_holes(keys: Iterable[TopicPartition]) -> None:
    """Raises ReadError if a topic would have more missing partitions than a broker creates."""
    there: dict[str, list[int]] = {}
    for key in keys:
        there.setdefault(key.topic, []).append(key.partition)
    for topic, numbers in there.items():
        if (holes := max(numbers) + 1 - len(numbers)) > HOLES_MAX:
            raise ReadError(f"topic {topic} has rows of partition {max(numbers)}, but none of {holes} below it")


def _check_name(topic: str) -> None:
    if topic in (".", "..") or _TOPIC.fullmatch(topic) is None:
        raise ReadError(f"{topic!r} is not a valid topic name: use 1 to 249 characters of a-z, A-Z, 0-9, '.', '_', '-'")


def _chosen(found: Sequence[Found], topics: set[str] | None, like: re.Pattern[str] | None) -> list[_Source]:
    known = {part.topic for one in found for part in one.parts if part.topic is not None}
    if topics is not None and (missing := sorted(topics - known)):
        raise ReadError(f"no file has records of {', '.join(missing)}")
    chosen: list[_Source] = []
    for one in sorted(found, key=lambda one: one.file.name):
        for part in one.parts:
            if _is_wanted(part.topic, topics, like):
                several = len(one.parts) > 1
                topic = part.topic if several and one.file.topic is None else None
                partition = part.partition if several and one.file.partition is None else None
                chosen.append(
                    _Source(one, part, FilePart(one.file.path, topic, partition, None, part.rises, one.file.place))
                )
    if not chosen:
        raise ReadError("there are no rows to import: check the folder, --topic and --topics")
    _check_generations(chosen)
    return chosen


def _check_generations(chosen: Iterable[_Source]) -> None:
    """Raises ReadError for an export with several generations of a topic: each has offsets from 0."""
    found: dict[str, str] = {}
    for source in chosen:
        name = file_name(os.path.basename(source.found.file.path))
        if source.part.topic is not None and name is not None:
            generation = f"g{name.generation}-" if name.generation else "no g"
            if found.setdefault(source.part.topic, generation) != generation:
                raise ReadError(
                    f"the files are of several generations of topic {source.part.topic} (their names begin "
                    f"with {found[source.part.topic]} and {generation}): import one generation from its own folder"
                )


def _is_wanted(topic: str | None, topics: set[str] | None, like: re.Pattern[str] | None) -> bool:
    if topics is None and like is None:
        return topic not in INTERNAL
    return topic is not None and ((topics is not None and topic in topics) or bool(like and like.fullmatch(topic)))


def _pieces(key: TopicPartition, sources: list[_Source], piece_bytes: int) -> Iterator[Piece]:
    clusters = _clusters(key, sources)
    taken: list[list[_Source]] = []
    number = size = 0
    for index, cluster in enumerate(clusters):
        taken.append(cluster)
        size += sum(source.plain_bytes for source in cluster)
        if size >= piece_bytes or index == len(clusters) - 1:
            parts = [source.part for of in taken for source in of]
            yield Piece(
                key.topic,
                key.partition,
                number,
                tuple(tuple(source.file for source in of) for of in taken),
                sum(part.rows for part in parts),
                min(part.first for part in parts if part.first is not None),
                max(part.last for part in parts if part.last is not None),
                size,
            )
            taken, number, size = [], number + 1, 0


def _clusters(key: TopicPartition, sources: list[_Source]) -> list[list[_Source]]:
    """Returns the files in order of their offsets, overlapping ones together."""
    without = [source for source in sources if source.part.first is None]
    if without and len(without) < len(sources):
        with_one = next(source for source in sources if source.part.first is not None)
        raise ReadError(f"{key}: {without[0].found.file.path} has no offsets, but {with_one.found.file.path} has")
    if without:
        return [[source] for source in _numbered(sources)]
    found: list[list[_Source]] = []
    reached = -1
    for source in sorted(sources, key=lambda source: (source.part.first or 0, source.found.file.name)):
        first, last = source.part.first or 0, source.part.last or 0
        if first < 0 or last == INT64_MAX:
            raise ReadError(f"{source.found.file.path}: offset {first if first < 0 else last} is not a valid offset")
        if found and first <= reached:
            found[-1].append(source)
        else:
            found.append([source])
        reached = max(reached, last)
    return found


def _numbered(sources: Iterable[_Source]) -> Iterator[_Source]:
    start = 0
    for source in sources:
        end = start + source.part.rows
        part = source.part._replace(first=start, last=end - 1)
        yield _Source(source.found, part, source.file._replace(start=start))
        start = end
