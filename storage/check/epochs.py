"""Checks that the leader epochs of entries rise, and compares them with the epoch checkpoint.

Pure. The epoch lies outside the CRC of an entry, so a single entry may have a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator

from .facts import EpochStretch

Where = tuple[str, int, int]
"""File, byte, offset."""


class EpochOrder:
    """Checks that the leader epochs of a log do not fall.

    Where the epoch falls, one entry is reported: a single entry with a higher epoch than both its neighbours, if there
    is one; otherwise the first entry of the lower epoch.
    """

    def __init__(self) -> None:
        self._before: int | None = None  # the epoch before that of `_last`
        self._last: tuple[str, EpochStretch] | None = None

    def take(self, file: str, stretch: EpochStretch) -> Iterator[tuple[Where, str]]:
        """Adds a stretch and yields its faults."""
        epoch = stretch.epoch
        if epoch is None or epoch < 0:  # old messages have none, nor have batches converted from them
            if epoch is None:
                self._last = self._before = None
            return
        if self._last is not None:
            last_file, last = self._last
            assert last.epoch is not None
            if epoch == last.epoch:
                self._last = (last_file, last._replace(entries=last.entries + stretch.entries))
                return
            if epoch < last.epoch:
                if last.entries == 1 and self._before is not None and epoch >= self._before:
                    what = f"leader epoch {last.epoch} between entries of {self._before} and {epoch}"
                    yield (last_file, last.position, last.offset), what
                    self._last = (file, stretch)
                    return
                what = f"leader epoch {epoch} does not follow those before it, up to {last.epoch}"
                yield (file, stretch.position, stretch.offset), what
                self._last, self._before = (file, stretch), None
                return
            self._before = last.epoch
        self._last = (file, stretch)


def epoch_problems(
    stored: list[tuple[int, int]], found: list[tuple[int, int]], offsets: tuple[int, int], loose: bool
) -> Iterator[str]:
    """Yields the differences between the epoch checkpoint (`stored`) and the batches, from the log start to the log
    end.

    `loose`: a cleaner may have removed an epoch's first batches, or all its batches, or the file may lag. Of the epochs
    below the log start Kafka keeps one, with the log start of that time as its start offset.
    """
    first, end = offsets
    starts = dict(stored)
    for number, (epoch, start) in enumerate(found):
        by_file = starts.pop(epoch, None)
        if by_file is None:
            if not loose and (number + 1 == len(found) or found[number + 1][1] > first):
                yield f"epoch {epoch}, which begins at {start}, is missing"
        elif not (loose or start <= by_file <= max(start, first) or (by_file < start and number == 0)):
            yield f"epoch {epoch} begins at {by_file}, by the log at {start}"
    for epoch, start in starts.items():
        if first < start < end and found and not loose and start > found[0][1]:
            yield f"no batch of epoch {epoch} at {start}"
