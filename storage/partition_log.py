"""The log of one partition: the broker appends to it and reads from it.

Has the list of segments, the offsets, the producer state and the leader epochs of one folder. Blocking; no clock
(`now_ms` is an argument), no event loop. One thread uses a log, except that `flush` may run in another.

Every append has one order: prepare (check and modify the batch, no state touched), plan (producer verdict, offsets,
roll; no state touched), one write, adopt. A failure before or in the write leaves log and state unchanged. FORMAT.md
has the order on the disk.

A log may contain all three message formats. "Batch" means a v2 batch or a message of format v0 or v1, plain or a
wrapper around a compressed set.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from ..protocol.frozen import frozen
from ..protocol.named import NamedTuple
from ..protocol.primitives import ZERO_UUID
from ..protocol.records import batch, validate
from ..protocol.records.batch import BatchHeader
from ..protocol.records.validate import Prepared
from .compaction.swap import replacements, swap_in
from .config import LogConfig
from .errors import DamagedEntry, DuplicateSequence, FencedProducer, OffsetOutOfRange, StorageError, storage_errors
from .format.leader_epochs import LeaderEpochs
from .format.partition_metadata import make_folder, write_topic_id
from .io.files import Files
from .log import markers, retention
from .log.append_plan import built, plan
from .log.append_run import AppendRun
from .log.availability import CLOSED, when_available
from .log.flusher import Flusher
from .log.markers import check_marker
from .log.read_view import ReadableLog
from .log.recovery import LogCheckpoints, OnChecked, Recovered, open_segments
from .log.results import Appended, Slice, TimestampOffset
from .producers import txn_index
from .producers.duplicate_scan import DuplicateScan
from .producers.producer_state import CachedBatch, Producer, expires_ms, forget_below, is_below
from .producers.txn_index import ABORT, COMMIT, Marker
from .producers.verification_guard import IN_TRANSACTION, Guard, Guards
from .segments.segment import Segment

if TYPE_CHECKING:
    from .compaction.swap import Rewritten
    from .log.upgrade import OnUpgrade

__all__ = ["Appended", "LogConfig", "LogOwner", "PartitionLog", "Slice", "TimestampOffset", "TopicIdPartition"]


class TopicIdPartition(NamedTuple):
    """A partition and the 16 bytes of its topic id. A zero id means: use the one stored in the partition's folder."""

    topic: str
    partition: int
    topic_id: bytes = ZERO_UUID


@frozen
class LogOwner:
    """Callbacks of the owner of a log, a data directory.

    `on_log_start(log, offset)` makes a log start durable before the log adopts it. `pick(n)` returns a random number in
    [0, n), for the jitter of time rolls. `on_checked` receives the number of bytes that a recovery has checked. If
    `upgrade` is given, opening the log rewrites all segments as v2 first; it receives the progress.
    """

    on_log_start: Callable[[PartitionLog, int], None] | None = None
    pick: Callable[[int], int] = random.randrange
    on_checked: OnChecked | None = None
    upgrade: OnUpgrade | None = None


NO_OWNER = LogOwner()


