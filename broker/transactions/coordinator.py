"""The transaction coordinator: runs the state machine of `table` with timers, markers and the log.

Owns the transactional ids of this broker, their delayed requests and unwritten markers, and their log in
`__transaction_state` as records passed to `append`. Uses no sockets, topics or files: these are arguments. All methods
run on the event loop.

Without syncs to disk (`flush.messages`) a method returns after all its work is done: the response is final and the
markers of a decided transaction are written. If a sync has to be awaited the response is a future: nothing is reported
or started before the records that it depends on are durable, and other requests for the same id get
CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...storage.log import results
from ..clock import Clock, Timer
from ..errors import Refused, code_of
from ..futures import Responses, on_settled
from ..groups.records import partition_for
from ..groups.registry import Readiness
from ..groups.settings import WRITE_ERRORS
from ..logs import get_logger
from . import records
from .settings import TransactionSettings
from .state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    AddPartitions,
    Allocate,
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
    Response,
    Slot,
    TimeOut,
    Transaction,
    VerifyPartitions,
    WriteMarkers,
)
from .table import advance, due_ms, states_moved_by

RETRY_MS = 1000
"""Delay before a marker that failed is written again; the check for timeouts retries it as well."""

LONGEST_RETRY_MS = 3_600_000
"""Longest delay between two tries while the clock is advanced."""

SWEEP_SIZE = 200
"""Number of ids that a periodic check handles before it yields to the event loop."""

# Errors after which a partition needs no marker: it is deleted, its format has no markers, or another transaction of
# the producer has replaced this one.
_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


Submitted = results.Appended | asyncio.Future[results.Appended]


AppendRecords: TypeAlias = Callable[[int, list[records.Record], int], Submitted]
"""Writes records to a partition of `__transaction_state`: its index, the records, the time in ms.

