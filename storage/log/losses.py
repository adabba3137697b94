"""Records that were missing or dropped when a log was opened.

The owner of the log reports every loss: a start never drops records, or assigns their offsets again, silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...protocol.named import NamedTuple
from ..format.index import MAX_RELATIVE_OFFSET
from ..io.files import Files
from ..segments.segment import LOG_SUFFIX

if TYPE_CHECKING:
    from ..segments.segment import Segment

TORN_TAIL = "a torn tail was cut"
CORRUPTION = "corruption in the middle of a log: everything after it was dropped"
END_GONE = "records at the end of a log are gone"
MIDDLE_GONE = "records in the middle of a log are gone"
START_GONE = "records at the start of a log are gone"
EMPTIED = "the log start lies above the end of the log: the log was emptied"
FOLDER_GONE = "the folder of a partition is gone: the partition begins empty"


class Loss(NamedTuple):
    """Offsets from `first` up to `end` (exclusive) that a log had. The end of a torn tail is unknown.

    `dropped_bytes` were removed from the files; `batches` and `records` count the sound ones among them.
    """

    kind: str
    first: int
    end: int
    dropped_bytes: int = 0
    batches: int = 0
    records: int = 0

    @property
    def is_torn(self) -> bool:
        """Whether this is the result of a crash: an unfinished write."""
        return self.kind == TORN_TAIL


class SoundCount(NamedTuple):
    """The sound entries of dropped files: their number, the number of their records, and the offset after the last."""

    batches: int = 0
    records: int = 0
    end_offset: int = -1


def count_sound(files: Files, segment: Segment, position: int, later: Sequence[Segment]) -> SoundCount:
    """Counts the sound entries of a segment from a position on, and those of later segments. Raises StorageError,
    OSError."""
    from .. import inspect  # not needed without damage
    from ..segments.entry_check import Place, run_of_sound_entries

    batches, records, end_offset = 0, 0, -1
    for one in (segment, *later):
        start, expected = (position, one.next_offset) if one is segment and position else (0, one.base_offset)
        place = Place(one.base_offset, one.base_offset + MAX_RELATIVE_OFFSET + 1, expected, 0)
        with inspect.FileSource(one.path(LOG_SUFFIX), files) as source:
            for found in run_of_sound_entries(source, start, place):
                batches += 1
                records += max(found.record_count, 0)
                end_offset = found.last_offset + 1
    return SoundCount(batches, records, end_offset)
