"""The manifest of an export: numbered JSON documents under `_ottla/manifest/`.

Each document lists pieces of work that were committed together: the topic, its id if known, the partition, the offsets
that were read, and the files with their records: rows, bytes, first and last offset, smallest and largest timestamp.
Files outside the manifest are not part of the export. Owns the format, and the union and difference of ranges of
offsets; `commit` writes the documents.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ....storage.io.files import Files
from ...backend import ReadError
from . import layout

VERSION = 1
_NAME = re.compile(r"([0-9]{20})\.json")


class ExportError(ReadError):
    """An export cannot run with these arguments or this folder. The message is one sentence."""


class Range(NamedTuple):
    """Offsets from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of the export. `path` is relative to its folder; times are epoch milliseconds, None without timestamps."""

    path: str
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    min_timestamp: int | None
    max_timestamp: int | None


@dataclass(frozen=True, slots=True)
class Exported:
    """A finished piece of work: offsets from `start` (inclusive) to `end` (exclusive), and the files of their records.

    `topic_id` is in Kafka's text form, None if unknown. `generation` counts how often the topic was recreated.
    `undecoded` is the number of values that did not decode. `gone`: these offsets were deleted before they could be
    exported; `lost` describes offsets among the others that no longer existed when they were read.
    """

    topic: str
    topic_id: str | None
    generation: int
    partition: int
    start: int
    end: int
    records: int = 0
    undecoded: int = 0
    gone: bool = False
    lost: str = ""
    files: tuple[ExportedFile, ...] = ()

    @property
    def range(self) -> Range:
        return Range(self.start, self.end)


class Commit(NamedTuple):
    """One document of the manifest."""

    number: int
    exported: tuple[Exported, ...]

    def to_json(self) -> bytes:
        """Returns the document as JSON; `parse` is the inverse."""
        document = {"version": VERSION, "number": self.number, "exported": [asdict(one) for one in self.exported]}
        return json.dumps(document, indent=1).encode() + b"\n"

    def offsets_json(self) -> str:
        """Returns the offset ranges of the document, {topic: {partition: [[start, end], ...]}}, as JSON."""
        found: dict[str, dict[str, list[Range]]] = {}
        for one in self.exported:
            found.setdefault(one.topic, {}).setdefault(str(one.partition), []).append(one.range)
        return json.dumps({topic: {key: merged(of) for key, of in parts.items()} for topic, parts in found.items()})


def parse(data: bytes, path: str) -> Commit:
    """Parses a document. Raises ExportError, which names the path."""
    try:
        document: Mapping[str, Any] = json.loads(data)
        if document["version"] != VERSION:
            raise ExportError(f"{path} has version {document['version']}, this release supports {VERSION}")
        return Commit(int(document["number"]), tuple(_exported(one) for one in document["exported"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExportError(f"{path} is not a document of an export: {type(error).__name__}: {error}") from error


def _exported(document: Mapping[str, Any]) -> Exported:
    files = tuple(ExportedFile(**one) for one in document["files"])
    for file in files:
        folder, _, name = file.path.rpartition("/")  # recovery removes these files: none may be outside the export
        if layout.place(folder) is None or layout.file_name(name) is None:
            raise ValueError(f"{file.path!r} is not a file of an export")
    made = Exported(**{**document, "files": files})
    if any(type(number) is not int or number < 0 for number in (made.partition, made.start, made.end, made.generation)):
        raise ValueError("a number is invalid")
    return made


@dataclass(slots=True)
class Topic:
    """The manifest's state of a topic: its newest generation, and the exported offsets of that."""

    generation: int = 0
    topic_id: str | None = None
    ranges: dict[int, list[Range]] = field(default_factory=dict)

    def covered(self, partition: int) -> list[Range]:
        """Returns the offsets that are exported or gone, ascending."""
        return self.ranges.get(partition, [])


class Manifest:
    """The state of an export after all its documents."""

    def __init__(self) -> None:
        self.number = 0
        self._topics: dict[str, Topic] = {}

    @classmethod
    def read(cls, files: Files, root: str) -> Manifest:
        """Reads the manifest of a folder; an empty one if it has none. Raises ExportError, OSError."""
        made = cls()
        for commit in commits(files, root):
            made.take(commit)
        return made

    def take(self, commit: Commit) -> None:
        """Adds the next document."""
        self.number = commit.number
        for one in commit.exported:
            topic = self._topics.setdefault(one.topic, Topic())
            if one.generation > topic.generation:
                topic = self._topics[one.topic] = Topic(one.generation)
            topic.topic_id = topic.topic_id or one.topic_id
            topic.ranges[one.partition] = merged([*topic.covered(one.partition), one.range])

    def topic(self, name: str) -> Topic:
        """Returns the state of a topic."""
        return self._topics.get(name, Topic())

    @property
    def topics(self) -> list[str]:
        return sorted(self._topics)


def commits(files: Files, root: str) -> Iterator[Commit]:
    """Yields the documents of a folder, in order. Raises ExportError, OSError."""
    folder = os.path.join(root, layout.MANIFEST)
    try:
        names = files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    found = sorted(filter(_NAME.fullmatch, names))
    paths = [os.path.join(folder, name) for name in found]
    read_each = getattr(files, "read_each", partial(map, files.read_bytes))  # objects: several at the same time
    for expected, (name, path, data) in enumerate(zip(found, paths, read_each(paths), strict=True), 1):
        commit = parse(data, path)
        if name != document_name(commit.number) or commit.number != expected:
            raise ExportError(f"{path} is out of order: {document_name(expected)} is missing before it")
        yield commit


def exported_files(files: Files, root: str) -> Iterator[tuple[Exported, ExportedFile]]:
    """Returns each file of the export with its piece of work, in the order of commits. Raises ExportError, OSError."""
    return ((one, file) for commit in commits(files, root) for one in commit.exported for file in one.files)


def document_name(number: int) -> str:
    """Returns the name of a document in `_ottla/manifest/`."""
    return f"{number:020d}.json"


def paths(exported: Iterable[Exported]) -> set[str]:
    """Returns the files of some pieces, relative to the folder."""
    return {file.path for one in exported for file in one.files}


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Returns the same offsets in as few ranges as possible, ascending."""
    found: list[Range] = []
    for one in sorted(one for one in ranges if one.size):
        if found and one.start <= found[-1].end:
            found[-1] = Range(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def without(of: Range, covered: Sequence[Range]) -> list[Range]:
    """Returns the parts of a range outside the others, which are in the form of `merged`."""
    found: list[Range] = []
    start = of.start
    for one in covered:
        found.append(Range(start, min(one.start, of.end)))
        start = max(start, one.end)
    return [one for one in (*found, Range(start, of.end)) if one.size]