A future completes with the sync that has to be awaited, and may return another future. An exception, also of a future,
means that the records may be lost.
"""
WriteMarker: TypeAlias = Callable[[Partition, WriteMarkers, int], Submitted]
"""Writes a transaction marker to one partition at a time in ms; result and errors as for `AppendRecords`."""


@frozen
class MarkerWriter:
    """Writes transaction markers to partitions.

    `on_written` receives each marker that is as durable as its topic requires, or whose partition is deleted.
    """

    write: WriteMarker
    on_written: Callable[[Partition, WriteMarkers], None] | None = None


@dataclass(slots=True, eq=False)
class Marking:
    """The markers of one decided transaction, since `since_ms`.

    `left` are the partitions without a confirmed marker, `waiting` those of them with a sync in progress. `tried_ms` is
    the time of the last try.
    """

    markers: WriteMarkers
    left: dict[Partition, None]
    since_ms: int
    tried_ms: int
    waiting: set[Partition] = field(default_factory=set[Partition])
    timer: Timer | None = None
    is_logged: bool = False

    @property
    def due_ms(self) -> int | None:
        """When a clock move should retry failed markers: at the next check, and with growing delays, because the
        passing of time does not repair a marker.
        """
        if len(self.waiting) == len(self.left):
            return None
        return self.tried_ms + min(self.tried_ms - self.since_ms, LONGEST_RETRY_MS)


@dataclass(slots=True, eq=False)
class Entry:
    """A transactional id with its log partition and its markers in progress."""

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
        """`partitions` is the partition count of `__transaction_state`; `allocate` returns a new producer id, given the
        time in ms; `offsets_partition` returns the partition of a group's offsets. Failed markers are retried by
        `waits`: the machine's clock, if `clock` is a different one.
        """
        self.settings = settings or TransactionSettings()
        self.partitions = partitions
        self._append = append
        self._markers = markers
        self._allocate = allocate
        self._offsets_partition = offsets_partition
        self._clock = clock
        self._waits = waits or clock
        self._leads: Callable[[int], bool] | None = None
        self._whole = self  # also in what `at_node` returns: steps after the request are made here
        self._entries: dict[str, Entry] = {}
        self._readiness: dict[int, Readiness] = {}
        self._active = True
        self._responses: Responses[Response] = Responses()
        self._sweeps: dict[type, Timer] = {}

    def at_node(self, leads: Callable[[int], bool]) -> TransactionCoordinator:
        """Returns this coordinator as a request to one node sees it: ids outside the partitions of the log that the
        node `leads` get NOT_COORDINATOR. Needed with several nodes, and before `__transaction_state` exists. Not to be
        kept after the request: it does not see what is assigned to the coordinator later.
        """
        seen = copy.copy(self)
        seen._leads = leads
        return seen

    # --- start, load and close -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the periodic checks for timed-out transactions and for expired ids."""
        every = self._clock.call_every
        self._sweeps[TimeOut] = every(self.settings.time_out_interval_ms, self.time_out, partial(self._due_ms, TimeOut))
        self._sweeps[Expire] = every(self.settings.expiration_interval_ms, self.expire, partial(self._due_ms, Expire))

    def close(self) -> None:
        """Stops all timers and responds to delayed requests with COORDINATOR_NOT_AVAILABLE. Decided transactions are
        completed after the next start.
        """
        self._active = False
        for timer in self._sweeps.values():
            timer.cancel()
        for entry in list(self._entries.values()):
            self._dismiss(entry, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def resign(self, partition_index: int) -> None:
        """Removes the ids of a partition whose log went offline; their clients get NOT_COORDINATOR."""
        self._readiness[partition_index] = Readiness.RESIGNED
        for entry in self._of(partition_index):
            self._dismiss(entry, ErrorCode.NOT_COORDINATOR)

    def has_resigned(self, transactional_id: str) -> bool:
        """Returns whether this coordinator resigned from the id's partition."""
        return self._readiness.get(self.partition_of(transactional_id)) is Readiness.RESIGNED

    def begin_loading(self, partition_index: int) -> None:
        """Makes the ids of this partition respond with COORDINATOR_LOAD_IN_PROGRESS until `load`."""
        self._readiness[partition_index] = Readiness.LOADING

    def load(self, partition_index: int, log: Iterable[records.Record]) -> ErrorCode:
        """Restores ids from the partition's log, oldest record first, and completes decided transactions.

        Returns the error code if the log cannot be read; the ids of the partition are then unavailable.
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
        """Returns the partition of `__transaction_state` for the id: the one it was loaded from, or the one it belongs
        to.
        """
        entry = self._entries.get(transactional_id)
        return entry.partition_index if entry is not None else partition_for(transactional_id, self.partitions)

    def _of(self, partition_index: int) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.partition_index == partition_index]

    def _dismiss(self, entry: Entry, error: ErrorCode) -> None:
        del self._entries[entry.slot.transactional_id]
        self._end_marking(entry)
        writing = entry.slot.writing
        if writing is not None and writing.token is not None:
            self._responses.respond(writing.token, Response(error))

    def _unavailable(self, transactional_id: str) -> ErrorCode:
        """Returns why the id cannot be served now, or NONE. NONE also for an empty id, which `table` refuses."""
        if transactional_id and not self._is_led(transactional_id):
            return ErrorCode.NOT_COORDINATOR
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        readiness = self._readiness.get(self.partition_of(transactional_id)) if self._readiness else None
        return readiness.value if readiness is not None and transactional_id else ErrorCode.NONE

    def _is_led(self, transactional_id: str) -> bool:
        return self._leads is None or self._leads(self.partition_of(transactional_id))

    # --- requests ------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> Response | asyncio.Future[Response]:
        """InitProducerId with a transactional id. `two_phase` and `keep_prepared` are the fields of KIP-939, of which
        Apache Kafka has only the first part: prepared transactions cannot be kept. As there, these fields and the
        timeout are checked before the coordinator of the id.
        """
        if transactional_id:
            if two_phase and not self.settings.two_phase:
                return Response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if keep_prepared:
                return Response(ErrorCode.UNSUPPORTED_VERSION)
            if not two_phase and not 0 < timeout_ms <= self.settings.max_timeout_ms:
                return Response(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return self._request(
            transactional_id,
            lambda token: InitProducerId(token, timeout_ms, producer_id, producer_epoch, two_phase=two_phase),
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        *,
        client_version: int,
    ) -> Response | asyncio.Future[Response]:
        """AddPartitionsToTxn. The caller has checked that the partitions exist."""
        added = tuple(partitions)
        return self._request(
            transactional_id, lambda token: AddPartitions(token, producer_id, producer_epoch, added, client_version)
        )

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, *, client_version: int
    ) -> Response | asyncio.Future[Response]:
        """AddOffsetsToTxn: adds the partition of `__consumer_offsets` for the group."""
        partition = self._offsets_partition(group_id)
        return self.add_partitions(
            transactional_id, producer_id, producer_epoch, [partition], client_version=client_version
        )

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, committed: bool, client_version: int
    ) -> Response | asyncio.Future[Response]:
        """EndTxn. The response is available when the decision is durable; the markers follow."""
        return self._request(
            transactional_id, lambda token: EndTxn(token, producer_id, producer_epoch, committed, client_version)
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[Partition]
    ) -> Response:
        """Checks that the open transaction contains these partitions (KIP-890); `missing` are those that it does not
        contain.
        """
        held = tuple(partitions)
        response = self._request(
            transactional_id, lambda token: VerifyPartitions(token, producer_id, producer_epoch, held)
        )
        assert isinstance(response, Response)
        return response

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """DescribeTransactions for one id: the state in the log, without the partitions that already have their
        marker.
        """
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
        """ListTransactions: an error code, the unknown names in `states`, and the transactions that pass the filters of
        `listing.listed`.
        """
        from .listing import listed  # rarely needed, and never at startup

        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, [], []
        if Readiness.LOADING in self._readiness.values():
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        settled = [
            entry.slot.settled
            for transactional_id, entry in self._entries.items()
            if entry.slot.settled is not None and self._is_led(transactional_id)
        ]
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

    def _request(self, transactional_id: str, request: Callable[[int], Request]) -> Response | asyncio.Future[Response]:
        error = self._unavailable(transactional_id)
        if error is not ErrorCode.NONE:
            return Response(error)
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = Entry(Slot(transactional_id), self.partition_of(transactional_id))
            self._entries[transactional_id] = entry
        token = self._responses.token()
        try:
            self._feed(entry, request(token))
        finally:
            # Removes an id that only a refused request created, so that clients cannot fill the memory with ids.
            if entry.slot.settled is None and not entry.slot.pending and self._is_current(entry):
                del self._entries[transactional_id]
        return self._responses.take(token)

    # --- periodic checks -----------------------------------------------------------------------------------------

    def time_out(self) -> None:
        """Aborts transactions that exceed their timeout, and retries failed writes."""
        self._sweep(TimeOut())

    def expire(self) -> None:
        """Removes the ids that were unused for `transactional.id.expiration.ms`."""
        self._sweep(Expire())

    def _sweep(self, event: TimeOut | Expire) -> None:
        states = states_moved_by(type(event))
        self._sweep_from(event, [entry for entry in self._entries.values() if entry.slot.state in states], 0)

    def _sweep_from(self, event: TimeOut | Expire, entries: Sequence[Entry], first: int) -> None:
        """Handles one slice of the ids, then yields to the event loop before the next slice."""
        for entry in entries[first : first + SWEEP_SIZE]:
            if self._is_current(entry):
                self._feed(entry, event)
                self._mark_again(entry)
        first += SWEEP_SIZE
        if first < len(entries) and self._active:
            self._clock.call_at(self._clock.now_ms(), self._sweep_from, event, entries, first)

    def _due_ms(self, which: type[TimeOut] | type[Expire]) -> int | None:
        """Returns the time at which the check next has an effect if nothing changes, or None."""
        found = [due_ms(entry.slot, which, self.settings) for entry in self._entries.values()]
        if which is TimeOut:
            found += [entry.marking.due_ms for entry in self._entries.values() if entry.marking is not None]
        return min((when_ms for when_ms in found if when_ms is not None), default=None)

    # --- running the table ---------------------------------------------------------------------------------------

    def _is_current(self, entry: Entry) -> bool:
        """Returns whether this entry is still the one of its id: an outcome may arrive after the id was removed or
        reloaded.
        """
        return self._entries.get(entry.slot.transactional_id) is entry

    def _feed(self, entry: Entry, event: Event) -> None:
        """Applies the event and carries out its effects; immediate outcomes are fed in order."""
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
            self._responses.respond(effect.token, effect.response)
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

    def _with_producer_id(self, request: InitProducerId | EndTxn | TimeOut) -> Event | None:
        try:
            producer_id = self._allocate(self._clock.now_ms())
        except Exception as error:
            if not isinstance(request, TimeOut):  # the next check tries again
                self._responses.respond(request.token, Response(self._write_error(error)))
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
            on_settled(submitted, partial(self._whole._record_settled, entry, write))
            return None
        return Appended(write)

    def _record_settled(self, entry: Entry, write: Append, error: BaseException | None) -> None:
        settled = Appended(write) if error is None else AppendFailed(write, self._write_error(error))
        if self._is_current(entry):
            self._feed(entry, settled)

    # --- markers -------------------------------------------------------------------------------------------------

    def _mark(self, entry: Entry) -> MarkersWritten | None:
        """Writes the remaining markers; failed ones are retried later."""
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
                on_settled(submitted, partial(self._whole._marker_settled_later, entry, marking, partition))
            else:
                self._marker_settled(marking, partition, None)
        return self._marked_all(entry)

    def _marked_all(self, entry: Entry) -> MarkersWritten | None:
        """Returns the event to feed if no marker is left; otherwise schedules a retry of failed markers."""
        marking = entry.marking
        assert marking is not None
        if not marking.left:
            self._end_marking(entry)
            return MarkersWritten(marking.markers)
        if len(marking.waiting) < len(marking.left) and marking.timer is None:
            when_ms = self._waits.now_ms() + RETRY_MS
            marking.timer = self._waits.call_at(when_ms, self._whole._retry_due, entry, marking)
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
        """Handles the outcome of writing one marker."""
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
        elif marking.is_logged:  # logged once; it is retried every second
            return
        else:
            marking.is_logged = True
        get_logger().warning(
            "transaction marker refused" if code in _FENCED else "transaction marker not written, will be retried",
            transactional_id=marking.markers.transactional_id,
            producer_id=marking.markers.producer_id,
            topic=partition[0],
            partition=partition[1],
            reason=str(error),
        )


def _loaded(log: Iterable[records.Record]) -> list[Transaction]:
    """Returns the last record of each id. Raises MalformedMessage, and the errors of reading the log."""
    newest: dict[bytes, bytes | None] = {}
    for key, value in log:
        newest.pop(key, None)  # keeps the order of the last records
        newest[key] = value
    entries = [records.decode(key, value) for key, value in newest.items()]
    return [entry.transaction for entry in entries if entry is not None and entry.transaction is not None]
