"""The transactions of a producer: performs the effects of `state_machine.py`.

Owns the requests to coordinators with their retries, and the waits of commit and abort. A request continues in the
background after its caller has timed out: the same call made again waits for the same result.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ....protocol.errors import ErrorCode
from ...consumer.group_offsets import GroupMetadata, OffsetAndMetadata
from ...consumer.list_offsets import TopicPartition
from ...net.cluster import TRANSACTION
from ...net.connection import Connection
from ...net.errors import (
    ClientClosed,
    ClientError,
    ConnectionLost,
    InvalidTransactionState,
    KafkaError,
    ProducerFailed,
    TransactionAborted,
    TransactionFailed,
    TransactionsUnsupported,
    TransactionUnsettled,
    UnsupportedVersion,
)
from ..accumulator import Batch, PartitionQueue
from ..responses import COPIES_LIVE_S, SOON_S
from . import requests as calls
from .state_machine import (
    Abort,
    Added,
    AddPartitions,
    Adopt,
    Begin,
    Call,
    Commit,
    Doom,
    Drain,
    Drained,
    DropUnsent,
    End,
    Fail,
    GroupAdded,
    Initialize,
    RequestProducerId,
    Rewind,
    Settle,
    State,
    Take,
    TransactionStatus,
    Trouble,
    Use,
    UseGroup,
    Verdict,
    Wake,
    advance,
    fatal,
    judge,
)

if TYPE_CHECKING:
    from ..sender_state import SenderState

__all__ = ["Transactions"]

_RETRIED = (Verdict.AGAIN, Verdict.SOON, Verdict.MOVED)
_SENDING = (State.OPEN, State.COMMITTING)
_FAILING = (State.FAILED, State.ABORTING)
_Request = Callable[[Connection], Awaitable[tuple[int, Any]]]


class Transactions:
    """The transactions of one sender. `status` is their state."""

    def __init__(self, sender: SenderState, transactional_id: str) -> None:
        self.status = TransactionStatus()
        self.transactional_id = transactional_id
        self._sender = sender
        self._cluster = sender.cluster
        self._block_s = sender.options.max_block_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._events: deque[Any] = deque()
        self._is_processing = False
        self._number = 0
        self._moved = asyncio.Event()
        self._is_adding = False
        self._offset_tasks: set[asyncio.Task[None]] = set()
        self._acked: dict[PartitionQueue, int] = {}  # newest acknowledged offsets before this transaction
        self._settling: asyncio.Future[ClientError | None] = self._loop.create_future()
        self._unreported: type | None = None  # the call whose result was not returned to the application yet
        self._lost_s = float("-inf")  # time of the last lost request whose late copy would do harm

    # State machine

    def process(self, event: Any) -> None:
        """Processes an event and performs its effects. Raises InvalidTransactionState or TransactionFailed."""
        self._events.append(event)
        if self._is_processing:  # called by an effect of another event
            return
        self._is_processing = True
        try:
            while self._events:
                self.status, effects = advance(self.status, self._events.popleft())
                for effect in effects:
                    self._PERFORM[type(effect)](self, effect)
        finally:
            self._is_processing = False
            self._events.clear()
            self._moved.set()

    # Calls of the sender

    @property
    def resends_always(self) -> bool:
        """Whether a batch of a failing transaction is retried after a retriable error."""
        return self.status.resends_always

    @property
    def is_failing(self) -> bool:
        """Whether the transaction can no longer be committed."""
        return self.status.state in _FAILING

    @property
    def owner(self) -> tuple[int, int]:
        """The producer id and epoch."""
        return self.status.producer_id, self.status.epoch

    def may_send(self, queue: PartitionQueue) -> bool:
        """Returns whether batches of a partition may be sent; otherwise starts adding the partition."""
        if self.status.state in _SENDING:
            where = queue.topic, queue.index
            if where not in self.status.added:
                if queue not in self._acked:
                    self._acked[queue] = -1 if queue.sequences is None else queue.sequences.last_acked_offset
                self.process(Use(where))
            return where in self.status.added
        return self.is_failing and self.status.resends_always and not queue.waiting

    def failed(self, batch: Batch, error: BaseException) -> None:
        """Handles a failed batch."""
        if self.status.state not in (*_SENDING, *_FAILING):
            return
        cause = error if isinstance(error, ClientError) else ClientError(str(error))
        is_refused = not batch.attempts and isinstance(error, KafkaError) and not error.retriable
        sequences = batch.queue.sequences
        is_definite = is_refused or (sequences is not None and sequences.restarting)
        self.process(Trouble(cause, is_sequenced=batch.base_sequence >= 0, is_definite=is_definite))

    def needs_new_start(self, queue: PartitionQueue) -> None:
        """Fails the transaction if a partition needs a new start of its sequences."""
        text = f"{queue.topic}-{queue.index}: the sequences of the producer must start again from 0"
        self.process(Trouble(TransactionAborted(text), is_sequenced=True))

    def covers(self, queue: PartitionQueue) -> bool:
        """Returns whether the newest acknowledged record of a partition is part of this transaction."""
        sequences = queue.sequences
        return sequences is not None and sequences.last_acked_offset > self._acked.get(queue, -1)

    def on_responses(self) -> None:
        """Handles the end of Produce requests, by a response or a lost connection."""
        if self.is_failing:
            self._drop()
            self._moved.set()

    # Calls of the application

    def ticket(self) -> int:
        """Returns the number of the open transaction, for a record. Raises InvalidTransactionState without one."""
        state = self.status.state
        if state is State.OPEN:
            return self._number
        if state is State.FAILED:
            error = TransactionFailed(f"the transaction can only be aborted: {self.status.error}")
            raise error from self.status.error
        raise InvalidTransactionState(f"a record needs an open transaction: the producer {state.value}")

    def refuses(self, ticket: int) -> ClientError | None:
        """Returns the error if a record can no longer be sent after a wait, or None."""
        try:
            if self.ticket() == ticket:
                return None
        except ClientError as error:
            return error
        return InvalidTransactionState("the transaction of the record has ended")

    async def init(self) -> None:
        """Requests a producer id, unless there is one."""
        self._check_alive()
        if self.status.state is State.NEW:
            self._start(Initialize())
        if self.status.state is State.INITIALIZING:
            await self._settled("InitProducerId")

    async def begin(self) -> None:
        """Opens a transaction, after `init`."""
        await self.init()
        self._check_alive()
        self.process(Begin())
        self._number += 1
        self._unreported = None
        self._acked.clear()

    async def commit(self) -> None:
        """Sends all records, and requests the commit."""
        if self._unreported is not Commit:
            self._start(Commit())
        await self._settled("the commit")

    async def abort(self) -> None:
        """Drops unsent records, and requests the abort."""
        if self._unreported is not Abort:
            self._start(Abort())
        await self._settled("the abort")

    def _check_alive(self) -> None:
        if self._sender.failure is not None:
            raise self._sender.failed()

    def _start(self, call: Any) -> None:
        self._check_alive()
        before = self._settling
        self._settling = self._loop.create_future()
        try:
            self.process(call)
        except ClientError:
            self._settling = before
            raise
        if not before.done():
            before.set_result(InvalidTransactionState("the transaction is being aborted"))
        self._unreported = type(call)

    async def _settled(self, what: str) -> None:
        settling = self._settling
        try:
            async with asyncio.timeout(self._block_s):
                error = await asyncio.shield(settling)
        except TimeoutError:
            raise TransactionUnsettled(
                f"no result of {what} within max.block.ms: the same call may be made again"
            ) from None
        if settling is self._settling:
            self._unreported = None
        if error is None:
            return
        if isinstance(error, ProducerFailed | InvalidTransactionState | ClientClosed):
            raise error
        raise TransactionFailed(f"the transaction cannot be committed, only aborted: {error}") from error

    async def finish(self) -> None:
        """Aborts an open transaction, or waits for its end, before the producer is closed."""
        state = self.status.state
        if state in (State.OPEN, State.FAILED):
            await self.abort()
        elif state in (State.COMMITTING, State.ABORTING):
            await self._settled("the end of the transaction")

    def close(self) -> None:
        """Fails the waiting call."""
        if not self._settling.done():
            self._settling.set_result(ClientClosed("the producer is closed"))

    # Effects

    def _request_producer_id(self, effect: RequestProducerId) -> None:
        self._sender.task(self._init(effect))

    def _add_partitions(self, effect: AddPartitions) -> None:
        if not self._is_adding:
            self._is_adding = True
            self._sender.task(self._add())

    def _drop_unsent(self, effect: DropUnsent) -> None:
        self._drop()

    def _drop(self) -> None:
        """Fails batches not in flight; keeps sent ones that must be retried (rule 5)."""
        reason = str(self.status.error or "the transaction is being aborted")
        self._sender.drop(lambda: TransactionAborted(reason), keep_sent=self.status.resends_always)

    def _drain(self, effect: Drain) -> None:
        if effect.is_aborting:
            self._drop()  # at once, so that no new batch is sent
        self._sender.task(self._drained_abort() if effect.is_aborting else self._drained_commit())

    def _end(self, effect: End) -> None:
        self._sender.task(self._ended(effect.is_commit))

    def _adopt(self, effect: Adopt) -> None:
        self._sender.producer_ids.add(self.status.producer_id)
        for queue in self._sender.accumulator.queues.values():
            queue.sequences = None

    def _rewind(self, effect: Rewind) -> None:
        for queue in self._sender.accumulator.queues.values():
            if queue.sequences is not None:
                queue.sequences.rewind()

    def _wake(self, effect: Wake) -> None:
        self._sender.wake()

    def _settle(self, effect: Settle) -> None:
        if not self._settling.done():
            self._settling.set_result(effect.error)

    def _fail(self, effect: Fail) -> None:
        self._sender.fail(effect.error)

    # Requests

    async def _call(self, call: Call, send: _Request, is_wanted: Callable[[], bool] = lambda: True) -> Any:
        """Sends a request to the coordinator until a decisive response, or until `is_wanted` is false.

        Returns the result of `send`; None after a failure, which is processed as an event.
        """
        attempt = 0
        while is_wanted():
            verdict = Verdict.AGAIN
            try:
                code, found = await send(await self._cluster.coordinator(self.transactional_id, TRANSACTION))
                verdict = judge(self.status, call, code)
                if verdict is Verdict.DONE:
                    return found
                if verdict not in _RETRIED:
                    self._refused(call, verdict, code)
                    return None
                if verdict is Verdict.MOVED:
                    self._cluster.expire_coordinator(self.transactional_id, TRANSACTION)
            except ClientClosed:
                return None
            except ClientError as error:
                if not error.retriable:
                    self._broken(call, error)
                    return None
                if isinstance(error, ConnectionLost):
                    self._cluster.expire_coordinator(self.transactional_id, TRANSACTION)
                    self._note_lost(call)
            attempt += 1
            await asyncio.sleep(self._delay_s(verdict, attempt))
        return None

    def _note_lost(self, call: Call) -> None:
        """Notes a lost request whose late copy would do harm; in the second version a new epoch fences it."""
        if call is Call.INIT or not self.status.is_v2:
            self._lost_s = self._loop.time()

    async def _copies_dead(self) -> None:
        """Waits until copies of lost requests have expired: they could begin, extend or end the next transaction."""
        await asyncio.sleep(max(0.0, self._lost_s + COPIES_LIVE_S - self._loop.time()))

    def _delay_s(self, verdict: Verdict, attempt: int) -> float:
        delay_s = self._cluster.retry_backoff_s(attempt)
        return min(delay_s, SOON_S * 2 ** min(attempt - 1, 10)) if verdict is Verdict.SOON else delay_s

    def _refused(self, call: Call, verdict: Verdict, code: int) -> None:
        if verdict is Verdict.FATAL:
            self.process(Doom(fatal(call, code, self.transactional_id)))
        else:
            self.process(Trouble(KafkaError(code, call.value), is_unknown=verdict is Verdict.UNKNOWN))

    def _broken(self, call: Call, error: ClientError) -> None:
        """Handles a fatal error before or instead of a coordinator's response."""
        if isinstance(error, UnsupportedVersion):
            failure: ProducerFailed = TransactionsUnsupported(f"the broker has no transactions: {error}")
        elif isinstance(error, KafkaError):
            failure = fatal(call, error.code, self.transactional_id)
        else:
            failure = ProducerFailed(f"{call.value}: {error}")
        failure.__cause__ = error
        self.process(Doom(failure))

    async def _init(self, effect: RequestProducerId) -> None:
        async def send(connection: Connection) -> tuple[int, Any]:
            timeout_ms = self._sender.options.transaction_timeout_ms
            return await calls.init(connection, self.transactional_id, timeout_ms, effect.producer_id, effect.epoch)

        found = await self._call(Call.INIT, send)
        if found is not None:
            await self._copies_dead()
            self.process(found)

    async def _add(self) -> None:
        async def send(connection: Connection) -> tuple[int, Any]:
            self.process(Take())
            wanted = self.status.adding
            codes = await calls.add_partitions(connection, self.transactional_id, self.status, wanted)
            done = frozenset(where for where in wanted if codes.get(where) == ErrorCode.NONE)
            if done:
                self.process(Added(done))
            return calls.worst(codes.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE) for where in wanted), done

        def is_wanted() -> bool:
            return self.status.state in _SENDING and bool(self.status.waiting or self.status.adding)

        try:
            while is_wanted() and await self._call(Call.ADD, send, is_wanted) is not None:
                pass
        finally:
            self._is_adding = False
            self._moved.set()

    async def _drained_commit(self) -> None:
        number = self._number
        while self._offset_tasks:
            await asyncio.wait(list(self._offset_tasks))
        await self._sender.flush()
        await self._copies_dead()
        if number == self._number:  # otherwise it was aborted: this is the drain of an earlier transaction
            self.process(Drained(is_aborting=False))

    async def _drained_abort(self) -> None:
        while self._is_adding or self._offset_tasks or self._has_in_flight():
            self._moved.clear()
            await self._moved.wait()
        if not self.status.is_v2:
            queues = self._sender.accumulator.queues.values()
            self._lost_s = max([self._lost_s, *(queue.lost_s for queue in queues)])
        await self._copies_dead()
        self.process(Drained(is_aborting=True))

    def _has_in_flight(self) -> bool:
        found = [queue.sequences for queue in self._sender.accumulator.queues.values()]
        keeps = self.status.resends_always
        return any(one is not None and (one.in_flight or (keeps and one.unfinished)) for one in found)

    async def _ended(self, is_commit: bool) -> None:
        async def send(connection: Connection) -> tuple[int, Any]:
            return await calls.end(connection, self.transactional_id, self.status, is_commit=is_commit)

        found = await self._call(Call.COMMIT if is_commit else Call.ABORT, send)
        if found is not None:
            await self._copies_dead()
            self.process(found)

    # Offsets of a group

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commits offsets as part of the transaction."""
        self._check_alive()
        self.ticket()
        if not offsets:
            return
        task = self._loop.create_task(self._send_offsets(dict(offsets), group))
        self._offset_tasks.add(task)
        task.add_done_callback(self._offsets_sent)
        # A cancelled caller does not remove the offsets from the transaction.
        await asyncio.shield(task)

    def _offsets_sent(self, task: asyncio.Task[None]) -> None:
        self._offset_tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marked as retrieved: the caller may be gone
        self._moved.set()

    async def _send_offsets(self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        deadline_s = self._loop.time() + self._block_s
        self.process(UseGroup())
        if not self.status.is_v2 and group.group not in self.status.groups:

            async def send(connection: Connection) -> tuple[int, Any]:
                return await calls.add_offsets(connection, self.transactional_id, self.status, group.group), True

            def is_wanted() -> bool:
                return self.status.state in _SENDING and self._loop.time() < deadline_s

            if await self._call(Call.OFFSETS, send, is_wanted) is None:
                self._fail_late()
                raise self._error_now()
            self.process(GroupAdded(group.group))
        try:
            await self._commit_offsets(offsets, group, deadline_s)
        except ClientError as error:
            self.process(Trouble(error))
            raise

    def _fail_late(self) -> None:
        if self.status.state in _SENDING:
            self.process(Trouble(KafkaError(ErrorCode.REQUEST_TIMED_OUT, Call.OFFSETS.value)))

    def _error_now(self) -> ClientError:
        error = self.status.error or TransactionAborted("the transaction is being aborted")
        if isinstance(error, ProducerFailed):
            return error
        failed = TransactionFailed(f"the transaction can only be aborted: {error}")
        failed.__cause__ = error
        return failed

    async def _commit_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline_s: float
    ) -> None:
        """Sends TxnOffsetCommit to the group's coordinator until all offsets are committed. Raises fatal errors."""
        attempt = 0
        while self.status.state in _SENDING:
            verdict = Verdict.AGAIN
            try:
                connection = await self._cluster.coordinator(group.group, timeout_s=deadline_s - self._loop.time())
                results = await calls.commit_offsets(connection, self.transactional_id, self.status, group, offsets)
                codes = {where: results.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE) for where in offsets}
                code = calls.worst(codes.values())
                verdict = judge(self.status, Call.OFFSETS, code)
                if verdict is Verdict.DONE:
                    return
                error: ClientError = KafkaError(code, f"offsets of group {group.group!r}")
                if verdict is Verdict.FATAL:
                    self._refused(Call.OFFSETS, verdict, code)
                    error = self.status.error or error
                if verdict not in _RETRIED:
                    raise error
                if verdict is Verdict.MOVED:
                    self._cluster.expire_coordinator(group.group)
                offsets = {where: offsets[where] for where, one in codes.items() if one}
            except ClientError as met:
                if not met.retriable:
                    raise
                error = met
                if isinstance(met, ConnectionLost):
                    self._cluster.expire_coordinator(group.group)
                    self._note_lost(Call.OFFSETS)
            attempt += 1
            delay_s = self._delay_s(verdict, attempt)
            if self._loop.time() + delay_s >= deadline_s:
                raise error
            await asyncio.sleep(delay_s)
        raise self._error_now()

    _PERFORM: ClassVar[dict[type, Callable[[Transactions, Any], None]]] = {
        RequestProducerId: _request_producer_id,
        AddPartitions: _add_partitions,
        DropUnsent: _drop_unsent,
        Drain: _drain,
        End: _end,
        Adopt: _adopt,
        Rewind: _rewind,
        Wake: _wake,
        Settle: _settle,
        Fail: _fail,
    }
