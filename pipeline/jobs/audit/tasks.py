"""What a task does: looks over one segment, and packs what there is to say of it into some kilobytes.

Owns the packing and the bound on findings: of a file that is nothing but garbage the first ones are enough.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ....storage.check.facts import Bad, Event, Finding, SegmentTask
from ....storage.check.segment import segment_events
from ....storage.errors import StorageError
from .records import together

FINDINGS_MAX = 1000
"""Of one segment; how many more there are is told."""


class SegmentItem(NamedTuple):
    """One segment of a plan: which directory, which of its partitions, which segment of that."""

    directory: int
    partition: int
    number: int
    task: SegmentTask

    @property
    def size_bytes(self) -> int:
        return self.task.segment.size_bytes

    def __str__(self) -> str:
        return self.task.segment.path


@dataclass(frozen=True, slots=True)
class Packed:
    """What was seen. `problem`: why the file could not be read; `is_gone`: because it is no longer there."""

    data: bytes = b""
    problem: str | None = None
    is_gone: bool = False

    def events(self) -> list[Event]:
        """In the order of the log."""
        return pickle.loads(zlib.decompress(self.data)) if self.data else []


def look_over(item: SegmentItem) -> Packed:
    """The task. Raises nothing for files that are bad, unreadable or gone."""
    try:
        events = list(bounded(segment_events(item.task, opener=together), item.task))
    except (StorageError, OSError) as error:
        return Packed(problem=str(error), is_gone=not os.path.lexists(item.task.segment.path))
    return Packed(zlib.compress(pickle.dumps(events, pickle.HIGHEST_PROTOCOL), 1))


def bounded(events: Iterable[Event], task: SegmentTask) -> Iterable[Event]:
    """Without the findings beyond FINDINGS_MAX, whose number the last one says."""
    told = more = 0
    for event in events:
        if isinstance(event, (Bad, Finding)):
            told += 1
            if told > FINDINGS_MAX:
                more += 1
                continue
        yield event
    if more:
        name = f"{task.label}/{os.path.basename(task.segment.path)}"
        yield Finding(name, None, None, f"{more} more findings of this file are not listed")
