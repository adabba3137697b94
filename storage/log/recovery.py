"""Opens the files of one partition: returns segments that can be read and appended to.

The reverse of the write order in FORMAT.md. The passes, in order:

1. Leftovers of an interrupted deletion or cleaning are removed, or completed if a swap had begun.
2. Index files without a log are removed; the segments are listed.
3. After a clean shutdown by Ottla no segment is read if all have the sizes with which they were closed
  (`storage/format/clean_close.py`): the newest ends where it was closed, which its first use verifies. From the first
  segment of another size on they are read. After a clean shutdown by another broker the recovery point checkpoint and
  the newest snapshot have the end offset; if they differ, the indexes of the newest segment are read, and the headers
  after their last entry; if it does not end with a whole batch it is treated as unclean. After an unclean shutdown,
  every segment from the one that contains the recovery point on is read: size, magic, CRC and offsets of each batch or
  old message are checked, both indexes rebuilt. At the first failure all later segments are deleted, newest first, and
  then the log is cut there: a crash in between finds the same bad batch again. A damaged segment that was durable
  (closed, or below the recovery point) is cut by itself: later ones stay.
4. A log that ends below its checkpointed log start is replaced by an empty one there.
5. Leader epochs are cut to the log; those of batches read in pass 3 are taken from these. Messages of formats v0 and v1
  have none, and void the epochs before them.
6. Producers: known if pass 3 began at the log start, or at a segment with a good snapshot; otherwise loaded when first
  needed, from the newest snapshot and the headers after it. Snapshots that do not belong to the log are removed; after
  pass 3 there is one for each segment that was read, and one at the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from ...protocol.frozen import frozen, slotted
from ...protocol.limits import INT32_MAX
from ...protocol.records.batch import MAGIC, BatchHeader
from ...protocol.records.errors import CorruptRecords
from ...protocol.records.formats import crc_matches
from ..compaction.swap import SEGMENT_FILE, finish_leftovers
from ..config import LogConfig
from ..errors import StorageError, storage_errors
from ..format import checkpoint
from ..format.clean_close import ClosedLog
from ..format.file_names import offsets_in
from ..format.index import MAX_RELATIVE_OFFSET
from ..format.partition_metadata import FILE_NAME as PARTITION_METADATA
from ..io.files import Files
from ..producers import snapshot, txn_index
from ..producers.producer_state import Producer
from ..producers.store import Producers
from ..segments.scan import entries
from ..segments.segment import LOG_SUFFIX, SUFFIXES, Segment, file_name
from ..segments.segment_ends import is_short
from . import losses
from .losses import Loss
from .retention import epochs_from

MAX_SEGMENT_BYTES = INT32_MAX  # a position is an int32
REPORT_BYTES = 4 << 20

OnChecked = Callable[[int], None]
"""Called with the bytes that were checked since the last call, about every REPORT_BYTES."""


@frozen
class LogCheckpoints:
    """The state of one log before it is opened, according to the files beside the partition folders.

    `clean_shutdown`: the log was closed, or is new. All below the offset `recovery_point` is durable. `has_gaps`:
    offsets may be missing, since the log was compacted. `end_offset` is an offset that the log had reached, 0 if
    unknown. `closed` is None after an unclean shutdown, and after a close by another broker. A log that `must_be_whole`
    may lose only a torn tail; a larger loss raises StorageError.
    """

    clean_shutdown: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    has_gaps: bool = False
    end_offset: int = 0
    closed: ClosedLog | None = None
    must_be_whole: bool = False


@slotted
class Recovered:
    """An opened partition. `unsynced` segments and `unsynced_files` (names) may not be durable.

    `cut_bytes` counts what recovery removed; `has_hole`: offsets are missing between segments, where they may. Epochs
    that began below `epochs_from` are void. `losses` are missing or dropped records; `short` are the base offsets of
    segments that once ended later.
    """

    segments: list[Segment]
    log_start_offset: int
    epochs: list[tuple[int, int]]
    producers: Producers
    epochs_from: int = 0
    unsynced: list[Segment] = field(default_factory=list[Segment])
    unsynced_files: set[str] = field(default_factory=set[str])
    has_hole: bool = False
    cut_bytes: int = 0
    losses: list[Loss] = field(default_factory=list[Loss])
    short: set[int] = field(default_factory=set[int])


def open_segments(
    files: Files,
    directory: str,
    config: LogConfig,
    known: LogCheckpoints,
    *,
    now_ms: int,
    on_checked: OnChecked | None = None,
) -> Recovered:
    """Runs the passes. The result has at least one segment. Raises StorageError."""
    if config.rules.compacted:
        known = replace(known, has_gaps=True)
    log_start_offset = known.log_start_offset
    with storage_errors(f"cannot open {directory}"):
        found = files.list(directory)
        names = finish_leftovers(files, directory, found)
        orphans = _orphans(names) if len(names) == len(found) else []
        segments = _list_segments(files, directory, names, config, now_ms)
        recovered = Recovered(segments, log_start_offset, [], Producers(files, directory, names, now_ms))
        first = recovered.segments[0].base_offset if recovered.segments else 0
        if known.closed is not None:
            log_start_offset = known.closed.log_start_offset
        elif known.clean_shutdown and 0 < known.end_offset < log_start_offset:
            log_start_offset = first  # no close leaves that: the checkpoint is damaged
        recovered.log_start_offset = max(log_start_offset, first)
        unread = _trust(files, directory, recovered, names, orphans, known)
        scanned_from = _check_segments(files, directory, recovered, config, unread, known, on_checked)
        _note_missing(recovered, log_start_offset, orphans, known)
        _ensure_segment(files, directory, recovered, config, now_ms)
        _settle_epochs(files, directory, recovered, scanned_from, checkpoint.LEADER_EPOCH in names)
        _settle_producers(recovered, scanned_from)
        if not known.clean_shutdown:
            _note_small_files(recovered, names, known.recovery_point)
        _note_end(directory, recovered, known)
    return recovered


def _note_small_files(recovered: Recovered, names: list[str], recovery_point: int) -> None:
    """Records the existing small files as unsynced: after a kill they may not be durable."""
    recovered.unsynced_files.update(name for name in (checkpoint.LEADER_EPOCH, PARTITION_METADATA) if name in names)
    recovered.unsynced_files.update(
        snapshot.file_name(offset) for offset in recovered.producers.snapshots if offset >= recovery_point
    )


# -- pass 2 (pass 1 is `finish_leftovers`)


def _list_segments(files: Files, directory: str, names: list[str], config: LogConfig, now_ms: int) -> list[Segment]:
    """Does pass 2. Each segment except the last ends where the next one begins."""
    known = set(names)
    for name in names:
        match = SEGMENT_FILE.fullmatch(name)
        if match and match[2] != LOG_SUFFIX and match[1] + LOG_SUFFIX not in known:
            files.remove(os.path.join(directory, name))
    segments: list[Segment] = []
    for base_offset in offsets_in(names, LOG_SUFFIX):
        size_bytes = files.size(os.path.join(directory, file_name(base_offset)))
        if size_bytes > MAX_SEGMENT_BYTES:
            raise StorageError(f"{directory}: segment {base_offset} of {size_bytes} bytes is larger than Kafka allows")
        segment = Segment(files, directory, base_offset, size_bytes, config.index_interval_bytes)
        segment.created_ms = now_ms
        if segments:
            segments[-1].next_offset = base_offset
        segments.append(segment)
    return segments


# -- pass 3


def _trust(
    files: Files, directory: str, recovered: Recovered, names: list[str], orphans: list[int], known: LogCheckpoints
) -> tuple[int, int]:
    """Returns the number of the first segment to read as a whole, and of the first that may not be durable.

    Damage in an earlier, durable segment does not end the log there: only that segment is cut, and later ones stay.
    """
    has_gaps = known.has_gaps
    segments, count = recovered.segments, len(recovered.segments)
    if not segments:
        return 0, 0
    if not known.clean_shutdown:
        unsure = max(sum(segment.base_offset <= known.recovery_point for segment in segments) - 1, 0)
        recovered.short.update(
            segments[number].base_offset for number in range(unsure) if is_short(files, segments, number, has_gaps)
        )
        return next((n for n in range(unsure) if segments[n].base_offset in recovered.short), unsure), unsure
    if known.closed is not None:
        changed = _first_changed(files, directory, segments, names, known.closed)
        if changed is not None:
            sizes = known.closed.segments
            recovered.short.update(
                one.base_offset for one in segments if one.size_bytes < sizes.get(one.base_offset, (0,))[0]
            )
            return changed, count
        if segments[-1].base_offset == max(known.closed.segments, default=-1):
            if segments[-1].size_bytes:
                segments[-1].assume_end(known.closed.log_end_offset)
            return count, count
    elif not has_gaps:
        bases = [segment.base_offset for segment in segments]
        for number, segment in enumerate(segments[:-1]):
            is_doubtful = not segment.size_bytes or any(bases[number] < base < bases[number + 1] for base in orphans)
            if is_doubtful and is_short(files, segments, number, has_gaps):
                return number, count
    is_last, snapshots = not any(base > segments[-1].base_offset for base in orphans), recovered.producers.snapshots
    if known.closed is None and is_last and _has_known_end(segments[-1], snapshots, known.recovery_point):
        return count, count
    try:
        segments[-1].load()
        segments[-1].close()  # thousands of idle partitions must not hold a descriptor each
    except StorageError:
        return count - 1, count
    return count, count


def _orphans(names: Sequence[str]) -> list[int]:
    """Returns the base offsets of index files without a log, rising. Unless files show that a segment was being
    deleted, another program has removed the log."""
    known = set(names)
    matches = [match for match in map(SEGMENT_FILE.fullmatch, names) if match]
    return sorted({int(match[1]) for match in matches if match[1] + LOG_SUFFIX not in known})


def _first_changed(
    files: Files, directory: str, segments: Sequence[Segment], names: Sequence[str], closed: ClosedLog
) -> int | None:
    """Returns the number of the first segment whose files differ from those that were closed; None if none does."""
    known = set(names)
    for number, segment in enumerate(segments):
        name = file_name(segment.base_offset, txn_index.SUFFIX)
        aborted_bytes = files.size(os.path.join(directory, name)) if name in known else 0
        if closed.segments.get(segment.base_offset) != (segment.size_bytes, aborted_bytes):
            return number
    return None


def _check_segments(
    files: Files,
    directory: str,
    recovered: Recovered,
    config: LogConfig,
    unread: tuple[int, int],
    known: LogCheckpoints,
    on_checked: OnChecked | None,
) -> int | None:
    """Does pass 3, for the result of `_trust`. Returns the base offset of the first segment that was read as a whole,
    or None."""
    segments, (first, unsure) = recovered.segments, unread
    if first == len(segments):
        return None
    scanned_from = segments[first].base_offset
    producers = recovered.producers.begin(scanned_from, recovered.log_start_offset, config.producer_rules)
    if producers is None and _has_transactions(files, segments[first:]):
        before = segments[:first]
        producers = recovered.producers.at(scanned_from, before, recovered.log_start_offset, config.producer_rules)
    for number in range(first, len(segments)):
        segment = segments[number]
        end = _check_batches(files, segment, recovered, producers, config, on_checked)
        is_last = number == len(segments) - 1
        # Offsets between segments may be missing only in a compacted log; otherwise the end of this file never reached
        # the disk although the next file did.
        has_hole = not is_last and segment.next_offset < segments[number + 1].base_offset
        is_bad = end < segment.size_bytes or (has_hole and not known.has_gaps)
        if is_bad and (is_last or number >= unsure):
            _cut(files, directory, recovered, number, end, known)
            break
        if is_bad or (has_hole and segment.base_offset in recovered.short):
            _leave_out(files, recovered, segment, end, segments[number + 1].base_offset, known)
        recovered.has_hole = recovered.has_hole or has_hole
        if not is_last:
            segment.next_offset = segments[number + 1].base_offset
            segment.save_indexes()
            _save_producers(recovered, producers, segment.next_offset)
    recovered.unsynced = segments[first:]
    recovered.producers.known = producers
    return scanned_from


def _has_known_end(segment: Segment, snapshots: Sequence[int], recovery_point: int) -> bool:
    """Returns whether the recovery point and the newest snapshot, both written by a close, agree on the end of the
    newest segment, so that it need not be read. The first `load` verifies it."""
    length = recovery_point - segment.base_offset
    if not segment.size_bytes or not 0 < length <= MAX_RELATIVE_OFFSET + 1 or snapshots[-1:] != [recovery_point]:
        return False
    segment.assume_end(recovery_point)
    return True


def _save_producers(recovered: Recovered, producers: dict[int, Producer] | None, offset: int) -> None:
    """Writes a snapshot, even if one exists: that may belong to lost batches, or be torn."""
    if producers is not None and offset > recovered.log_start_offset:
        recovered.unsynced_files.add(recovered.producers.write(offset, producers))


def _has_transactions(files: Files, segments: Sequence[Segment]) -> bool:
    """Returns whether the segments have a control batch. To rebuild the transaction indexes, the producer state before
    the segments is then needed."""
    for segment in segments:
        with contextlib.suppress(CorruptRecords):  # at the end of the sound entries
            found = entries(files, segment.path(LOG_SUFFIX), segment.size_bytes)
            if any(header.is_control for _, header in found):
                return True
    return False


def _check_batches(
    files: Files,
    segment: Segment,
    recovered: Recovered,
    producers: dict[int, Producer] | None,
    config: LogConfig,
    on_checked: OnChecked | None,
) -> int:
    """Counts a segment's batches up to the first that is not sound; returns the position after the last sound one.

    Rewrites its transaction index.
    """
    segment.reset()
    aborted: list[txn_index.AbortedTransaction] = []
    position = reported = 0
    base_offset, epoch = segment.base_offset, -1
    with contextlib.suppress(CorruptRecords):
        for data, header in entries(files, segment.path(LOG_SUFFIX), segment.size_bytes):
            last_relative = header.base_offset + header.last_offset_delta - base_offset
            in_order = header.base_offset >= segment.next_offset and header.last_offset_delta >= 0
            if not in_order or last_relative > MAX_RELATIVE_OFFSET or not crc_matches(data, 0, header):
                break
            segment.count(header, position)
            if header.partition_leader_epoch != epoch or header.magic < MAGIC:
                epoch = header.partition_leader_epoch
                _take_epoch(recovered.epochs, header)
                if header.magic < MAGIC:
                    recovered.epochs_from = header.next_offset
            if producers is not None and header.producer_id >= 0:
                start, rules = recovered.log_start_offset, config.producer_rules
                if (entry := txn_index.apply(data, 0, header, producers, start, rules)) is not None:
                    aborted.append(entry)
            position += len(data)
            if on_checked is not None and position - reported >= REPORT_BYTES:
                on_checked(position - reported)
                reported = position
    if on_checked is not None:
        on_checked(position - reported)
    # Without producers there is no marker here: the entries of an existing file belong to lost batches.
    txn_index.write(files, segment.path(txn_index.SUFFIX), aborted)
    if aborted:  # the file may be unchanged, and still not durable
        recovered.unsynced_files.add(file_name(segment.base_offset, txn_index.SUFFIX))
    return position


def _cut(files: Files, directory: str, recovered: Recovered, number: int, end: int, known: LogCheckpoints) -> None:
    """Ends the log at byte `end` of a segment. Later segments are removed first, newest first: see pass 3."""
    segments = recovered.segments
    later_segments = segments[number + 1 :]
    dropped = segments[number].size_bytes - end + sum(later.size_bytes for later in later_segments)
    first, sound = segments[number].next_offset, losses.count_sound(files, segments[number], end, later_segments)
    if known.must_be_whole and max(sound.end_offset, known.end_offset) > first:
        raise _not_whole(directory, first, max(sound.end_offset, known.end_offset))
    reached = max(sound.end_offset, first, known.end_offset, *(later.base_offset for later in later_segments))
    kind = losses.END_GONE if reached > first else losses.TORN_TAIL
    kind = losses.CORRUPTION if sound.batches else kind
    recovered.losses.append(Loss(kind, first, reached, dropped, sound.batches, sound.records))
    for later in reversed(later_segments):
        _remove_segment(files, later)
    if later_segments:
        files.sync_directory(directory)
    del segments[number + 1 :]
    recovered.cut_bytes += dropped
    if end < segments[number].size_bytes:
        segments[number].truncate(end)


def _remove_segment(files: Files, segment: Segment) -> None:
    """Removes a segment, the log last: an index without a log is removed by the next start, a log alone is
    recovered."""
    for suffix in (txn_index.SUFFIX, *SUFFIXES[::-1]):
        with contextlib.suppress(FileNotFoundError):
            files.remove(segment.path(suffix))


def _leave_out(
    files: Files, recovered: Recovered, segment: Segment, end: int, next_base: int, known: LogCheckpoints
) -> None:
    """Cuts a segment at byte `end`; later segments stay."""
    dropped, sound = segment.size_bytes - end, losses.count_sound(files, segment, end, ())
    if known.must_be_whole:
        raise _not_whole(os.path.dirname(segment.path("")), segment.next_offset, next_base)
    recovered.losses.append(
        Loss(losses.MIDDLE_GONE, segment.next_offset, next_base, dropped, sound.batches, sound.records)
    )
    recovered.has_hole = True
    recovered.cut_bytes += dropped
    if dropped:
        segment.truncate(end)


def _not_whole(directory: str, first: int, end: int) -> StorageError:
    return StorageError(
        f"{directory} has lost records from offset {first} on; its log end offset was {end}: restore it from a copy,"
        " or run `ottla repair` to continue without them"
    )


def _note_missing(recovered: Recovered, log_start_offset: int, orphans: list[int], known: LogCheckpoints) -> None:
    """Records missing segments, at the start of the log and inside it, and a log start that is too high."""
    bases = [segment.base_offset for segment in recovered.segments]
    if known.closed is not None:
        orphans = sorted(base for base, (size, _) in known.closed.segments.items() if size)
    for base in orphans if bases else ():
        end = next((there for there in bases if there > base), 0)
        first = max(base, log_start_offset)
        if base not in bases and first < end and not any(loss.first <= first < loss.end for loss in recovered.losses):
            kind = losses.START_GONE if base < bases[0] else losses.MIDDLE_GONE
            recovered.losses.append(Loss(kind, first, end))
            recovered.has_hole = recovered.has_hole or base > bases[0]
    if known.must_be_whole and recovered.losses and not all(loss.is_torn for loss in recovered.losses):
        raise _not_whole(os.path.dirname(recovered.segments[0].path("")), recovered.losses[0].first, known.end_offset)


def _note_end(directory: str, recovered: Recovered, known: LogCheckpoints) -> None:
    """Compares the log end with its known end."""
    end_offset = recovered.segments[-1].next_offset
    reached = max(known.end_offset, known.closed.log_end_offset if known.closed is not None else 0)
    if reached <= end_offset:
        return
    if known.must_be_whole:
        raise _not_whole(directory, end_offset, reached)
    if not any(loss.first <= end_offset and loss.end >= reached for loss in recovered.losses):
        recovered.losses.append(Loss(losses.END_GONE, end_offset, reached))


# -- passes 4 to 6


def _ensure_segment(files: Files, directory: str, recovered: Recovered, config: LogConfig, now_ms: int) -> None:
    """Does pass 4, and makes a first segment for an empty folder."""
    segments, start = recovered.segments, recovered.log_start_offset
    if segments and segments[-1].next_offset >= start:
        return
    dropped = sum(segment.size_bytes for segment in segments)
    if segments:
        sound = losses.count_sound(files, segments[0], 0, segments[1:]) if dropped else losses.SoundCount()
        first = segments[0].base_offset
        recovered.losses.append(Loss(losses.EMPTIED, first, start, dropped, sound.batches, sound.records))
    recovered.cut_bytes += dropped
    for segment in reversed(segments):
        _remove_segment(files, segment)
    created = Segment.create(
        files, directory, recovered.log_start_offset, config.index_interval_bytes, now_ms=now_ms, jitter_ms=0
    )
    recovered.segments = [created]
    recovered.unsynced = [created]
    recovered.producers.known = {}


def _take_epoch(epochs: list[tuple[int, int]], header: BatchHeader) -> None:
    """Adds the epoch of one more batch. An old message clears the epochs, as its append does (see `PartitionLog`)."""
    if header.magic < MAGIC:
        epochs.clear()
    else:
        _begin_epoch(epochs, header.partition_leader_epoch, header.base_offset)


def _epochs_in(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Returns the epochs of the batches, from the newest segment back to the last with an old message: logs of Kafka
    before 0.11 have no epochs, and may be large."""
    runs: list[list[tuple[int, int]]] = []
    for segment in reversed(segments):
        run: list[tuple[int, int]] = []
        has_old = False
        for _, header in segment.batches():
            has_old = has_old or header.magic < MAGIC
            _take_epoch(run, header)
        segment.close()
        runs.append(run)
        if has_old:
            break
    epochs: list[tuple[int, int]] = []
    for run in reversed(runs):
        for epoch, start_offset in run:
            _begin_epoch(epochs, epoch, start_offset)
    return epochs


