"""What is to be written of each partition, and by which task: the files in the order of their offsets, cut where they
allow it.

Owns the choice of topics and their names, the numbering of rows without offsets, and the cuts. Pure.
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
from . import rows
from .files import Found, Part
from .rows import FilePart

PIECE_BYTES = 256 << 20
"""A piece ends behind the file with which it has about as much, as the rows take it in memory: each begins a segment,
so they must not be small."""

HOLES_MAX = 10_000
"""A broker that starts on a directory makes so many partitions of a topic that are not there, and no more."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition, offsets `first` to `last`: work of one task. `topic` is the one that is written to."""

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
        """The rows, see `rows.read`. ReadError."""
        return rows.read(self.clusters)

    def __str__(self) -> str:
        return f"{self.key} from offset {self.first}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to be imported: `partitions` has how many the topics have, those without rows included."""

    pieces: tuple[Piece, ...]
    files: int
    file_bytes: int

    @property
    def partitions(self) -> dict[str, int]:
        """{topic: the highest partition and one}."""
        found: dict[str, int] = {}
        for piece in self.pieces:
            found[piece.topic] = max(found.get(piece.topic, 0), piece.partition + 1)
        return dict(sorted(found.items()))

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions that have rows."""
        return sorted({piece.key for piece in self.pieces})

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def plain_bytes(self) -> int:
        return sum(piece.plain_bytes for piece in self.pieces)


class _Source(NamedTuple):
    """A part of a file, on its way to a piece."""

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
    """The pieces of these files: of these topics, of those whose whole name is like this, or of all but the brokers'
    own; written to `to_topic`, or to topics of their own names.

    Rows without a partition are of partition `no_partition`; those without offsets are numbered, in the order of the
    names of the files. Raises ReadError.
    """
    chosen = _chosen(found, None if topics is None else set(topics), like)
    if to_topic is not None:
        _check_name(to_topic)
        names = sorted({source.part.topic for source in chosen if source.part.topic is not None})
        if len(names) > 1:
            raise ReadError(f"these are several topics, {', '.join(names[:5])}: choose one of them for {to_topic}")
    by_key: dict[TopicPartition, list[_Source]] = {}
    for source in chosen:
        topic = to_topic if to_topic is not None else source.part.topic
        if topic is None:
            raise ReadError(f"{source.found.file.path} does not say of which topic it is: name one with --to-topic")
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
    """Raises ReadError where a topic would have partitions that no broker makes for the sake of a high one."""
    there: dict[str, list[int]] = {}
    for key in keys:
        there.setdefault(key.topic, []).append(key.partition)
    for topic, numbers in there.items():
        if (holes := max(numbers) + 1 - len(numbers)) > HOLES_MAX:
            raise ReadError(f"rows are of partition {max(numbers)} of topic {topic}, but of {holes} below it are none")


def _check_name(topic: str) -> None:
    if topic in (".", "..") or _TOPIC.fullmatch(topic) is None:
        raise ReadError(
            f"{topic!r} cannot be the name of a topic: 1 to 249 of the letters a-z, A-Z, 0-9, '.', '_', '-'"
        )


def _chosen(found: Sequence[Found], topics: set[str] | None, like: re.Pattern[str] | None) -> list[_Source]:
    known = {part.topic for one in found for part in one.parts if part.topic is not None}
    if topics is not None and (missing := sorted(topics - known)):
        raise ReadError(f"no file holds records of {', '.join(missing)}")
    chosen: list[_Source] = []
    for one in sorted(found, key=lambda one: one.file.name):
        for part in one.parts:
            if _is_wanted(part.topic, topics, like):
                several = len(one.parts) > 1
                topic = part.topic if several and one.file.topic is None else None
                partition = part.partition if several and one.file.partition is None else None
                chosen.append(_Source(one, part, FilePart(one.file.path, topic, partition, None, part.rises)))
    if not chosen:
        raise ReadError("there are no rows to be imported")
    _check_makings(chosen)
    return chosen


def _check_makings(chosen: Iterable[_Source]) -> None:
    """Raises ReadError for an export of a topic that was made anew meanwhile: offsets count from 0 in each."""
    found: dict[str, str] = {}
    for source in chosen:
        name = file_name(os.path.basename(source.found.file.path))
        if source.part.topic is not None and name is not None:
            making = f"g{name.generation}-" if name.generation else "no g"
            if found.setdefault(source.part.topic, making) != making:
                raise ReadError(
                    f"the files are of several topics {source.part.topic}, for it was made anew (their names begin "
                    f"with {found[source.part.topic]} and {making}): import those of one from a folder of their own"
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
    """The files in order of their offsets, those together that overlap."""
    without = [source for source in sources if source.part.first is None]
    if without and len(without) < len(sources):
        with_one = next(source for source in sources if source.part.first is not None)
        raise ReadError(
            f"{key}: {without[0].found.file.path} has no offsets, {with_one.found.file.path} has: they have no order"
        )
    if without:
        return [[source] for source in _numbered(sources)]
    found: list[list[_Source]] = []
    reached = -1
    for source in sorted(sources, key=lambda source: (source.part.first or 0, source.found.file.name)):
        first, last = source.part.first or 0, source.part.last or 0
        if first < 0 or last == INT64_MAX:
            raise ReadError(f"{source.found.file.path}: offset {first if first < 0 else last} cannot be a record's")
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
