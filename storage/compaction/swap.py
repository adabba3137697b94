"""Replaces segments of a partition by rewritten ones, so that a crash at any step leaves the old or the new ones.

The suffixes of the files and the order of their renames are those of Apache Kafka's cleaner, so either broker can
complete or undo what the other began:

1. The new segments are written as `.log.cleaned`, `.index.cleaned`, ... and synced.
2. They are renamed to `.swap`, the highest base offset first. The last rename commits: while a `.cleaned` file is left,
  it and every `.swap` file at or above its offset are void, and the old segments are valid.
3. The segments from the lowest `.swap` up to the end of the highest are removed, and the `.swap` files get their plain
  names. A start that finds `.swap` files without `.cleaned` ones repeats this step.

The names are the only marker. They determine which base offsets are replaced.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence

from ...protocol.named import NamedTuple
from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords
from ..errors import StorageError
from ..io.files import Files
from ..producers import snapshot
from ..segments.segment import LOG_SUFFIX, Segment, file_name

DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"
OF_JOBS = (".upgraded", ".compacted")
"""The suffixes of files that a job of the pipeline has written and not yet begun to swap in."""
_ON_THE_WAY = (DELETED, CLEANED, ".tmp", *OF_JOBS)
SEGMENT_FILE = re.compile(r"(\d{20})(\.(?:log|index|timeindex|txnindex))(\.cleaned|\.swap)?")
"""Base offset, kind and, during a swap, the suffix of its stage."""


class Rewritten(NamedTuple):
    """A segment that was written. `converted` counts the records that were in an older format before, `records` all (1
    for an old wrapper that was kept without opening it)."""

    base_offset: int
    next_offset: int
    size_bytes: int
    converted: int
    records: int = 0


def swap_in(
    files: Files, directory: str, new: Sequence[int], old: Sequence[int], put_away: Callable[[int], None] | None = None
) -> None:
    """Replaces old segments by new ones, written and synced as `.cleaned` files; both by base offset.

    The first of both is the same. `put_away` renames an old segment (and its snapshot, if that is to be deleted) to
    `.deleted`, for readers that still use it; without it the files are removed. Durable on return. After an OSError the
    folder must be opened again, which completes or undoes the swap, before any other change.
    """
    names, replaced = files.list(directory), old
    for base_offset in sorted(new, reverse=True):
        ready = [name for name in names if name.startswith(f"{base_offset:020d}.") and name.endswith(CLEANED)]
        _copy_modes(files, directory, ready, max((one for one in old if one <= base_offset), default=min(old)))
        for name in sorted(ready, key=_log_last):
            path = os.path.join(directory, name)
            files.replace(path, path.removesuffix(CLEANED) + SWAP)
    files.sync_directory(directory)
    # The end of the highest `.swap` may be below some replaced segments, if the last records were dropped. The oldest
    # are therefore removed first: a crash may leave some of the newest, whole, for the next cleaning. In the other
    # order a value could outlive its tombstone.
    if put_away is not None:
        for base_offset in sorted(old):
            put_away(base_offset)
        old = ()
    for base_offset in sorted(old)[1:]:
        _remove_segment(files, directory, names, base_offset)
        if base_offset not in new and snapshot.file_name(base_offset) in names:  # otherwise the next start does it
            files.remove(os.path.join(directory, snapshot.file_name(base_offset)))
    # The end is known here, unlike at a start: searching for the end of a large log takes long.
    _complete(files, directory, files.list(directory), max(replaced) + 1)


def _copy_modes(files: Files, directory: str, names: Sequence[str], old: int) -> None:
    """Copies permissions and owner of an old segment to the new files, durably: a job of another user must not leave
    files that the broker cannot open."""
    log = os.path.join(directory, file_name(old, LOG_SUFFIX))
    for name in names:
        path = os.path.join(directory, name)
        if files.copy_mode(log, path):
            with contextlib.closing(files.open(path)) as file:
                file.sync()


def replacements(
    files: Files, directory: str, new: Sequence[Rewritten], old: Sequence[Segment], index_interval_bytes: int
) -> list[Segment]:
    """Returns the segments that replace old ones: together they cover the same offsets and have the same creation
    time."""
    made: list[Segment] = []
    for output in new:
        segment = Segment(files, directory, output.base_offset, output.size_bytes, index_interval_bytes)
        segment.created_ms = old[-1].created_ms
        if made:
            made[-1].next_offset = output.base_offset
        made.append(segment)
    made[-1].next_offset = old[-1].next_offset
    return made


def _log_last(name: str) -> tuple[bool, str]:
    return LOG_SUFFIX + "." in name, name


def _remove_segment(files: Files, directory: str, names: Sequence[str], base_offset: int) -> None:
    """Removes a segment, the log first: the next start removes the other files without a log, whereas a log without its
    transaction index would return aborted records."""
    for name in sorted(names, key=_log_first):
        match = SEGMENT_FILE.fullmatch(name)
        if match and match[3] is None and int(match[1]) == base_offset:
            with contextlib.suppress(FileNotFoundError):
                files.remove(os.path.join(directory, name))


def _log_first(name: str) -> tuple[bool, str]:
    return not name.endswith(LOG_SUFFIX), name


def finish_leftovers(files: Files, directory: str, names: list[str], *, up_to_damage: bool = False) -> list[str]:
    """Does the first step of a start on a folder with these names: completes or undoes a swap, removes deleted and
    incomplete files. Returns the remaining names. Raises OSError, and StorageError for a damaged log that is to be
    swapped in; `up_to_damage` treats such a log as ending there, and keeps the old segments after it.

    It may be interrupted at any point: each step leaves names that lead to the same result.
    """
    if not any(name.endswith((SWAP, *_ON_THE_WAY)) for name in names):
        return names
    matches = [match for match in map(SEGMENT_FILE.fullmatch, names) if match]
    cleaned = [int(match[1]) for match in matches if match[3] == CLEANED]
    void = [match[0] for match in matches if match[3] == SWAP and cleaned and int(match[1]) >= min(cleaned)]
    # The void files first: without the `.cleaned` files they would be taken for valid.
    unwanted = [*void, *(name for name in names if name.endswith(_ON_THE_WAY))]
    for name in unwanted:
        files.remove(os.path.join(directory, name))
    left = [name for name in names if name not in unwanted]
    _complete(files, directory, left, up_to_damage=up_to_damage)
    return files.list(directory)


def _complete(
    files: Files, directory: str, names: list[str], end: int | None = None, *, up_to_damage: bool = False
) -> None:
    """Does the third step; `end` lies above the base offsets of all replaced segments, None to find it out. A log gets
    its name before its indexes, which can be rebuilt if lost."""
    matches = [match for match in map(SEGMENT_FILE.fullmatch, names) if match]
    swaps = sorted(
        (match for match in matches if match[3] == SWAP), key=lambda match: (match[2] != LOG_SUFFIX, match[0])
    )
    logs = [int(match[1]) for match in swaps if match[2] == LOG_SUFFIX]
    if logs:
        if end is None:
            end = _end_of_swap(files, directory, max(logs), up_to_damage)
        for match in matches:
            if match[3] is None and min(logs) <= int(match[1]) < end:
                files.remove(os.path.join(directory, match[0]))
    for match in swaps:
        path = os.path.join(directory, match[0])
        files.replace(path, path.removesuffix(SWAP))
    files.sync_directory(directory)


def _end_of_swap(files: Files, directory: str, base_offset: int, up_to_damage: bool) -> int:
    """Returns the offset after the last batch of a `.log.swap` file, in any format: Kafka's cleaner kept old formats up
    to 3.9."""
    path = os.path.join(directory, file_name(base_offset, LOG_SUFFIX + SWAP))
    with contextlib.closing(files.open(path)) as file:
        size = file.size()
        data = memoryview(file.read(0, size)) if size else memoryview(b"")
    position, end = 0, base_offset + 1
    try:
        while position < len(data):
            header = formats.read_header(data, position)
            end = header.next_offset
            position += header.size_bytes
    except CorruptRecords as error:
        if not up_to_damage:
            raise StorageError(f"{path} at byte {position}: {error}") from error
    return end
