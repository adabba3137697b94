"""The transaction coordinator: the shell around the table.

Owns the transactional ids of this broker, the requests that wait, the markers that are still to be written, and the
log of all that in `__transaction_state` as records handed to `append`. It must not know sockets, topics or files: those
come in as arguments. Every method runs on the event loop. What needs no sync is done before a method returns: then the
answer is there, and so are the markers of a transaction that was decided. Where a sync is to be awaited
(`flush.messages`) the answer is a future, nothing is told or begun before what it rests upon is durable, and other
requests of the same id are told to come back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Protocol

from ...protocol.errors import ErrorCode
from ...storage.log import results
from ..clock import Clock, Timer
from ..errors import Refused, code_of
from ..groups.records import partition_for
from ..groups.settings import WRITE_ERRORS
from ..logs import get_logger
from . import records
from .settings import TransactionSettings
from .state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    AddOffsets,
    AddPartitions,
    Allocate,
    Answer,
    Append,
    Appended,
    AppendFailed,
    Effect,
    EndTxn,
    Event,
    Expire,
    InitProducerId,
    Loaded,
    MarkersWritten,
    Partition,
    Reply,
    Request,
    Slot,
    TimeOut,
    Transaction,
    VerifyPartitions,
    WriteMarkers,
)
from .table import advance, due_ms, states_moved_by

RETRY_MS = 1000
"""After a marker that could not be written; the sweep for time-outs tries it again, too."""

LONGEST_RETRY_MS = 3_600_000
"""Between two tries while the clock is moved on."""

SWEPT_AT_ONCE = 200
"""Of how many ids a sweep thinks in one turn of the loop."""

# A partition with which there is nothing left to do: it is gone, its format has no markers, or another transaction of
# the producer has taken the place of this one.
_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


Submitted = results.Appended | asyncio.Future[results.Appended]


class AppendRecords(Protocol):
    """Writes records to a partition of `__transaction_state`. A future is of the sync that has to be awaited, and may
    give another one; an exception, also of a future, means that they may not stay there."""

    def __call__(self, partition_index: int, records: list[records.Record], now_ms: int, /) -> Submitted: ...


class WriteMarker(Protocol):
    """Writes the marker of a transaction to one of its partitions; the rest as for `AppendRecords`."""

    def __call__(self, partition: Partition, markers: WriteMarkers, now_ms: int, /) -> Submitted: ...


@dataclass(frozen=True, slots=True)
class MarkerWriter:
    """How markers reach the partitions of transactions. `on_written` receives each marker that is as durable as its
    topic asks, or whose partition is gone."""

    write: WriteMarker
    on_written: Callable[[Partition, WriteMarkers], None] | None = None


class Readiness(Enum):
    """Why the ids of one partition of the log are not served; a partition without one is. What they answer."""

    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
    RESIGNED = ErrorCode.NOT_COORDINATOR


@dataclass(slots=True, eq=False)
class Marking:
    """The markers of one decided transaction, since `since_ms`. `left` are the partitions not known to have theirs,
    `waiting` those of them that wait for a sync. `tried_ms` is when they were tried last."""

    markers: WriteMarkers
    left: dict[Partition, None]
    since_ms: int
    tried_ms: int
    waiting: set[Partition] = field(default_factory=set[Partition])
    timer: Timer | None = None
    is_told: bool = False

    @property
    def due_ms(self) -> int | None:
        """When a move of the clock is to try again what nothing waits for: at the next sweep, and ever more seldom, as
        it is not time that makes it good."""
        if len(self.waiting) == len(self.left):
            return None
        return self.tried_ms + min(self.tried_ms - self.since_ms, LONGEST_RETRY_MS)


@dataclass(slots=True, eq=False)
class Entry:
    """An id with what belongs to it but is none of the table's business."""

    slot: Slot
    partition_index: int
    marking: Marking | None = None


