"""The log of one partition: what the broker appends to and reads from.

Owns the list of segments, the offsets, the producers and the leader epochs of one folder. Blocking; no clock (`now_ms`
is an argument), no event loop. One thread uses a log, except that `flush` may run in another.

Every append has one order: prepare (check and patch the batch, no state touched), plan (producer verdict, offsets,
roll; no state touched), one write, adopt. A failure before or in the write leaves log and state as they were. FORMAT.md
has the order on the disk.

A log may hold all three message formats. "Batch" means a v2 batch or a message of format v0 or v1, plain or a wrapper
around a compressed set.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from ..protocol.primitives import ZERO_UUID
from ..protocol.records import batch, validate
from ..protocol.records.batch import BatchHeader
from ..protocol.records.validate import Prepared
from .compaction.swap import replacements, swap_in
from .config import LogConfig
from .errors import DuplicateSequence, FencedProducer, OffsetOutOfRange, StorageError
from .format.leader_epochs import LeaderEpochs
from .format.partition_metadata import make_folder, write_topic_id
from .io.files import Files
from .log import markers, retention
from .log.append_plan import built, plan
from .log.availability import CLOSED, watched
from .log.flusher import Flusher
from .log.markers import check_marker
from .log.read_view import ReadableLog
from .log.recovery import LogCheckpoints, OnChecked, Recovered, open_segments
from .log.results import Appended, NewRecord, Slice, TimestampOffset
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
    """A partition with the id of its topic, 16 bytes; zeros stand for the id that the partition's folder has."""

    topic: str
    partition: int
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class LogOwner:
    """What the owner of a log, a data directory, does for it.

    `on_log_start(log, offset)` makes a log start durable before the log adopts it. `pick(n)` returns a random number in
    [0, n), for the jitter of time rolls. `on_checked` receives the bytes that a recovery has checked. With `upgrade`,
    which receives the progress, an opening rewrites all segments as v2 before it returns.
    """

    on_log_start: Callable[[PartitionLog, int], None] | None = None
    pick: Callable[[int], int] = random.randrange
    on_checked: OnChecked | None = None
    upgrade: OnUpgrade | None = None


NO_OWNER = LogOwner()


