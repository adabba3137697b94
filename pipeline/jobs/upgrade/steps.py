"""The steps of an upgrade of held data directories to format v2; the caller runs the tasks.

Owns the order. Tasks find the segments with v0 or v1, and how much larger they will become; then tasks rewrite each of
these to files of their own, fsync them, and compare them with the source (`comparison`). The driver swaps the results
in as they arrive, one after the other, so that the disk only needs room for a few segments besides the permanent
growth. A swapped segment stays: after an interruption the next run completes the pending swap and does the rest. A
segment without old messages is not touched.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ....protocol.internal_records.metadata_values import number_in
from ....protocol.limits import INT64_MAX
from ....protocol.records import batch, formats
from ....protocol.records.errors import CorruptRecords
from ....protocol.records.layout import LEGACY_ATTRIBUTES_AT, MAGIC_AT
from ....storage.compaction.rewrite import Limits, Source, Target, rewrite
from ....storage.errors import StorageError
from ....storage.io.files import DiskFiles, Files
from ....storage.segments.segment import LOG_SUFFIX, file_name
from ...backend import ReadError
from ...readers.files.headers import walk
from ..in_place.directory_hold import UPGRADED, Held, own_suffix, put_in_place, sweep
from ..in_place.disk_space import Free, Room, check_room, free_bytes, under_way
from ..in_place.windows import PADDING, upgrading, window
from .comparison import Different, compare
from .report import TopicUpgrade, UpgradeReport

INTERVAL_BYTES = 4096
"""The default of index.interval.bytes."""

_SAMPLE_BYTES = 1 << 20
_HOP_BYTES = 64 << 10
_GROWTH_BYTES = (44, 36)  # of a plain message, by its format: the most that a batch takes in addition
_OFFSETS_END = INT64_MAX


class SegmentItem(NamedTuple):
    """A segment with offsets from `base` (inclusive) to `end` (exclusive)."""

    folder: str
    topic: str
    base: int
    end: int
    size_bytes: int
    interval_bytes: int
    index_bytes: int

    @property
    def path(self) -> str:
        return os.path.join(self.folder, file_name(self.base))

    def __str__(self) -> str:
        return self.path


class Upgraded(NamedTuple):
    """The result of a task: base offsets of the new segments, under names that end with `suffix`."""

    bases: tuple[int, ...]
    size_bytes: int
    records: int
    suffix: str
    seconds: float


Runner = Callable[[Sequence[SegmentItem], Callable[[SegmentItem], Any]], Iterable[tuple[SegmentItem, Any]]]
"""Runs a task for each item, in any order, and yields each item with its result."""


def run_here(items: Sequence[SegmentItem], task: Callable[[SegmentItem], Any]) -> Iterator[tuple[SegmentItem, Any]]:
    """Runs the tasks in this process. An error names the item, like that of a job."""
    for item in items:
        try:
            done = task(item)
        except ReadError as error:
            raise ReadError(f"{item}: {error}") from error
        yield item, done


# -- the tasks


def look(item: SegmentItem, files: Files | None = None) -> int | None:
    """Returns the approximate size of a segment after the upgrade, None if it has no old messages, by a walk over the
    headers up to the first one. Raises ReadError, which does not name the segment."""
    position, size = 0, item.size_bytes
    try:
        with contextlib.closing((files or DiskFiles()).open(item.path)) as file:
            while position < size:
                data = window(file, position, min(_HOP_BYTES, size - position))
                found = walk(data, 0, len(data) - len(PADDING))
                if any(data[at + MAGIC_AT] != batch.MAGIC for at in found.positions):
                    return _estimated(window(file, position, min(_SAMPLE_BYTES, size - position)), size)
                step = found.end
                if not found.positions:
                    header = formats.read_header(data[: len(data) - len(PADDING)], whole=False)
                    step = header.size_bytes
                    if step > size - position:
                        raise CorruptRecords(f"an entry of {step} bytes, but only {size - position} are left")
                    if header.magic != batch.MAGIC:
                        return size + _GROWTH_BYTES[header.magic]
                position += step
    except OSError as error:
        raise ReadError(f"cannot be read: {error.strerror or error}") from error
    except CorruptRecords as error:
        raise ReadError(f"at byte {position}: {error}") from error
    return None


def _estimated(data: bytes, size: int) -> int:
    """Returns the estimated size of a segment after the upgrade, by the share of plain messages in these bytes."""
    found = walk(data, 0, len(data) - len(PADDING))
    growth = sum(
        _GROWTH_BYTES[data[at + MAGIC_AT]]
        for at in found.positions
        if data[at + MAGIC_AT] != batch.MAGIC and not data[at + LEGACY_ATTRIBUTES_AT] & batch.CODEC_BITS
    )
    return size + growth * size // max(found.end, 1)


def write(item: SegmentItem, files: Files | None = None) -> Upgraded:
    """Writes the upgraded segment beside the old one, and compares both. Raises ReadError, which does not name the
    segment; then the new files are removed."""
    files, began = files or DiskFiles(), time.monotonic()
    suffix = own_suffix(UPGRADED)
    source = Source(item.path, item.size_bytes)
    try:
        made = rewrite(
            files,
            [source],
            Target(
                item.folder,
                item.base,
                item.interval_bytes,
                end_offset=item.end,
                limits=Limits(index_bytes=item.index_bytes),
                suffix=suffix,
            ),
            read=upgrading(item.base, item.end),
        )
    except StorageError as error:
        raise ReadError(str(error).removeprefix("cannot rewrite ").removeprefix(item.path).lstrip(": ")) from error
    converted = sum(output.converted for output in made)
    try:
        results = [
            Source(os.path.join(item.folder, file_name(output.base_offset, LOG_SUFFIX + suffix)), output.size_bytes)
            for output in made
        ]
        for result in results:
            if files.size(result.log_path) != result.size_bytes:
                raise Different(f"the upgraded log does not have the {result.size_bytes} bytes that were written")
        if (records := compare(files, source, results)) != converted:
            raise Different(f"{converted} of its records were converted, but the upgraded log has {records}")
    except BaseException:
        with contextlib.suppress(ReadError):
            sweep(files, item.folder, suffix)
        raise
    size_bytes = sum(output.size_bytes for output in made)
    bases = tuple(output.base_offset for output in made)
    return Upgraded(bases, size_bytes, converted, suffix, time.monotonic() - began)


# -- the driver


class Upgrade:
    """An upgrade of some data directories, which stay held meanwhile."""

    def __init__(
        self,
        roots: Sequence[Held],
        *,
        topics: Sequence[str] | None = None,
        configs: dict[str, dict[str, str]] | None = None,
        index_bytes: int = Limits().index_bytes,
    ) -> None:
        """`topics`: only these; all if None, internal ones as well. `configs` are the topics' own configs. Raises
        ReadError for a missing topic."""
        self._roots = roots
        self._files = roots[0].files if roots else DiskFiles()
        self._sizes_after: dict[SegmentItem, int] = {}
        folders = [(root, folder) for root in roots for folder in root.partitions]
        missing = sorted({*(topics or ())} - {folder.topic for _, folder in folders})
        if missing:
            raise ReadError(f"there is no topic {', '.join(missing)} in {', '.join(root.root for root in roots)}")
        self._items: dict[SegmentItem, Held] = {}
        for root, folder in folders:
            if topics is not None and folder.topic not in topics:
                continue
            own = (configs or {}).get(folder.topic, {})
            interval = number_in(own, "index.interval.bytes", INTERVAL_BYTES)
            index = number_in(own, "segment.index.bytes", index_bytes)
            ends = [*(segment.base_offset for segment in folder.segments[1:]), _OFFSETS_END]
            for segment, end in zip(folder.segments, ends, strict=True):
                item = SegmentItem(
                    folder.path, folder.topic, segment.base_offset, end, segment.size_bytes, interval, index
                )
                self._items[item] = root

    def look(self, runner: Runner = run_here) -> UpgradeReport:
        """Finds the segments with old messages, and returns the plan as a report. Raises ReadError, and the errors of
        the runner."""
        items = [item for item in self._items if item.size_bytes]
        found = runner(items, self._task(look))
        self._sizes_after = {item: after for item, after in found if after is not None}
        report = self._report(planned=True)
        for item, after in self._sizes_after.items():
            report.topic(item.topic).add(TopicUpgrade(1, bytes_before=item.size_bytes, bytes_after=after))
        return report

    def _report(self, *, planned: bool = False) -> UpgradeReport:
        return UpgradeReport([root.root for root in self._roots], planned, len(self._items))

    def items(self) -> list[SegmentItem]:
        """Returns the segments to upgrade, by folder and offset; after `look`."""
        return sorted(self._sizes_after)

    def check_space(self, parallel: int, free: Free = free_bytes) -> list[Room]:
        """Checks the space in each directory with work, for `parallel` tasks at a time. Raises ReadError if it is too
        small; nothing was changed then."""
        needs: list[tuple[str, int]] = []
        for root in self._roots:
            sizes = {item: after for item, after in self._sizes_after.items() if self._items[item] is root}
            if sizes:
                added = sum(max(after - item.size_bytes, 0) for item, after in sizes.items())
                needs.append((root.root, added + under_way([*sizes.values()], parallel)))
        return check_room(needs, "upgrade", free)

    def run(self, runner: Runner = run_here) -> UpgradeReport:
        """Upgrades the segments that `look` found. Raises ReadError, and the errors of the runner: segments swapped
        until then stay upgraded, all others unchanged."""
        began = time.monotonic()
        report, items = self._report(), self.items()
        try:
            for item, done in runner(items, self._task(write)) if items else ():
                put_in_place(self._files, item.folder, list(done.bases), [item.base], done.suffix, done.size_bytes)
                amounts = (len(done.bases), done.records, item.size_bytes, done.size_bytes, done.seconds)
                report.topic(item.topic).add(TopicUpgrade(1, *amounts))
        finally:
            for folder in sorted({item.folder for item in items}):
                with contextlib.suppress(ReadError):  # the next holder of the directory sweeps it
                    sweep(self._files, folder, UPGRADED)
        report.seconds = time.monotonic() - began
        return report

    def _task(self, work: Callable[..., Any]) -> Callable[[SegmentItem], Any]:
        """Work on the real disk is sent without the Files object."""
        return work if isinstance(self._files, DiskFiles) else functools.partial(work, files=self._files)
