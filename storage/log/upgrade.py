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
    sources = [(one, Source(one.path(LOG_SUFFIX), one.size_bytes)) for one in recovered.segments]
    old = [(segment, source) for segment, source in sources if holds_old_formats(files, source)]
    if not old:
        return None
    state = UpgradeProgress(0, sum(source.size_bytes for _, source in old), 0)
    for segment, source in old:

        def on_segment(read_bytes: int, converted: int, start: UpgradeProgress = state) -> None:
            done, records = start.read_bytes + read_bytes, start.converted_records + converted
            if on_progress is not None:
                on_progress(start._replace(read_bytes=done, converted_records=records))

        made = _upgrade_one(files, directory, segment, source, config, on_segment)
        number = recovered.segments.index(segment)
        new = replacements(files, directory, made, [segment], config.index_interval_bytes)
        recovered.segments[number : number + 1] = new
        recovered.unsynced = [one for one in recovered.unsynced if one is not segment]  # the new ones are durable
        state = state._replace(
            read_bytes=state.read_bytes + source.size_bytes,
            converted_records=state.converted_records + sum(output.converted for output in made),
            segments=state.segments + 1,
            written_bytes=state.written_bytes + sum(output.size_bytes for output in made),
        )
    state = state._replace(done=True)
    if on_progress is not None:
        on_progress(state)
    return state


def _upgrade_one(
    files: Files,
    directory: str,
    segment: Segment,
    source: Source,
    config: LogConfig,
    on_progress: Callable[[int, int], None],
) -> list[Rewritten]:
    try:
        made = rewrite(
            files,
            [source],
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