class PartitionLog(ReadableLog):
    """See the module. Made by `open`."""

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
        # What was cut is not durable, whatever a checkpoint says of it.
        durable = min(recovery_point, self.log_end_offset) if recovered.unsynced else self.log_end_offset
        self._flusher = Flusher(files, directory, durable, lambda: self.log_end_offset)
        self._flusher.wrote_all(recovered.unsynced, recovered.unsynced_files)
        self._epochs = LeaderEpochs(files, directory, recovered.epochs, self._flusher.wrote_file)
        self.leader_epoch = max(self._epochs.newest, 0)
        self.on_roll: Callable[[], None] | None = None
        """Told when a new segment has begun: the one before it may be synced."""

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
            from .log.upgrade import upgrade_segments  # asked for once in the life of a directory

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
        """Why the log takes no records, None if it does."""
        return self._unusable or self._flusher.failure

    @property
    def recovery_point(self) -> int:
        """All below this offset is durable: it rises with each flush."""
        return self._flusher.recovery_point

    @property
    def unflushed_records(self) -> int:
        """How many offsets lie at the recovery point or behind it."""
        return self.log_end_offset - self._flusher.recovery_point

    @property
    def unflushed_since_ms(self) -> int | None:
        """When the first append was made that no flush has covered or is covering; None if there is none."""
        return self._flusher.since_ms

    # -- appending

    def append(self, records: bytearray | memoryview, *, now_ms: int, produce_version: int = 13) -> Appended:
        """Appends what a producer sent for this partition: a batch, or a set of old messages; it may be patched in
        place.

        Raises what `validate.prepare` raises, RecordListTooLarge, ProducerRefused, StorageError: then nothing is
        appended. Looks for a copy behind the remembered batches, which `append_prepared` leaves to its caller.
        """
        prepared = validate.prepare(records, self.config.rules, now_ms, produce_version, self.log_end_offset)
        try:
            return self.append_prepared(prepared, now_ms=now_ms)
        except DuplicateSequence as refused:
            scan = self.duplicate_scan(prepared.header)
            return self.answer_copy(scan() if scan else None, refused)

    def append_records(
        self,
        records: Sequence[NewRecord],
        *,
        now_ms: int,
        codec: int = 0,
        producer: tuple[int, int] | None = None,
    ) -> Appended:
        """Appends records of the broker's own in the topic's format, by none of the rules for clients: one batch, or
        in an old format without a codec one message each. Errors as `append`.

        With the id and the epoch of a producer they are a part of its transaction, and begin it if it is not open here;
        only the epoch is judged.
        """
        return self.append_prepared(self.prepare_records(records, codec, producer), now_ms=now_ms)

    def prepare_records(
        self, records: Sequence[NewRecord], codec: int = 0, producer: tuple[int, int] | None = None
    ) -> Prepared:
        """What `append_records` appends, for `append_prepared`. In an old format it must be the next append: its
        offsets are final. Raises UnsupportedForFormat."""
        magic = self.config.rules.target_magic
        first = 0 if magic == batch.MAGIC else self.log_end_offset  # a v0 wrapper is written for its place
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
        """Ends a producer's transaction, and makes the guards void that were given out for it. Where none is open the
        marker is written all the same, and tells epochs.

        Raises FencedProducer and FencedCoordinator, see markers.py, UnsupportedForFormat, StorageError: then nothing
        is written.
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
        """Appends what `validate.prepare` made of a producer's data, in one write. Errors as `append`.

        After DuplicateSequence a `duplicate_scan` may find the copy. Nothing happens where there is nothing to append
        (a set whose only message was cut): the base offset is then -1. With a `guard` (from `verify`, or
        IN_TRANSACTION) a batch begins a transaction only if that is not void. `marker` is `append_marker`'s. To a
        client that `compares_log_start` a producer whose last offset lies below the log start is unknown (KIP-192).
        """
        self._check_writable()
        if not prepared.headers:
            return Appended(-1, -1, -1, self.log_start_offset, False)
        active, base_offset = self._active, self.log_end_offset
        buffer, header, log_append_time_ms, _, headers, _ = validate.place(prepared, base_offset, self.leader_epoch)
        producers = self._producers.known
        epochs = self._epochs.entries
        try:
            active.load()  # a clean start took its end on trust
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
            raise
        self._adopt(active, headers, len(buffer), planned.producer, now_ms)
        return Appended(base_offset, self.log_end_offset - 1, log_append_time_ms, self.log_start_offset, False)

    def _append_marked(
        self, active: Segment, buffer: bytearray | memoryview, header: BatchHeader, marker: Marker
    ) -> None:
        """Writes a marker; first, what it aborts into the segment's index: a marker that is there without its entry
        would show what was aborted, an entry without a marker shows nothing else than before."""
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
                self._transactions.take_back(base_offset, size_bytes)
            except StorageError as error:
                self.report(failed)
                self.fail(str(error))  # a recovery makes the index anew
            raise

    def verify(
        self, producer_id: int, producer_epoch: int, sequence: int = 0, *, bumps_epoch: bool = False, now_ms: int = 0
    ) -> Guard:
        """What lets a batch that begins with the sequence begin a transaction here, to be got before the coordinator is
        asked whether it is one. IN_TRANSACTION where it is open: then nobody need be asked. Raises FencedProducer,
        StorageError."""
        if self.in_transaction(producer_id, producer_epoch):
            return IN_TRANSACTION
        known = self._known_producers().get(producer_id)
        if known is not None and known.epoch > producer_epoch:
            raise FencedProducer(f"epoch {producer_epoch} of producer {producer_id} where {known.epoch} is known")
        return self._guards.give(producer_id, producer_epoch, sequence, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def refuse(self, producer_id: int, producer_epoch: int) -> None:
        """Forgets the guard of a producer whose transaction does not hold this partition, as the coordinator said."""
        self._guards.refuse(producer_id, producer_epoch)

    @watched
    def in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer is open here in this epoch. Raises StorageError."""
        known = self._known_producers().get(producer_id)
        return known is not None and known.transaction_first_offset >= 0 and known.epoch == producer_epoch

    def _copy(self, of: CachedBatch) -> Appended:
        return Appended(of.base_offset, of.last_offset, of.max_timestamp_ms, self.log_start_offset, True)

    @watched
    def duplicate_scan(self, header: BatchHeader) -> DuplicateScan | None:
        """A look for the copy of a refused batch in the tail of the log, to be called in any thread while nothing is
        appended; None where that is turned off. Raises StorageError."""
        scan_bytes = self.config.producer_rules.scan_bytes
        if scan_bytes <= 0:
            return None
        return DuplicateScan(
            self._files, self._segments, header, self.log_start_offset, scan_bytes, lambda: self._unusable is not None
        )

    def answer_copy(self, found: CachedBatch | None, refused: DuplicateSequence) -> Appended:
        """What a scan means for the batch that was refused. Raises the refusal if there is no copy."""
        if found is None or found.last_offset < self.log_start_offset:
            raise refused
        return self._copy(found)

    def _adopt(
        self, active: Segment, headers: Sequence[BatchHeader], size_bytes: int, producer: Producer | None, now_ms: int
    ) -> None:
        """Takes over what is on the disk now. Nothing here can fail."""
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
        """Begins a new segment. After StorageError the old one is still the active one."""
        old = self._active
        try:
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
        except OSError as error:
            raise StorageError(f"cannot begin a segment in {self._directory}: {error}") from error
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
        """What is known of each producer, by its id, also of a log that is closed; not for the caller to change. Raises
        StorageError."""
        try:
            return self._known_producers()
        except StorageError as error:
            self.report(error)
            raise

    @property
    def producer_count(self) -> int:
        """How many producers are known, if that was ever asked."""
        return len(self._producers.known or ())

    def expire_producers(self, now_ms: int) -> int:
        """Forgets the producers that have written nothing for `producer_rules.expiration_ms`; how many. To be called
        now and then: nothing else forgets them while the log is open."""
        self._guards.expire(now_ms, self.config.producer_rules.expiration_ms)
        return self._producers.expire(now_ms, self.log_start_offset, self.config.producer_rules)

    def producers_expire_ms(self) -> int | None:
        """From when on `expire_producers` has something to do if nothing is appended; None if never. Loads what is
        known of producers if all of them expire. StorageError."""
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
        """Writes a segment's index files, to be synced by the next flush: its log may be durable already. OSError."""
        if segment.save_indexes():
            self._flusher.wrote_indexes(segment)

    def _save_producers(self) -> None:
        """Writes a snapshot of the producers at the end of the log, to be synced by the next flush. OSError."""
        rules = self.config.producer_rules
        name = self._producers.save(self.log_end_offset, self._segments, self.log_start_offset, rules)
        if name is not None:
            self._flusher.wrote_file(name)

    def _check_writable(self) -> None:
        self.check_usable()
        if self._flusher.failure is not None:
            raise StorageError(f"{self._directory} takes no records: {self._flusher.failure}")

    # -- the log start

    @watched
    def delete_records_before(self, offset: int) -> int:
        """Moves the log start up to the offset, durably; it never moves back. The new log start.

        Files stay until retention removes them. Raises OffsetOutOfRange beyond the high watermark, StorageError.
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

    @watched
    def retain(self, now_ms: int) -> retention.Removed | None:
        """Takes away the oldest segments that retention no longer keeps: by the log start, by size, by time.

        Their files are renamed at once, and go when the caller calls `remove` on what is returned; None if all stay.
        Of a log of which nothing stays a new, empty segment does. The new log start is durable before. StorageError.
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
            self._segments = self._segments[len(gone) :]  # a look for a copy goes on with the old list
            self.size_bytes -= sum(segment.size_bytes for segment in gone)
            self._flusher.forget(gone)
        self._epochs.keep(retention.epochs_from(self._epochs.entries, self.log_start_offset))
        return removed

    # -- cleaning

    @watched
    def replace_segments(self, new: Sequence[Rewritten], old: Sequence[int]) -> retention.Removed:
        """Puts segments that were written and synced as `.cleaned` files in the place of old ones, by base offset.

        The old are a run of closed segments and begin where the new do. Their files are renamed at once, and go when
        the caller calls `remove` on what is returned. After StorageError it may be half done: the log is offline until
        it is opened anew, which completes or undoes it.
        """
        self._check_writable()
        bases = [segment.base_offset for segment in self._segments]
        number = bases.index(old[0]) if old and old[0] in bases[:-1] else len(bases)
        if not (new and old) or new[0].base_offset != old[0] or bases[number:-1][: len(old)] != list(old):
            raise StorageError(f"{self._directory}: {old} is no run of closed segments")
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
        # A new list: a look for a copy goes on with the old one.
        self._segments = [*self._segments[:number], *made, *self._segments[number + len(old) :]]
        self._removed = [*(earlier for earlier in self._removed if earlier.segments), removed]
        self.size_bytes += sum(segment.size_bytes for segment in made) - sum(segment.size_bytes for segment in gone)
        self._transactions.forget_files()
        self._flusher.forget(gone)
        return removed

    # -- durability

    @watched
    def flush(self) -> int:
        """Makes everything appended so far durable; the new recovery point. May run in another thread.

        After a failed sync nobody knows what is durable, and a second sync would not say: the log takes no more records
        until it is opened anew. Where no descriptor was free for a file, nothing was tried and a later flush tries
        again. Raises StorageError.
        """
        return self._flusher.flush()

    @watched
    def save(self) -> None:
        """Writes all that `close` writes, and goes on: a copy of the folder made now is that of a closed log."""
        self._save()
        self._producers.thin(self._active.base_offset)

    def _save(self) -> None:
        if self._active.is_doubtful:
            raise StorageError(f"{self._directory} does not end as when it was closed: it is to be recovered")
        try:
            for segment in self._segments:
                segment.cut_torn(look=True)
                self._save_indexes(segment)
            self._save_producers()
            # The names of a log that was never written are durable once a later one in the directory above is.
            if self._flusher.failure is not None or (not self._flusher.is_idle and self.log_end_offset > 0):
                self._flusher.flush()
        except OSError as error:
            raise StorageError(f"cannot close {self._directory}: {error}") from error

    def close(self) -> None:
        """Writes the indexes, syncs everything and gives the files back. A second close does nothing.

        After StorageError the files are closed all the same; the shutdown was then not a clean one.
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
        """Gives the files back and writes nothing, as for a folder that goes away or a process that is killed."""
        self._is_closed = True
        self._unusable = self._unusable or CLOSED
        self._flusher.close()
        for segment in (*self._segments, *(one for removed in self._removed for one in removed.segments)):
            with contextlib.suppress(OSError):
                segment.close()