def _begin_epoch(epochs: list[tuple[int, int]], epoch: int, start_offset: int) -> None:
    if epoch >= 0 and (not epochs or epoch > epochs[-1][0]):
        epochs.append((epoch, start_offset))


def _settle_epochs(
    files: Files, directory: str, recovered: Recovered, scanned_from: int | None, has_checkpoint: bool
) -> None:
    """Does pass 5: (epoch, start offset) pairs, both rising, within the log."""
    segments, found = recovered.segments, recovered.epochs
    end_offset = segments[-1].next_offset
    has_records = end_offset > segments[0].base_offset
    path = os.path.join(directory, checkpoint.LEADER_EPOCH)
    stored: list[tuple[int, int]] | None = None
    if has_checkpoint and files.size(path):  # a power loss leaves an empty one
        with contextlib.suppress(StorageError):  # malformed: the epochs are in the batches as well
            stored = checkpoint.read_epochs(files, path)
    kept = list(stored or ())
    if scanned_from is not None:
        kept = [entry for entry in kept if recovered.epochs_from <= entry[1] < scanned_from]
    # A log that ends with messages of an old format has no epochs: after a clean shutdown an empty file is valid.
    none_known = stored == [] and scanned_from is None
    if not kept and not none_known and scanned_from != segments[0].base_offset and has_records:
        kept = _epochs_in(segments)
    for epoch, start_offset in found:
        _begin_epoch(kept, epoch, start_offset)
    for epoch, start_offset in stored or ():
        if start_offset == end_offset:  # the epoch of the next batches, or of lost ones
            _begin_epoch(kept, epoch, start_offset)
    kept = [entry for entry in kept if entry[1] <= end_offset]
    recovered.epochs = kept = epochs_from(kept, recovered.log_start_offset)
    if kept != (stored or []) or (stored is None and has_records):
        checkpoint.write_epochs(files, path, kept)
        recovered.unsynced_files.add(checkpoint.LEADER_EPOCH)


def _settle_producers(recovered: Recovered, scanned_from: int | None) -> None:
    """Does pass 6. Snapshots written while segments were read are kept only up to the log end."""
    end_offset = recovered.segments[-1].next_offset
    bases = [segment.base_offset for segment in recovered.segments]
    if scanned_from is not None:
        if recovered.producers.known is None:  # later snapshots may be torn, or belong to batches lost in another crash
            recovered.producers.remove_above(scanned_from)
        _save_producers(recovered, recovered.producers.known, end_offset)
    recovered.producers.settle(bases, recovered.log_start_offset, end_offset)
