"""The forced upgrade of a partition (KIP-724, "Future Work"): rewrites every segment with v0 or v1 entries as v2.

Runs after the folder was recovered and before it is read. Segments are upgraded one after another, oldest first, so
that the disk needs room for one more, and a finished one stays finished: after an interruption the next start completes
or undoes the swap of the current segment and continues with the next. There is no marker; a walk over the headers finds
the remaining segments, and is all that a second run does.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.named import NamedTuple
from ..compaction.rewrite import Limits, Source, Target, holds_old_formats, rewrite
from ..compaction.swap import Rewritten, replacements, swap_in
from ..config import LogConfig
from ..errors import StorageError
from ..io.files import Files
from ..segments.segment import LOG_SUFFIX, Segment
from .recovery import Recovered


class UpgradeProgress(NamedTuple):
    """The progress of the upgrade of a partition: bytes of old segments read, and the results.

    `segments` and `written_bytes` count complete segments. `done` is set in the last report.
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
    """Upgrades the folder of a partition that was just recovered; returns the final progress, or None if all entries
    are v2.

    `recovered` then has the new segments. `on_progress` is called about every MiB, and not at all if all entries are
    v2. Raises StorageError; the current segment is then unchanged, or the next start makes it so.
    """
    old = [segment for segment in recovered.segments if holds_old_formats(files, _source(segment))]
    if not old:
        return None
    report = on_progress or _ignore
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


def _ignore(progress: UpgradeProgress) -> None:
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
    """Replaces the old segment in `recovered` by the new ones. They are durable."""
    new = replacements(files, directory, made, [old], config.index_interval_bytes)
    number = recovered.segments.index(old)
    recovered.segments[number : number + 1] = new
    recovered.unsynced = [segment for segment in recovered.unsynced if segment is not old]