class PartitionLog(ReadableLog):
    """An open partition log. Made by `open`."""

    __slots__ = (
        "_flusher",
        "_guards",
        "_is_closed",
        "_on_log_start",
        "_pick",
        "_producers",
        "_removed",
        "on_roll",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicIdPartition,
        config: LogConfig,
        recovered: Recovered,
        recovery_point: int,
        owner: LogOwner,
    ):
        super().__init__(files, directory, config, recovered, self._known_producers)
        self._on_log_start = owner.on_log_start
        self._pick = owner.pick
        self._producers = recovered.producers
        self._guards = Guards()
        self._removed: list[retention.Removed] = []
        self._is_closed = False
        self.topic, self.partition, self.topic_id = topic_partition
        self.size_bytes = sum(segment.size_bytes for segment in self._segments)
        # A cut log is not durable there, whatever the checkpoint's recovery point.
        durable = min(recovery_point, self.log_end_offset) if recovered.unsynced else self.log_end_offset
        self._flusher = Flusher(files, directory, durable, lambda: self.log_end_offset)
        self._flusher.wrote_all(recovered.unsynced, recovered.unsynced_files)
        self._epochs = LeaderEpochs(files, directory, recovered.epochs, self._flusher.wrote_file)
        self.leader_epoch = max(self._epochs.newest, 0)
        self.on_roll: Callable[[], None] | None = None
        """Called when a new segment has begun: the one before it may be synced."""

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str | os.PathLike[str],
        topic_partition: TopicIdPartition,
        *,
        config: LogConfig,
        now_ms: int,
        checkpoints: LogCheckpoints,
        owner: LogOwner = NO_OWNER,
    ) -> Self:
        """Opens the log in a folder, which is made if it is missing.

        Without `checkpoints.clean_shutdown` the segments from the recovery point on are checked and cut, see
        recovery.py. Raises StorageError.
        """
        path, topic_id = os.fspath(directory), topic_partition.topic_id
        stored_id = make_folder(files, path, topic_id, checkpoints.clean_shutdown)
        recovered = open_segments(files, path, config, checkpoints, now_ms=now_ms, on_checked=owner.on_checked)
        if owner.upgrade is not None:
            from .log.upgrade import upgrade_segments  # needed once in the life of a directory

            upgrade_segments(files, path, recovered, config, owner.upgrade)
        if topic_id == ZERO_UUID:
            topic_partition = topic_partition._replace(topic_id=stored_id)
        log = cls(files, path, topic_partition, config, recovered, checkpoints.recovery_point, owner)
        if stored_id == ZERO_UUID != topic_id:
            write_topic_id(files, path, topic_id)
            log._flusher.changed_directory()
        log._active.jitter_ms = log._jitter()
        log._flusher.since_ms = now_ms if log.unflushed_records else None
        return log

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} {self.log_start_offset}..{self.log_end_offset}>"

    @property
    def failure(self) -> str | None:
        """The reason why the log takes no records, or None."""
        return self._unusable or self._flusher.failure

    @property
    def recovery_point(self) -> int:
        """All below this offset is durable; it rises with each flush."""
        return self._flusher.recovery_point

    @property
    def unflushed_records(self) -> int:
        """The number of offsets at or above the recovery point."""
        return self.log_end_offset - self._flusher.recovery_point

    @property
    def unflushed_since_ms(self) -> int | None:
        """The time of the first append that no flush has covered or is covering; None if there is none."""
        return self._flusher.since_ms

    # -- appending

    def append(self, records: bytearray | memoryview, *, now_ms: int, produce_version: int = 13) -> Appended:
        """Appends the records of a producer for this partition: a batch, or a set of old messages; the buffer may be
        modified in place.

        Raises the exceptions of `validate.prepare`, RecordListTooLarge, ProducerRefused, StorageError; nothing is then
        appended. Searches for a duplicate older than the cached batches, which `append_prepared` leaves to its caller.
        """
        prepared = validate.prepare(records, self.config.rules, now_ms, produce_version, self.log_end_offset)
        try:
            return self.append_prepared(prepared, now_ms=now_ms)
        except DuplicateSequence as refused:
            scan = self.duplicate_scan(prepared.header)
            return self.resolve_duplicate(scan() if scan else None, refused)

    def append_records(
        self, records: Sequence[batch.Record], *, now_ms: int, codec: int = 0, producer: tuple[int, int] | None = None
    ) -> Appended:
        """Appends records of the broker's own in the topic's format, without the rules for clients: one batch, or in an
        old format without a codec one message each. Their offsets are ignored. Raises like `append`.

        With a producer id and epoch they are a part of its transaction, and begin it if it is not open here; only the
        epoch is checked.
        """
        return self.append_prepared(self.prepare_records(records, codec, producer), now_ms=now_ms)

    def prepare_records(
        self, records: Sequence[batch.Record], codec: int = 0, producer: tuple[int, int] | None = None
    ) -> Prepared:
        """Builds the batch of `append_records`, for `append_prepared`. In an old format it must be the next append,
        since its offsets are final. Raises UnsupportedForFormat."""
        magic = self.config.rules.target_magic
        first = 0 if magic == batch.MAGIC else self.log_end_offset  # the offsets in a v0 wrapper are absolute
        return built(records, first, magic, codec, producer)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Ends a producer's transaction, and voids its verification guards. If none is open the marker is written
        nevertheless, for its epochs.

        Raises FencedProducer and FencedCoordinator, see markers.py, UnsupportedForFormat, StorageError; nothing is then
        written.
        """
        self._check_writable()
        known = self.producers().get(producer_id)
        check_marker(known, producer_id, producer_epoch, coordinator_epoch, transaction_version)
        is_open = known is not None and known.transaction_first_offset >= 0
        marker = Marker(COMMIT if committed else ABORT, coordinator_epoch)
        prepared = markers.prepared(producer_id, producer_epoch, marker, now_ms, self.config, is_open)
        self._guards.end(producer_id)
        return self.append_prepared(prepared, now_ms=now_ms, marker=marker)

    def append_prepared(
        self,
        prepared: Prepared,
        *,
        now_ms: int,
        guard: Guard | None = None,
        marker: Marker | None = None,
        compares_log_start: bool = False,
    ) -> Appended:
        """Appends the result of `validate.prepare`, in one write. Raises like `append`.

        After DuplicateSequence a `duplicate_scan` may find the earlier batch. An empty set (whose only message was cut)
        appends nothing and returns base offset -1. With a `guard` (from `verify`, or IN_TRANSACTION) a batch begins a
        transaction only if the guard is not void. `marker` is set by `append_marker`. With `compares_log_start`, a
        producer whose last offset lies below the log start counts as unknown (KIP-192).
        """
        self._check_writable()
        if not prepared.headers:
            return Appended(-1, -1, -1, self.log_start_offset, False)
        active, base_offset = self._active, self.log_end_offset
        buffer, header, log_append_time_ms, _, headers, _ = validate.place(prepared, base_offset, self.leader_epoch)
        producers = self._producers.known
        epochs = self._epochs.entries
        try:
            active.load()  # after a clean start its end was not read
            if producers is None and header.producer_id >= 0:
                producers = self._known_producers()
            known = producers.get(header.producer_id) if producers else None
            if compares_log_start and known is not None and is_below(known, self.log_start_offset):
                known = None
            planned = plan(headers, len(buffer), known, active, self.config, now_ms=now_ms, guard=guard, marker=marker)
            if isinstance(planned, CachedBatch):
                return self._copy(planned)
            self._epochs.note(header.magic, self.leader_epoch, base_offset)
            if planned.roll:
                active = self._roll(base_offset, now_ms)
            if marker is None:
                active.append(buffer, headers)
            else:
                self._append_marked(active, buffer, header, marker)
        except StorageError as error:
            self._epochs.restore(epochs)
            self.report(error)
            if isinstance(error, DamagedEntry):  # CORRUPT_MESSAGE would blame the producer's batch
                raise StorageError(str(error)) from None
            raise
        self._adopt(active, headers, len(buffer), planned.producer, now_ms)
        return Appended(base_offset, self.log_end_offset - 1, log_append_time_ms, self.log_start_offset, False)

    def begin_run(self, due_at: int) -> AppendRun | None:
        """Returns an empty run of batches for one write, or None if an append has more to do first. Drop it
        unless it `is_current` when it is written. `due_at` is the offset from which on an append waits for a sync.
        """
        active = self._active
        # The first timestamp may have to be read, and without one the time of a roll is another.
        first_ms = active.first_timestamp_ms
        is_ready = active.is_loaded and active.size_bytes > 0 and self._epochs.newest >= self.leader_epoch
        if not is_ready or first_ms is None or first_ms < 0 or self.failure is not None:
            return None
        return AppendRun(
            active,
            first_ms,
            self.config,
            self.log_end_offset,
            self.leader_epoch,
            self._producers.known,
            self.log_start_offset,
            due_at,
        )

    def is_current(self, run: AppendRun, due_at: int) -> bool:
        """Whether an append after `begin_run` has not changed anything on which the run depends."""
        return (
            self._active is run.segment
            and self.log_end_offset == run.first_offset
            and run.is_current(self.config, self.leader_epoch, self._producers.known, self.log_start_offset, due_at)
            and self.failure is None
        )

    def append_run(self, run: AppendRun, now_ms: int) -> None:
        """Writes a run that `begin_run` has returned. Raises StorageError; nothing of the run is appended then."""
        self._check_writable()  # the disk may have failed meanwhile, under another log
        pieces = run.pieces
        try:
            run.segment.append(pieces[0] if len(pieces) == 1 else b"".join(pieces), run.headers)
        except StorageError as error:
            self.report(error)
            raise
        if run.producers and self._producers.known is not None:
            self._producers.known.update(run.producers)
        self._adopt(run.segment, run.headers, run.size_bytes, None, now_ms)

    def _append_marked(
        self, active: Segment, buffer: bytearray | memoryview, header: BatchHeader, marker: Marker
    ) -> None:
        """Writes a marker, after the entry of an abort in the segment's index: a marker without its entry would expose
        aborted records, an entry without its marker changes nothing."""
        entry = None
        if marker.kind == ABORT:
            known = self._known_producers()
            concerned = (header.producer_id, self._transactions.oldest_besides(header.producer_id))
            entry = txn_index.aborted(marker, header, {of: known[of] for of in concerned if of in known})
        if entry is None:
            active.append(buffer, (header,))
            return
        base_offset = active.base_offset
        size_bytes = self._transactions.index_bytes(base_offset)
        try:
            self._flusher.wrote_file(self._transactions.append(base_offset, [entry]))
            active.append(buffer, (header,))
        except StorageError as failed:
            try:
                self._transactions.undo_append(base_offset, size_bytes)
            except StorageError as error:
                self.report(failed)
                self.fail(str(error))  # a recovery rebuilds the index
            raise

    def verify(
        self, producer_id: int, producer_epoch: int, sequence: int = 0, *, bumps_epoch: bool = False, now_ms: int = 0
    ) -> Guard:
        """Returns the guard with which a batch that begins with this sequence may begin a transaction here; to be
        called before the coordinator verifies the transaction. Returns IN_TRANSACTION if the transaction is open here,
        which needs no verification. Raises FencedProducer, StorageError."""
        if self.in_transaction(producer_id, producer_epoch):
            return IN_TRANSACTION
        known = self._known_producers().get(producer_id)
        if known is not None and known.epoch > producer_epoch:
            raise FencedProducer(f"epoch {producer_epoch} of producer {producer_id} where {known.epoch} is known")
        return self._guards.give(producer_id, producer_epoch, sequence, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def refuse(self, producer_id: int, producer_epoch: int) -> None:
        """Drops the guard of a producer whose transaction does not include this partition, according to the
        coordinator."""
        self._guards.refuse(producer_id, producer_epoch)

    @when_available
    def in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns whether a transaction of the producer is open here in this epoch. Raises StorageError."""
        known = self._known_producers().get(producer_id)
        return known is not None and known.transaction_first_offset >= 0 and known.epoch == producer_epoch

    def _copy(self, of: CachedBatch) -> Appended:
        return Appended(of.base_offset, of.last_offset, of.max_timestamp_ms, self.log_start_offset, True)

    @when_available
    def duplicate_scan(self, header: BatchHeader) -> DuplicateScan | None:
        """Returns a search for the earlier copy of a refused batch in the tail of the log, to be called in any thread
        while nothing is appended; None if scans are turned off. Raises StorageError."""
        scan_bytes = self.config.producer_rules.scan_bytes
        if scan_bytes <= 0:
            return None
        return DuplicateScan(
            self._files, self._segments, header, self.log_start_offset, scan_bytes, lambda: self._unusable is not None
        )

    def resolve_duplicate(self, found: CachedBatch | None, refused: DuplicateSequence) -> Appended:
        """Returns the result for a refused batch after a scan. Raises the refusal if no copy was found."""
        if found is None or found.last_offset < self.log_start_offset:
            raise refused
        return self._copy(found)

    def _adopt(
        self, active: Segment, headers: Sequence[BatchHeader], size_bytes: int, producer: Producer | None, now_ms: int
    ) -> None:
        """Updates the state after a write. Cannot fail."""
        self._flusher.wrote(active, now_ms)
        header = headers[-1]
        if producer is not None and self._producers.known is not None:
            if header.attributes & batch.TRANSACTIONAL_BIT:
                self._transactions.know()
                self._transactions.note(header, producer, self.high_watermark)
            self._producers.known[header.producer_id] = producer
        self.size_bytes += size_bytes
        self.log_end_offset = header.base_offset + header.last_offset_delta + 1

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begins a new segment. After StorageError the old one is still active."""
        old = self._active
        with storage_errors(f"cannot begin a segment in {self._directory}"):
            old.cut_torn(look=True)
            self._save_indexes(old)
            self._flusher.cover_indexes(old)
            self._save_producers()
            created = Segment.create(
                self._files,
                self._directory,
                base_offset,
                self.config.index_interval_bytes,
                now_ms=now_ms,
                jitter_ms=self._jitter(),
            )
        self._flusher.changed_directory()
        self._segments.append(created)
        self._active = created
        if self.on_roll is not None:
            self.on_roll()
        return created

    def _jitter(self) -> int:
        bound = self.config.segment_jitter_ms
        return self._pick(bound) if bound > 0 else 0

    def producers(self) -> dict[int, Producer]:
        """Returns the producer state entries by producer id, also of a closed log; not to be changed by the caller.
        Raises StorageError."""
        try:
            return self._known_producers()
        except StorageError as error:
            self.report(error)
            raise

    @property
    def producer_count(self) -> int:
        """The number of producers, 0 if they are not loaded."""
        return len(self._producers.known or ())

    def expire_producers(self, now_ms: int) -> int:
        """Drops producers without writes for `producer_rules.expiration_ms` and returns their number. To be called
        periodically: they do not expire otherwise while the log is open."""
        self._guards.expire(now_ms, self.config.producer_rules.expiration_ms)
        return self._producers.expire(now_ms, self.log_start_offset, self.config.producer_rules)

    def producers_expire_ms(self) -> int | None:
        """Returns the time in ms from which on `expire_producers` drops one if nothing is appended; None for never.
        Loads the producers if all of them expire. Raises StorageError."""
        rules = self.config.producer_rules
        found = [self._guards.due_ms(rules.expiration_ms)]
        known = self._producers.known if rules.expiration_ms is None else self._known_producers()
        if known:
            found.append(expires_ms(known, self.log_start_offset, rules))
        return min((when_ms for when_ms in found if when_ms is not None), default=None)

    def _known_producers(self) -> dict[int, Producer]:
        known, rules = self._producers.known, self.config.producer_rules
        return known if known is not None else self._producers.load(self._segments, self.log_start_offset, rules)

    def _save_indexes(self, segment: Segment) -> None:
        """Writes a segment's index files, to be synced by the next flush: the log itself may already be durable. Raises
        OSError."""
        if segment.save_indexes():
            self._flusher.wrote_indexes(segment)

    def _save_producers(self) -> None:
        """Writes a producer snapshot at the log end, to be synced by the next flush. Raises OSError."""
        rules = self.config.producer_rules
        name = self._producers.save(self.log_end_offset, self._segments, self.log_start_offset, rules)
        if name is not None:
            self._flusher.wrote_file(name)

    def _check_writable(self) -> None:
        self.check_usable()
        if self._flusher.failure is not None:
            raise StorageError(f"{self._directory} takes no records: {self._flusher.failure}")

    # -- the log start

    @when_available
    def delete_records_before(self, offset: int) -> int:
        """Raises the log start to the offset, durably, and returns the log start. It never moves back.

        Files stay until retention removes them. Raises OffsetOutOfRange above the high watermark, StorageError.
        """
        self._check_writable()
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset > self.log_start_offset:
            producers = self._known_producers()
            if self._on_log_start is not None:
                self._on_log_start(self, offset)
            self.log_start_offset = offset
            forget_below(producers, offset, self.config.producer_rules)
            self._epochs.keep(retention.epochs_from(self._epochs.entries, self.log_start_offset))
        return self.log_start_offset

    @when_available
    def retain(self, now_ms: int) -> retention.Removed | None:
        """Deletes the oldest segments beyond retention: by log start, size and time.

        Their files are renamed at once, and removed when the caller calls `remove` on the result; None if all stay. If
        all are deleted, a new empty segment is made. The new log start is durable before. Raises StorageError.
        """
        self._check_writable()
        number = retention.expired(self, now_ms)
        if number == 0:
            return None
        if number == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        start = self._segments[number].base_offset
        if start > self.log_start_offset:
            self.delete_records_before(start)
        removed = retention.Removed(self._files, self._directory)
        try:
            for segment in self._segments[:number]:
                removed.take(segment, self._producers)
        except OSError as error:  # the rest is below the log start now: the next call tries again
            raise StorageError(f"cannot delete segments of {self._directory}: {error}") from error
        finally:
            gone = removed.segments
            self._removed = [*(earlier for earlier in self._removed if earlier.segments), removed]
            self._segments = self._segments[len(gone) :]  # a new list: a duplicate scan keeps using the old one
            self.size_bytes -= sum(segment.size_bytes for segment in gone)
            self._flusher.forget(gone)
        self._epochs.keep(retention.epochs_from(self._epochs.entries, self.log_start_offset))
        return removed

    # -- compaction

    @when_available
    def replace_segments(self, new: Sequence[Rewritten], old: Sequence[int]) -> retention.Removed:
        """Replaces old segments by new ones, written and synced as `.cleaned` files, by base offset.

        The old ones are a run of closed segments with the same base offset as the new ones. Their files are renamed at
        once, and removed when the caller calls `remove` on the result. After StorageError the swap may be half done:
        the log is offline until it is opened again, which completes or undoes it.
        """
        self._check_writable()
        bases = [segment.base_offset for segment in self._segments]
        number = bases.index(old[0]) if old and old[0] in bases[:-1] else len(bases)
        if not (new and old) or new[0].base_offset != old[0] or bases[number:-1][: len(old)] != list(old):
            raise StorageError(f"{self._directory}: {old} is not a run of closed segments")
        gone, removed = self._segments[number : number + len(old)], retention.Removed(self._files, self._directory)
        made = replacements(self._files, self._directory, new, gone, self.config.index_interval_bytes)
        kept = {segment.base_offset for segment in made}
        by_base = {segment.base_offset: segment for segment in gone}

        def put_away(base_offset: int) -> None:
            removed.take(by_base[base_offset], None if base_offset in kept else self._producers)

        try:
            swap_in(self._files, self._directory, [segment.base_offset for segment in made], old, put_away)
        except (OSError, StorageError) as error:
            self.fail(f"a swap of segments was interrupted: {error}")
            raise StorageError(f"cannot swap segments of {self._directory}: {error}") from error
        # A new list: a duplicate scan keeps using the old one.
        self._segments = [*self._segments[:number], *made, *self._segments[number + len(old) :]]
        self._removed = [*(earlier for earlier in self._removed if earlier.segments), removed]
        self.size_bytes += sum(segment.size_bytes for segment in made) - sum(segment.size_bytes for segment in gone)
        self._transactions.forget_files()
        self._flusher.forget(gone)
        return removed

    # -- durability

    @when_available
    def flush(self) -> int:
        """Makes everything appended so far durable and returns the new recovery point. May run in another thread.

        After a failed sync durability is unknown, and a second sync would not report it: the log takes no more records
        until it is opened again. If no descriptor was free for a file, nothing was tried and a later flush tries again.
        Raises StorageError.
        """
        return self._flusher.flush()

    @when_available
    def save(self) -> None:
        """Writes everything that `close` writes, and stays open: a copy of the folder made now is that of a closed
        log."""
        self._save()
        self._producers.thin(self._active.base_offset)

    def _save(self) -> None:
        if self._active.is_doubtful:
            raise StorageError(f"{self._directory} does not end where it was closed: it needs a recovery")
        with storage_errors(f"cannot close {self._directory}"):
            for segment in self._segments:
                segment.cut_torn(look=True)
                self._save_indexes(segment)
            self._save_producers()
            # The names of a log that was never written are durable once a later one in the directory above is.
            if self._flusher.failure is not None or (not self._flusher.is_idle and self.log_end_offset > 0):
                self._flusher.flush()

    def close(self) -> None:
        """Writes the indexes, syncs everything and closes the files. A second close does nothing.

        After StorageError the files are closed nevertheless; the shutdown was then not clean.
        """
        if self._is_closed:
            return
        try:
            self.check_usable()
            self._unusable = CLOSED
            self._save()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the files without writing, as for a deleted folder or a killed process."""
        self._is_closed = True
        self._unusable = self._unusable or CLOSED
        self._flusher.close()
        for segment in (*self._segments, *(one for removed in self._removed for one in removed.segments)):
            with contextlib.suppress(OSError):
                segment.close()
