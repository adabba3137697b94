"""The report of `optimize`: the files of each topic before and after.

The document of `to_json`: folder, seconds, deleted (how many old files), kept (topics that were created again, whose
files stay as they are), and topics: [{topic, files, bytes, files_after, bytes_after}].
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from ....protocol.text import elapsed, plural, size


class TopicFiles(NamedTuple):
    """The files of a topic in the newest version of the table, before and after."""

    topic: str
    files: int
    bytes: int
    files_after: int
    bytes_after: int


@dataclass(slots=True)
class OptimizeReport:
    """The result for the export in a folder. `seconds` is the duration."""

    folder: str
    topics: list[TopicFiles] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    deleted: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Returns one document, indented."""
        document = {
            "folder": self.folder,
            "seconds": round(self.seconds, 3),
            "deleted": self.deleted,
            "kept": self.kept,
            "topics": [one._asdict() for one in self.topics],
        }
        return json.dumps(document, indent=2) + "\n"

    def to_text(self) -> str:
        """Returns a line for each topic, and the total."""
        lines = [
            f"{one.topic}: {plural(one.files, 'file')}, {size(one.bytes)} -> {one.files_after}, {size(one.bytes_after)}"
            for one in self.topics
        ]
        lines += [f"{topic}: kept as it is, since it has rows of several generations" for topic in self.kept]
        total, after = sum(one.files for one in self.topics), sum(one.files_after for one in self.topics)
        deleted = f", {plural(self.deleted, 'old file')} deleted" if self.deleted else ""
        lines.append(f"{plural(total, 'file')} -> {after}{deleted} in {elapsed(self.seconds * 1000)}")
        return "".join(f"{line}\n" for line in lines)
