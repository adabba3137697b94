"""The plan of a verification: the offsets of each exported partition, divided by what the log still has of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ....protocol.limits import INT64_MAX
from ....protocol.primitives import ZERO_UUID
from ....storage.format.partition_metadata import encode_id
from ...backend import Backend, ReadError, Selection, TopicPartition
from ...objects.places import Place, files_of
from ...readers.files.broker_lock import is_locked
from ...readers.files.catalog import INTERNAL
from ..export import layout
from ..export.commit import Settings, stored
from ..export.manifest import ExportError, Manifest, Range, without
from ..export.plan import Request, TopicPlan, works_of
from ..export.tasks import Form
from ..iceberg_catalog import CatalogTable
from .compare import Check, Kind
from .listing import TableFile, listed, problems


@dataclass(slots=True)
class VerifyPlan:
    """The checks, and what differs without reading rows: `problems` of files, and of the ends of logs. `absent` are
    topics that the export has and the logs do not."""

    root: str
    settings: Settings
    checks: list[Check] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    @property
    def partitions(self) -> int:
        return len({check.key for check in self.checks})


def folder_settings(root: str, place: Place | None = None) -> Settings:
    """Returns the settings of the export in a folder, or in an object store. Raises ExportError if there is none, or if
    it is changing."""
    files = files_of(place)
    settings, lock = stored(root, place), os.path.join(root, layout.LOCK)
    if settings is None:
        raise ExportError(f"{root} is not the folder of an export: it has no {layout.SETTINGS}")
    # The lock of a folder is an empty file, which is not a lock where it was copied to.
    if is_locked(lock) if place is None else files.exists(lock) and files.size(lock) > 0:
        raise ExportError(f"{root} is in use by an export: wait for its end, or if it was killed run it again")
    if files.exists(os.path.join(root, layout.PENDING)):
        raise ExportError(f"{root} has an interrupted commit: run that export again first")
    return settings


def plan(
    backend: Backend,
    root: str,
    selection: Selection,
    catalog: CatalogTable | None = None,
    *,
    compacted: bool = False,
    place: Place | None = None,
) -> VerifyPlan:
    """Makes the plan; `place`: of an export in an object store. Raises ExportError and other ReadErrors."""
    settings = folder_settings(root, place)
    files = listed(root, settings, catalog, place)
    manifest = Manifest.read(files_of(place), root)
    made = VerifyPlan(root, settings, problems=list(problems(root, settings, files, place)))
    keys = _keys(backend, selection, manifest)
    there = {key.topic for key in keys}
    named = selection.of([TopicPartition(name, 0) for name in manifest.topics], frozenset())
    made.absent = [key.topic for key in named if key.topic not in there]
    first = backend.earliest(keys)
    last = backend.latest(keys, committed=settings.isolation == "read_committed")
    topics: dict[str, TopicPlan] = {}
    for name in manifest.topics:
        if name not in there:
            continue
        known = manifest.topic(name)
        raw = backend.topic_id(name)
        if raw != ZERO_UUID and known.topic_id is not None and encode_id(raw) != known.topic_id:
            why = f"its id is {encode_id(raw)}, but was {known.topic_id}"
            raise ExportError(f"topic {name} is not the one that was exported: {why}")
        of_topic = topics[name] = TopicPlan(name, known.topic_id, known.generation)
        current = _of_generation(name, files, known.generation)
        for number in sorted(known.ranges.keys() | {file.partition for file in current}):
            key, covered = TopicPartition(name, number), known.covered(number)
            low, high = first.get(key, 0), last.get(key, 0)
            if covered and covered[-1].end > high:
                made.problems.append(f"{key}: the log ends at offset {high}, the export at {covered[-1].end}")
            todo = [Range(max(one.start, low), min(one.end, high)) for one in covered]
            of_topic.todo[number] = todo = [one for one in todo if one.size]
            made.checks += _without_log(key, covered, todo, low, [file for file in current if file.partition == number])
    made.checks += _with_log(backend, topics, made, files, compacted)
    made.checks = [replace(check, place=place) for check in made.checks]
    made.checks.sort(key=lambda check: (check.topic, check.partition, check.start))
    return made


def _keys(backend: Backend, selection: Selection, manifest: Manifest) -> list[TopicPartition]:
    keys = backend.partitions(selection)
    if selection == Selection():  # it has no internal topics, but the export may have
        for name in sorted(INTERNAL & set(manifest.topics)):
            with contextlib.suppress(ReadError):
                keys += backend.partitions(Selection(topics=(name,)))
    return keys


def _with_log(
    backend: Backend, topics: dict[str, TopicPlan], made: VerifyPlan, files: Sequence[TableFile], compacted: bool
) -> Iterator[Check]:
    """Yields the checks of ranges that the log has."""
    request = Request(Selection(), committed=made.settings.isolation == "read_committed")
    current = {name: _of_generation(name, files, of.generation) for name, of in topics.items()}
    for work in works_of(backend, topics, request, made.root, Form()):
        near = [file for file in current[work.topic] if file.partition == work.partition]
        yield Check(
            topic=work.topic,
            partition=work.partition,
            start=work.start,
            end=work.end,
            kind="log",
            files=tuple(file for file in near if file.may_have(work.start, work.end)),
            piece=work.piece,
            size_bytes=work.size_bytes,
            clamped=made.settings.format != "parquet",
            compacted=compacted,
        )


def _of_generation(topic: str, files: Sequence[TableFile], generation: int) -> list[TableFile]:
    """Returns the files of the newest generation of a topic. Raises ExportError if they cannot be recognised."""
    found: list[TableFile] = []
    for file in files:
        if file.topic != topic:
            continue
        name = layout.file_name(os.path.basename(file.path))
        if generation and name is None:
            raise ExportError(f"{file.path} may have rows of several generations of topic {topic}")
        if not generation or (name is not None and name.generation == generation):
            found.append(file)
    return found


def _without_log(
    key: TopicPartition, covered: Sequence[Range], todo: Sequence[Range], low: int, files: Sequence[TableFile]
) -> Iterator[Check]:
    """Yields the checks of ranges without records: deleted from the log, or not among the exported offsets."""
    deleted = [Range(one.start, min(one.end, low)) for one in covered if one.start < low]
    known = sorted([*deleted, *(one for one in todo if one.size)])
    kinds: dict[Kind, list[Range]] = {"deleted": deleted, "beyond": without(Range(0, INT64_MAX), known)}
    for kind, ranges in kinds.items():
        for one in ranges:
            near = tuple(file for file in files if file.may_have(*one))
            if near and one.size:
                yield Check(key.topic, key.partition, *one, kind, near)
