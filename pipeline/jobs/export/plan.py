"""The plan of an export: the existing offsets without those that were exported before.

Owns the refusals: topics that were recreated since, and logs that end before their exported offsets. Calls a backend
and reads the manifest; no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....protocol.primitives import ZERO_UUID
from ....storage.format.partition_metadata import encode_id
from ...backend import Backend, DataLoss, OffsetRange, Offsets, OnCorrupt, Piece, Selection, TopicPartition, Wanted
from ...offsets import EARLIEST, LATEST, AtOffset, Limit, positions, split
from ...readers.files import FileBackend, FilePiece
from ...readers.files.pieces import joined
from . import layout
from .manifest import Exported, ExportError, Manifest, Range, Topic, without
from .tasks import Form, Work

WIRE_OFFSETS = 500_000
"""The most offsets that one task reads from a broker, whose size in bytes is unknown in advance."""

OFFSET_BYTES = 100
"""The assumed size of an offset without better knowledge, for bundles and progress."""


FROM_START = AtOffset(EARLIEST)
TO_END = AtOffset(LATEST)


@dataclass(frozen=True, slots=True)
class Request:
    """The scope of an export. `new_generation`: a recreated topic is exported next to its old generation.
    `fail_on_loss`: records that were deleted before their export raise an error before any work."""

    selection: Selection
    starting: Limit = FROM_START
    ending: Limit = TO_END
    committed: bool = True
    on_corrupt: OnCorrupt = "fail"
    new_generation: bool = False
    fail_on_loss: bool = False


@dataclass(slots=True)
class TopicPlan:
    """The plan for a topic, by partition: `todo`, `skipped` (exported before) and `gone` (deleted before that)."""

    topic: str
    topic_id: str | None
    generation: int
    todo: dict[int, list[Range]] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)
    gone: dict[int, Range] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """The plan for all topics: `works` are the items of the tasks."""

    topics: dict[str, TopicPlan]
    works: list[Work]

    @property
    def gone(self) -> list[Exported]:
        """The offsets to record as gone."""
        return [
            Exported(topic.topic, topic.topic_id, topic.generation, partition, *of, gone=True)
            for topic in self.topics.values()
            for partition, of in topic.gone.items()
        ]

    @property
    def offsets(self) -> int:
        return sum(one.size for topic in self.topics.values() for of in topic.todo.values() for one in of)

    @property
    def skipped(self) -> int:
        return sum(sum(topic.skipped.values()) for topic in self.topics.values())


def plan(backend: Backend, manifest: Manifest, request: Request, root: str, form: Form) -> Plan:
    """Makes the plan. Raises ExportError, OptionError, DataLoss, ReadError of the backend."""
    keys = backend.partitions(request.selection)
    # The starts are read first: tasks detect later deletions.
    first = backend.earliest(keys)
    starts = positions(backend, keys, request.starting, committed=request.committed)
    last = backend.latest(keys, committed=request.committed)
    ends = last
    if request.ending != TO_END:
        ends = positions(backend, keys, request.ending, end="ending", committed=request.committed)
    topics: dict[str, TopicPlan] = {}
    for key in keys:
        if key not in first or key not in last or key not in starts or key not in ends:
            continue  # deleted since it was listed
        if key.topic not in topics:
            topics[key.topic] = _topic(backend, manifest, request, key.topic, keys, last)
        topic, known = topics[key.topic], manifest.topic(key.topic)
        covered = known.covered(key.partition) if topic.generation == known.generation else []
        if request.starting == FROM_START and covered and covered[-1].end < first[key]:
            topic.gone[key.partition] = gone = Range(covered[-1].end, first[key])
            if request.fail_on_loss:
                raise DataLoss(f"{key}: offsets {gone} were deleted before they were exported")
        requested = Range(max(starts[key], first[key]), min(ends[key], last[key]))
        if todo := without(requested, covered):
            topic.todo[key.partition] = todo
        topic.skipped[key.partition] = requested.size - sum(one.size for one in todo)
    return Plan(topics, list(works_of(backend, topics, request, root, form)))


def _topic(
    backend: Backend, manifest: Manifest, request: Request, name: str, keys: Sequence[TopicPartition], last: Offsets
) -> TopicPlan:
    """Plans a topic, and checks that it is the one that was exported before."""
    raw = backend.topic_id(name)
    topic_id = encode_id(raw) if raw != ZERO_UUID else None
    known = manifest.topic(name)
    why = _recreated(known, topic_id, [key for key in keys if key.topic == name], last)
    if why is None:
        return TopicPlan(name, topic_id or known.topic_id, known.generation)
    if not request.new_generation:
        raise ExportError(
            f"topic {name} is not the one that was exported before: {why}; --new-generation (new_generation=True) "
            "exports it next to the old one"
        )
    return TopicPlan(name, topic_id, known.generation + 1)


def _recreated(known: Topic, topic_id: str | None, keys: Sequence[TopicPartition], last: Offsets) -> str | None:
    if topic_id is not None and known.topic_id is not None and topic_id != known.topic_id:
        return f"its id is {topic_id}, but was {known.topic_id}"
    for key in keys:
        covered = known.covered(key.partition)
        if covered and key in last and last[key] < covered[-1].end:
            return f"{key} ends at offset {last[key]}, but was exported up to {covered[-1].end}"
    return None


def works_of(
    backend: Backend, topics: Mapping[str, TopicPlan], request: Request, root: str, form: Form
) -> Iterator[Work]:
    """Yields the items of the tasks. Several gaps of a partition are several ranges."""
    wanted = Wanted(columns=layout.READ, committed=request.committed, on_corrupt=request.on_corrupt)
    ranges = [
        OffsetRange(topic.topic, partition, *one)
        for topic in topics.values()
        for partition, of in topic.todo.items()
        for one in of
    ]
    pieces: Iterable[Piece]
    if isinstance(backend, FileBackend):  # each piece writes its own files
        pieces = joined(backend.pieces(ranges, wanted, at_least=None), form.file_bytes // 2)
    else:
        pieces = backend.pieces(split(ranges, WIRE_OFFSETS), wanted, at_least=None)
    for piece in pieces:
        reads, size_bytes = _reads(piece)
        yield Work(piece, root, *reads, topics[reads.topic].generation, size_bytes, form, request.fail_on_loss)


def _reads(piece: Any) -> tuple[OffsetRange, int]:
    """Returns the offsets of a piece, and their approximate size in bytes."""
    if isinstance(piece, FilePiece):
        return OffsetRange(*piece.key, piece.start, piece.end), piece.size_bytes
    return piece.range, piece.range.size * OFFSET_BYTES
