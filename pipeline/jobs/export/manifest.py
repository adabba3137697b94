"""What an export has done so far: the manifest, numbered JSON documents under `_ottla/manifest/`.

Each document lists pieces of work that were committed together: the topic, its id if that is known, the partition, the
offsets that were read, and the files that hold their records, with rows, bytes, first and last offset and least and
largest timestamp. What is not in a document is no part of the export. Owns their form; writing them is `committing`'s.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ....storage.io.files import Files
from ...backend import ReadError, TopicPartition
from . import layout
from .ranges import Range, merged

VERSION = 1
_NAME = re.compile(r"([0-9]{20})\.json")


class ExportError(ReadError):
    """A folder cannot be exported to as asked: one sentence."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of it. `path` is relative to its folder; times are epoch milliseconds, None if no record has any."""

    path: str
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    min_timestamp: int | None
    max_timestamp: int | None


@dataclass(frozen=True, slots=True)
class Exported:
    """A piece of work that is done: offsets `start` up to but without `end`, and where their records are.

    `topic_id` as Kafka writes ids, None where none was known. `generation` counts how often the topic was made anew.
    `undecoded`: so many values did not decode. `gone`: these offsets were deleted before they could be exported; `lost`
    tells what of the others was gone when it was read.
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
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def range(self) -> Range:
        return Range(self.start, self.end)


class Commit(NamedTuple):
    """One document."""

    number: int
    exported: tuple[Exported, ...]

    def to_json(self) -> bytes:
        """The document; `parse` is its inverse."""
        told = {"version": VERSION, "number": self.number, "exported": [asdict(one) for one in self.exported]}
        return json.dumps(told, indent=1).encode() + b"\n"


def parse(data: bytes, path: str) -> Commit:
    """A document's commit. Raises ExportError, which names the path."""
    try:
        told: Mapping[str, Any] = json.loads(data)
        if told["version"] != VERSION:
            raise ExportError(f"{path} is of version {told['version']}, which this release does not know")
        return Commit(int(told["number"]), tuple(_exported(one) for one in told["exported"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExportError(f"{path} is no document of an export: {type(error).__name__}: {error}") from error


def _exported(told: Mapping[str, Any]) -> Exported:
    files = tuple(ExportedFile(**one) for one in told["files"])
    for file in files:
        folder, _, name = file.path.rpartition("/")  # what is undone is removed: nothing outside of the folder may be
        if layout.place(folder) is None or layout.file_name(name) is None:
            raise ValueError(f"{file.path!r} is no file of an export")
    made = Exported(**{**told, "files": files})
    if any(type(number) is not int or number < 0 for number in (made.partition, made.start, made.end, made.generation)):
        raise ValueError("a number is none")
    return made


@dataclass(slots=True)
class Topic:
    """What is known of a topic: its newest generation, and what of that was exported."""

    generation: int = 0
    topic_id: str | None = None
    ranges: dict[int, list[Range]] = field(default_factory=dict)

    def covered(self, partition: int) -> list[Range]:
        """The offsets that are there already, or gone for good; rising."""
        return self.ranges.get(partition, [])


class Manifest:
    """All documents of an export, as far as the next run needs to know them."""

    def __init__(self) -> None:
        self.number = 0
        self._topics: dict[str, Topic] = {}

    @classmethod
    def read(cls, files: Files, root: str) -> Manifest:
        """The manifest of a folder; an empty one if there is none. Raises ExportError, OSError."""
        made = cls()
        for commit in commits(files, root):
            made.take(commit)
        return made

    def take(self, commit: Commit) -> None:
        """Adds a document, the next one."""
        self.number = commit.number
        for one in commit.exported:
            topic = self._topics.setdefault(one.topic, Topic())
            if one.generation > topic.generation:
                topic = self._topics[one.topic] = Topic(one.generation)
            topic.topic_id = topic.topic_id or one.topic_id
            topic.ranges[one.partition] = merged([*topic.covered(one.partition), one.range])

    def topic(self, name: str) -> Topic:
        """What is known of a topic."""
        return self._topics.get(name, Topic())

    @property
    def topics(self) -> list[str]:
        return sorted(self._topics)


def commits(files: Files, root: str) -> Iterator[Commit]:
    """The documents of a folder, in their order; none if it has none. Raises ExportError, OSError."""
    folder = os.path.join(root, layout.MANIFEST)
    try:
        names = files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for expected, name in enumerate(sorted(filter(_NAME.fullmatch, names)), 1):
        path = os.path.join(folder, name)
        commit = parse(files.read_bytes(path), path)
        if name != document_name(commit.number) or commit.number != expected:
            raise ExportError(f"{path} is not where it belongs: {document_name(expected)} is missing before it")
        yield commit


def exported_files(files: Files, root: str) -> Iterator[tuple[Exported, ExportedFile]]:
    """Every file that is part of the export in a folder, with the piece of work that it came of, in the order of their
    making. Raises ExportError, OSError."""
    for commit in commits(files, root):
        for one in commit.exported:
            for file in one.files:
                yield one, file


def document_name(number: int) -> str:
    """The name of a document in `_ottla/manifest/`."""
    return f"{number:020d}.json"


def paths(exported: Iterable[Exported]) -> set[str]:
    """The files of some pieces, relative to the folder."""
    return {file.path for one in exported for file in one.files}