class TransactionCoordinator:
    """All transactional ids of this broker."""

    def __init__(
        self,
        *,
        append: AppendRecords,
        markers: MarkerWriter,
        allocate: Callable[[int], int],
        offsets_partition: Callable[[str], Partition],
        partitions: int,
        clock: Clock,
        settings: TransactionSettings | None = None,
        waits: Clock | None = None,
    ) -> None:
        """`partitions` is the count of `__transaction_state`; `allocate` gives a fresh producer id at a time in ms, and
        `offsets_partition` says where a group's offsets are. By `waits` a marker that could not be written is tried
        again: the machine's clock, where `clock` is another.
        """
        self.settings = settings or TransactionSettings()
        self.partitions = partitions
        self._append = append
        self._markers = markers
        self._allocate = allocate
        self._offsets_partition = offsets_partition
        self._clock = clock
        self._waits = waits or clock
        self._entries: dict[str, Entry] = {}
        self._readiness: dict[int, Readiness] = {}
        self._active = True
        self._tokens = itertools.count(1)
        self._answered: dict[int, Answer] = {}
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._sweeps: dict[type, Timer] = {}

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for transactions that are open for too long, and for ids that nobody uses."""
        every = self._clock.call_every
        self._sweeps[TimeOut] = every(self.settings.time_out_interval_ms, self.time_out, partial(self._due_ms, TimeOut))
        self._sweeps[Expire] = every(self.settings.expiration_interval_ms, self.expire, partial(self._due_ms, Expire))

    def close(self) -> None:
        """Stop all timers and answer whoever waits that the coordinator is gone. What is decided and not finished is
        finished by the next start."""
        self._active = False
        for timer in self._sweeps.values():
            timer.cancel()
        for entry in list(self._entries.values()):
            self._dismiss(entry, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def resign(self, partition_index: int) -> None:
        """The partition's log is offline: its ids are forgotten, and somebody else is to be asked for them."""
        self._readiness[partition_index] = Readiness.RESIGNED
        for entry in self._of(partition_index):
            self._dismiss(entry, ErrorCode.NOT_COORDINATOR)

    def has_resigned(self, transactional_id: str) -> bool:
        """Whether nobody coordinates the id."""
        return self._readiness.get(self.partition_of(transactional_id)) is Readiness.RESIGNED

    def begin_loading(self, partition_index: int) -> None:
        """From here until `load` the ids of this partition answer that they are being loaded."""
        self._readiness[partition_index] = Readiness.LOADING

    def load(self, partition_index: int, log: Iterable[records.Record]) -> ErrorCode:
        """Take over what the partition's log says, oldest first, and finish what was decided. A log that cannot be read
        makes the ids of this partition unavailable; the code says why.
        """
        for entry in self._of(partition_index):
            self._dismiss(entry, ErrorCode.NOT_COORDINATOR)
        try:
            loaded = _loaded(log)
        except Exception as error:
            self._readiness[partition_index] = Readiness.FAILED
            return code_of(error)
        self._readiness.pop(partition_index, None)
        entries = [Entry(Slot(one.transactional_id, one), partition_index) for one in loaded]
        for entry in entries:
            self._entries[entry.slot.transactional_id] = entry
        for entry in entries:
            self._feed(entry, Loaded())
        return ErrorCode.NONE

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that holds the id: where it was found, or where it belongs."""
        entry = self._entries.get(transactional_id)
        return entry.partition_index if entry is not None else partition_for(transactional_id, self.partitions)

    def _of(self, partition_index: int) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.partition_index == partition_index]

    def _dismiss(self, entry: Entry, error: ErrorCode) -> None:
        del self._entries[entry.slot.transactional_id]
        self._end_marking(entry)
        writing = entry.slot.writing
        if writing is not None and writing.token is not None:
            self._answer(writing.token, Answer(error))

    def _unavailable(self, transactional_id: str) -> ErrorCode:
        """Why the id cannot be served now; NONE if it can, and for an empty one: what that is, the table says."""
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        readiness = self._readiness.get(self.partition_of(transactional_id)) if self._readiness else None
        return readiness.value if readiness is not None and transactional_id else ErrorCode.NONE

    # --- requests ------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
    ) -> Answer | asyncio.Future[Answer]:
        """InitProducerId with a transactional id."""
        return self._ask(transactional_id, lambda token: InitProducerId(token, timeout_ms, producer_id, producer_epoch))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        *,
        client_version: int,
    ) -> Answer | asyncio.Future[Answer]:
        """AddPartitionsToTxn; that the partitions exist is for the caller to know."""
        added = tuple(partitions)
        return self._ask(
            transactional_id, lambda token: AddPartitions(token, producer_id, producer_epoch, added, client_version)
        )

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, *, client_version: int
    ) -> Answer | asyncio.Future[Answer]:
        """AddOffsetsToTxn: the partition of `__consumer_offsets` that holds the group."""
        partition = self._offsets_partition(group_id)
        return self._ask(
            transactional_id, lambda token: AddOffsets(token, producer_id, producer_epoch, partition, client_version)
        )

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, committed: bool, client_version: int
    ) -> Answer | asyncio.Future[Answer]:
        """EndTxn. The answer comes when the decision is durable; the markers follow it."""
        return self._ask(
            transactional_id, lambda token: EndTxn(token, producer_id, producer_epoch, committed, client_version)
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[Partition]
    ) -> Answer:
        """Whether the running transaction holds these partitions (KIP-890); `missing` are those it does not."""
        held = tuple(partitions)
        answer = self._ask(transactional_id, lambda token: VerifyPartitions(token, producer_id, producer_epoch, held))
        assert isinstance(answer, Answer)
        return answer

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """DescribeTransactions for one id, as its log says, but that a partition is out of it with its marker."""
        error = self._unavailable(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return error, None
        entry = self._entries.get(transactional_id)
        settled = entry.slot.settled if entry is not None else None
        if entry is None or settled is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        if entry.marking is not None:
            settled = replace(settled, partitions=tuple(entry.marking.left))
        return ErrorCode.NONE, settled

    def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> tuple[ErrorCode, list[str], list[Transaction]]:
        """ListTransactions: a code, the names among `states` that are none, and the transactions. The filters are those
        of `listing.listed`."""
        from .listing import listed  # seldom needed, and not at a start

        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        if Readiness.LOADING in self._readiness.values():
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        settled = [entry.slot.settled for entry in self._entries.values() if entry.slot.settled is not None]
        try:
            unknown, found = listed(
                settled,
                self._clock.now_ms(),
                states=states,
                producer_ids=producer_ids,
                duration_ms=duration_ms,
                pattern=pattern,
            )
        except Refused as refused:
            return refused.code, [], []
        return ErrorCode.NONE, unknown, found

    def _ask(self, transactional_id: str, request: Callable[[int], Request]) -> Answer | asyncio.Future[Answer]:
        error = self._unavailable(transactional_id)
        if error is not ErrorCode.NONE:
            return Answer(error)
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = Entry(Slot(transactional_id), self.partition_of(transactional_id))
            self._entries[transactional_id] = entry
        token = next(self._tokens)
        try:
            self._feed(entry, request(token))
        finally:
            # A request that was refused leaves no trace: strangers cannot fill the memory with names.
            if entry.slot.settled is None and not entry.slot.pending and self._is_current(entry):
                del self._entries[transactional_id]
        answer = self._answered.pop(token, None)
        if answer is not None:
            return answer
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        return future

    def _answer(self, token: int, answer: Answer) -> None:
        future = self._waiting.pop(token, None)
        if future is None:
            self._answered[token] = answer
        elif not future.done():  # a client that hung up waits no more
            future.set_result(answer)

    # --- sweeps --------------------------------------------------------------------------------------------------

    def time_out(self) -> None:
        """Abort the transactions that are open for longer than they may be, and try again what could not be written."""
        self._sweep(TimeOut())

    def expire(self) -> None:
        """Forget the ids that nobody has used for `transactional.id.expiration.ms`."""
        self._sweep(Expire())

    def _sweep(self, event: TimeOut | Expire) -> None:
        states = states_moved_by(type(event))
        self._sweep_from(event, [entry for entry in self._entries.values() if entry.slot.state in states], 0)

    def _sweep_from(self, event: TimeOut | Expire, entries: Sequence[Entry], first: int) -> None:
        """So many as keep the loop but for a moment; the others after what else waits for it."""
        for entry in entries[first : first + SWEPT_AT_ONCE]:
            if self._is_current(entry):
                self._feed(entry, event)
                self._mark_again(entry)
        first += SWEPT_AT_ONCE
        if first < len(entries) and self._active:
            self._clock.call_at(self._clock.now_ms(), self._sweep_from, event, entries, first)

    def _due_ms(self, which: type[TimeOut] | type[Expire]) -> int | None:
        """From when on a sweep has something to do, as things are; None if never."""
        found = [due_ms(entry.slot, which, self.settings) for entry in self._entries.values()]
        if which is TimeOut:
            found += [entry.marking.due_ms for entry in self._entries.values() if entry.marking is not None]
        return min((when_ms for when_ms in found if when_ms is not None), default=None)

    # --- the table's shell ---------------------------------------------------------------------------------------

    def _is_current(self, entry: Entry) -> bool:
        """Whether it still stands for its id: an outcome may come when that was forgotten, or loaded anew."""
        return self._entries.get(entry.slot.transactional_id) is entry

    def _feed(self, entry: Entry, event: Event) -> None:
        """Move the id and perform the effects; the outcomes that are known at once are fed in their order."""
        events = deque([event])
        while events:
            entry.slot, effects = advance(
                entry.slot, events.popleft(), now_ms=self._clock.now_ms(), settings=self.settings
            )
            for effect in effects:
                outcome = self._perform(entry, effect)
                if outcome is not None:
                    events.append(outcome)

    def _perform(self, entry: Entry, effect: Effect) -> Event | None:
        if isinstance(effect, Reply):
            self._answer(effect.token, effect.answer)
        elif isinstance(effect, Append):
            return self._append_record(entry, effect)
        elif isinstance(effect, WriteMarkers):
            self._end_marking(entry)
            now_ms = self._clock.now_ms()
            entry.marking = Marking(effect, dict.fromkeys(effect.partitions), now_ms, now_ms)
            return self._mark(entry)
        elif isinstance(effect, Allocate):
            return self._with_producer_id(effect.request)
        elif self._is_current(entry):
            del self._entries[effect.transactional_id]
        return None

    def _outcome_later(self, entry: Entry, event: Event) -> None:
        if self._is_current(entry):
            self._feed(entry, event)

    def _with_producer_id(self, request: InitProducerId | EndTxn | TimeOut) -> Event | None:
        try:
            producer_id = self._allocate(self._clock.now_ms())
        except Exception as error:
            if not isinstance(request, TimeOut):  # the next sweep asks again
                self._answer(request.token, Answer(self._write_error(error)))
            return None
        return replace(request, new_producer_id=producer_id)

    def _write_error(self, error: BaseException) -> ErrorCode:
        if not isinstance(error, Exception):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = code_of(error)
        return WRITE_ERRORS.get(code, code)

    # --- the log -------------------------------------------------------------------------------------------------

    def _append_record(self, entry: Entry, write: Append) -> Appended | AppendFailed | None:
        try:
            if write.written is None:
                record = records.transaction_tombstone(write.transactional_id)
            else:
                record = records.transaction_record(write.written, self.settings.record_version)
            submitted = self._append(entry.partition_index, [record], self._clock.now_ms())
        except Exception as error:
            return AppendFailed(write, self._write_error(error))
        if isinstance(submitted, asyncio.Future):
            _when_settled(submitted, partial(self._record_settled, entry, write))
            return None
        return Appended(write)

    def _record_settled(self, entry: Entry, write: Append, error: BaseException | None) -> None:
        self._outcome_later(entry, Appended(write) if error is None else AppendFailed(write, self._write_error(error)))

    # --- markers -------------------------------------------------------------------------------------------------

    def _mark(self, entry: Entry) -> MarkersWritten | None:
        """Write the markers that are left; those that cannot be written now are tried again."""
        marking = entry.marking
        assert marking is not None
        marking.tried_ms = self._clock.now_ms()
        for partition in [one for one in marking.left if one not in marking.waiting]:
            try:
                submitted = self._markers.write(partition, marking.markers, self._clock.now_ms())
            except Exception as error:
                self._marker_settled(marking, partition, error)
                continue
            if isinstance(submitted, asyncio.Future):
                marking.waiting.add(partition)
                _when_settled(submitted, partial(self._marker_settled_later, entry, marking, partition))
            else:
                self._marker_settled(marking, partition, None)
        return self._marked_all(entry)

    def _marked_all(self, entry: Entry) -> MarkersWritten | None:
        """What to feed when no marker is left; else see to it that those which nothing waits for are tried again."""
        marking = entry.marking
        assert marking is not None
        if not marking.left:
            self._end_marking(entry)
            return MarkersWritten(marking.markers)
        if len(marking.waiting) < len(marking.left) and marking.timer is None:
            when_ms = self._waits.now_ms() + RETRY_MS
            marking.timer = self._waits.call_at(when_ms, self._retry_due, entry, marking)
        return None

    def _end_marking(self, entry: Entry) -> None:
        if entry.marking is not None and entry.marking.timer is not None:
            entry.marking.timer.cancel()
        entry.marking = None

    def _retry_due(self, entry: Entry, marking: Marking) -> None:
        marking.timer = None
        if entry.marking is marking:
            self._mark_again(entry)

    def _mark_again(self, entry: Entry) -> None:
        if entry.marking is not None and self._is_current(entry):
            written = self._mark(entry)
            if written is not None:
                self._feed(entry, written)

    def _marker_settled_later(
        self, entry: Entry, marking: Marking, partition: Partition, error: BaseException | None
    ) -> None:
        marking.waiting.discard(partition)
        self._marker_settled(marking, partition, error)
        if entry.marking is marking and self._is_current(entry):
            written = self._marked_all(entry)
            if written is not None:
                self._feed(entry, written)

    def _marker_settled(self, marking: Marking, partition: Partition, error: BaseException | None) -> None:
        """What writing one marker came to."""
        code = ErrorCode.NONE
        if error is not None:
            code = code_of(error) if isinstance(error, Exception) else ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is None or code in _GONE:
            marking.left.pop(partition, None)
            if self._markers.on_written is not None:
                self._markers.on_written(partition, marking.markers)
            return
        if code in _FENCED:
            marking.left.pop(partition, None)
        elif marking.is_told:  # it is tried again every second
            return
        else:
            marking.is_told = True
        get_logger().warning(
            "a transaction marker was refused" if code in _FENCED else "a transaction marker cannot be written yet",
            transactional_id=marking.markers.transactional_id,
            producer_id=marking.markers.producer_id,
            topic=partition[0],
            partition=partition[1],
            reason=str(error),
        )


def _loaded(log: Iterable[records.Record]) -> list[Transaction]:
    """The ids of a partition, as their last records say. Raises MalformedMessage, and what reading the log raises."""
    newest: dict[bytes, bytes | None] = {}
    for key, value in log:
        newest.pop(key, None)  # the order is that of the last records
        newest[key] = value
    entries = [records.decode(key, value) for key, value in newest.items()]
    return [entry.transaction for entry in entries if entry is not None and entry.transaction is not None]


def _when_settled(submitted: asyncio.Future[results.Appended], done: Callable[[BaseException | None], None]) -> None:
    """Calls back on the loop with the error of the future, or None, when it is done."""

    def ended(future: asyncio.Future[results.Appended]) -> None:
        if future.cancelled():
            done(asyncio.CancelledError())
        else:
            done(future.exception())

    submitted.add_done_callback(ended)
