"""The forced upgrade of a partition (KIP-724, "Future Work"): every segment that holds v0 or v1 is rewritten as v2.

Owns which segments that concerns and the order of the steps; rewriting and swapping are `rewrite` and `swap`. It runs
when the folder was recovered and before anybody reads it. Segments are taken one after the other, oldest first, so that
the disk needs room for one more, and one that is done stays done: whatever interrupts it, the next opening completes or
undoes the swap of that segment and goes on with the next. There is no marker; which segments are left is seen by a walk
over the headers, the only thing that a second run does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..compaction.rewrite import Limits, Source, Target, holds_old_formats, rewrite
from ..compaction.swap import Rewritten, replacements, swap_in
from ..config import LogConfig
from ..errors import StorageError
from ..io.files import Files
from ..segments.segment import LOG_SUFFIX, Segment
from .recovery import Recovered


class UpgradeProgress(NamedTuple):
    """How far the upgrade of a partition is: bytes of old segments read, and what became of them.

    `segments` and `written_bytes` count what is complete. The last report says `done`.
    """

    read_bytes: int
    total_bytes: int
    converted_records: int
    segments: int = 0
    written_bytes: int = 0
    done: bool = False


OnUpgrade = Callable[[UpgradeProgress], None]


def upgrade_segments(
    files: Files, directory: str, recovered: Recovered, config: LogConfig, on_progress: OnUpgrade | None = None
) -> UpgradeProgress | None:
    """Upgrades the folder of a partition that was just recovered; what was done, or None if all is v2 already.

    `recovered` has the new segments afterwards. `on_progress` is called about every MiB, and not at all where nothing
    is to be done. Raises StorageError: then the segment at hand is as it was, or the next opening makes it so.
    """
    old = [segment for segment in recovered.segments if holds_old_formats(files, _source(segment))]
    if not old:
        return None
    report = on_progress or _nobody
    total_bytes = sum(segment.size_bytes for segment in old)
    state = UpgradeProgress(0, total_bytes, 0)
    for segment in old:
        start = state

        def on_segment(read_bytes: int, converted: int, start: UpgradeProgress = start) -> None:
            done, records = start.read_bytes + read_bytes, start.converted_records + converted
            report(start._replace(read_bytes=done, converted_records=records))

        made = _upgrade_one(files, directory, segment, config, on_segment)
        _replace(files, directory, recovered, segment, made, config)
        state = UpgradeProgress(
            start.read_bytes + segment.size_bytes,
            total_bytes,
            start.converted_records + sum(output.converted for output in made),
            start.segments + 1,
            start.written_bytes + sum(output.size_bytes for output in made),
        )
    state = state._replace(done=True)
    report(state)
    return state


def _nobody(progress: UpgradeProgress) -> None:
    pass


def _source(segment: Segment) -> Source:
    return Source(segment.path(LOG_SUFFIX), segment.size_bytes)


def _upgrade_one(
    files: Files, directory: str, segment: Segment, config: LogConfig, on_progress: Callable[[int, int], None]
) -> list[Rewritten]:
    try:
        made = rewrite(
            files,
            [_source(segment)],
            Target(
                directory,
                segment.base_offset,
                config.index_interval_bytes,
                end_offset=segment.next_offset,
                limits=Limits(index_bytes=config.segment_index_bytes),
            ),
            on_progress=on_progress,
        )
        segment.close()
        swap_in(files, directory, [output.base_offset for output in made], [segment.base_offset])
    except (StorageError, OSError) as error:
        raise StorageError(f"cannot upgrade {directory} to message format v2: {error}") from error
    return made


def _replace(
    files: Files, directory: str, recovered: Recovered, old: Segment, made: list[Rewritten], config: LogConfig
) -> None:
    """Takes what is on the disk now over into the list of segments. All of it is durable."""
    new = replacements(files, directory, made, [old], config.index_interval_bytes)
    number = recovered.segments.index(old)
    recovered.segments[number : number + 1] = new
    recovered.unsynced = [segment for segment in recovered.unsynced if segment is not old]
