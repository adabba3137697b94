"""The work of a task: checks one segment and packs the result into some kilobytes.

Owns the packing and the limit on findings: for a file of garbage the first ones suffice.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ....protocol.internal_records.layouts import problem_of
from ....storage.check.facts import Bad, Event, Finding, SegmentTask
from ....storage.check.segment import segment_events
from ....storage.errors import StorageError
from ...objects.logs import LogPlace, files_of, use
from .records import together

FINDINGS_MAX = 1000
"""The limit for one segment; the number of further findings is reported."""


class SegmentItem(NamedTuple):
    """One segment of a plan: indexes of the directory, of its partition, and of the segment there. `objects`: the
    places of logs in object stores."""

    directory: int
    partition: int
    number: int
    task: SegmentTask
    objects: tuple[LogPlace, ...] = ()

    @property
    def size_bytes(self) -> int:
        return self.task.segment.size_bytes

    def __str__(self) -> str:
        return self.task.segment.path


@dataclass(frozen=True, slots=True)
class Packed:
    """The result of a segment. `problem`: why the file could not be read."""

    data: bytes = b""
    problem: str | None = None

    def events(self) -> list[Event]:
        """Returns the events in the order of the log."""
        return pickle.loads(zlib.decompress(self.data)) if self.data else []


def look_over(item: SegmentItem) -> Packed:
    """Checks a segment. Raises nothing for damaged, unreadable or deleted files."""
    use(item.objects)
    path = item.task.segment.path
    try:
        found = segment_events(item.task, files_of(path), opener=together, check=problem_of)
        events = list(bounded(found, item.task))
    except (StorageError, OSError) as error:
        return Packed(problem=str(error))
    return Packed(zlib.compress(pickle.dumps(events, pickle.HIGHEST_PROTOCOL), 1))


def bounded(events: Iterable[Event], task: SegmentTask) -> Iterable[Event]:
    """Drops the findings beyond FINDINGS_MAX; the last finding has their number."""
    findings = more = 0
    for event in events:
        if isinstance(event, (Bad, Finding)):
            findings += 1
            if findings > FINDINGS_MAX:
                more += 1
                continue
        yield event
    if more:
        name = f"{task.label}/{os.path.basename(task.segment.path)}"
        yield Finding(name, None, None, f"{more} more findings of this file are not listed")
