"""The transactions of a producer: performs the effects of `state_machine.py`.

Owns the requests to coordinators with their retries, and the waits of commit and abort. A request continues in the
background after its caller has timed out: the same call made again waits for the same result.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ....protocol.errors import ErrorCode
from ...consumer.group_offsets import GroupMetadata, OffsetAndMetadata
from ...consumer.list_offsets import TopicPartition
from ...net.cluster import GROUP, TRANSACTION
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
from ...net.threads import mark_retrieved
from ..accumulator import Batch, PartitionQueue
from ..sender_state import SenderState
from . import requests as calls
from . import state_machine as machine
from .coordinator_calls import COPIES_LIVE_S, Refused, Request, until_decided
from .state_machine import Call, Effect, Event, State, Verdict

_log = logging.getLogger("ottla.client")
_SENDING = (State.OPEN, State.COMMITTING)
_FAILING = (State.FAILED, State.ABORTING)


class Transactions:
    """The transactions of one sender. `status` is their state."""

    def __init__(self, sender: SenderState, transactional_id: str) -> None:
        self.status = machine.TransactionStatus()
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
        self._unreported: Event | None = None  # the call whose result was not returned to the application yet
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
                self.status, effects = machine.advance(self.status, self._events.popleft())
                for effect in effects:
                    self._perform(effect)
        finally:
            self._is_processing = False
            self._events.clear()
            self._moved.set()

    # Calls of the sender

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
                self.process(machine.Use(where))
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
        self.process(machine.Trouble(cause, is_sequenced=batch.base_sequence >= 0, is_definite=is_definite))

    def needs_new_start(self, queue: PartitionQueue) -> None:
        """Fails the transaction if a partition needs a new start of its sequences."""
        text = f"{queue.topic}-{queue.index}: the sequences of the producer must start again from 0"
        self.process(machine.Trouble(TransactionAborted(text), is_sequenced=True))

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
            self._start(Event.INITIALIZE)
        if self.status.state is State.INITIALIZING:
            await self._settled("InitProducerId")

    async def begin(self) -> None:
        """Opens a transaction, after `init`."""
        await self.init()
        self._check_alive()
        self.process(Event.BEGIN)
        self._number += 1
        self._unreported = None
        self._acked.clear()

    async def commit(self) -> None:
        """Sends all records, and requests the commit."""
        if self._unreported is not Event.COMMIT:
            self._start(Event.COMMIT)
        await self._settled("the commit")

    async def abort(self) -> None:
        """Drops unsent records, and requests the abort."""
        if self._unreported is not Event.ABORT:
            self._start(Event.ABORT)
        await self._settled("the abort")

    def _check_alive(self) -> None:
        if self._sender.failure is not None:
            raise self._sender.failed()

    def _start(self, call: Event) -> None:
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
        self._unreported = call

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
        """Aborts an open transaction, or waits for its end, before the producer is closed. A failure is logged."""
        state = self.status.state
        try:
            if state in (State.OPEN, State.FAILED):
                await self.abort()
            elif state in (State.COMMITTING, State.ABORTING):
                await self._settled("the end of the transaction")
        except ClientError as error:
            text = "transactional id %s: transaction not ended before the close: %s"
            _log.warning(text, self.transactional_id, error)

    def close(self) -> None:
        """Fails the waiting call."""
        if not self._settling.done():
            self._settling.set_result(ClientClosed("the producer is closed"))

    # Effects

    def _perform(self, effect: Any) -> None:
        sender = self._sender
        queues = sender.accumulator.queues.values()
        match effect:
            case machine.RequestProducerId():
                sender.task(self._init(effect))
            case Effect.ADD_PARTITIONS:
                if not self._is_adding:
                    self._is_adding = True
                    sender.task(self._add())
            case Effect.DROP_UNSENT:
                self._drop()
            case machine.Drain(is_aborting=True):
                self._drop()  # at once, so that no new batch is sent
                sender.task(self._drained_abort())
            case machine.Drain():
                sender.task(self._drained_commit())
            case machine.End():
                sender.task(self._ended(effect.is_commit))
            case Effect.ADOPT:
                sender.producer_ids.add(self.status.producer_id)
                for queue in queues:
                    queue.sequences = None
            case Effect.REWIND:
                for queue in queues:
                    if queue.sequences is not None:
                        queue.sequences.rewind()
            case Effect.WAKE:
                sender.wake()
            case machine.Settle():
                if not self._settling.done():
                    self._settling.set_result(effect.error)
            case machine.Fail():
                sender.fail(effect.error)
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    def _drop(self) -> None:
        """Fails batches not in flight; keeps sent ones that must be retried (rule 5)."""
        reason = str(self.status.error or "the transaction is being aborted")
        self._sender.drop(lambda: TransactionAborted(reason), keep_sent=self.status.resends_always)

    # Requests

    async def _call(self, call: Call, send: Request, is_wanted: Callable[[], bool] = lambda: True) -> Any:
        """Sends a request to the coordinator until a decisive response, or until `is_wanted` is false.

        Returns the result of `send`; None after a failure, which is processed as an event.
        """
        key = self.transactional_id, TRANSACTION
        lost = partial(self._note_lost, call)
        try:
            return await until_decided(
                self._cluster, key, send, self._judge(call), what=call.value, is_wanted=is_wanted, on_retry=lost
            )
        except Refused as refused:
            self._refused(call, refused.verdict, refused.code)
        except ClientClosed:
            pass
        except ClientError as error:
            self._broken(call, error)
        return None

    def _judge(self, call: Call) -> Callable[[int], Verdict]:
        return lambda code: machine.judge(self.status, call, code)

    def _note_lost(self, call: Call, error: ClientError) -> None:
        """Notes a lost request whose late copy would do harm; in the second version a new epoch fences it."""
        if isinstance(error, ConnectionLost) and (call is Call.INIT or not self.status.is_v2):
            self._lost_s = self._loop.time()

    async def _copies_dead(self) -> None:
        """Waits until copies of lost requests have expired: they could begin, extend or end the next transaction."""
        await asyncio.sleep(max(0.0, self._lost_s + COPIES_LIVE_S - self._loop.time()))

    def _refused(self, call: Call, verdict: Verdict, code: int) -> None:
        if verdict is Verdict.FATAL:
            self.process(machine.Doom(machine.fatal(call, code, self.transactional_id)))
        else:
            self.process(machine.Trouble(KafkaError(code, call.value), is_unknown=verdict is Verdict.UNKNOWN))

    def _broken(self, call: Call, error: ClientError) -> None:
        """Handles a fatal error before or instead of a coordinator's response."""
        if isinstance(error, UnsupportedVersion):
            failure: ProducerFailed = TransactionsUnsupported(f"the broker has no transactions: {error}")
        elif isinstance(error, KafkaError):
            failure = machine.fatal(call, error.code, self.transactional_id)
        else:
            failure = ProducerFailed(f"{call.value}: {error}")
        failure.__cause__ = error
        self.process(machine.Doom(failure))

    async def _init(self, effect: machine.RequestProducerId) -> None:
        async def send(connection: Connection) -> tuple[int, Any]:
            timeout_ms = self._sender.options.transaction_timeout_ms
            return await calls.init(connection, self.transactional_id, timeout_ms, effect.producer_id, effect.epoch)

        await self._complete(Call.INIT, send)

    async def _complete(self, call: Call, send: Request) -> None:
        """Sends a request, and processes its result when no copy of a lost request can arrive any more."""
        found = await self._call(call, send)
        if found is not None:
            await self._copies_dead()
            self.process(found)

    async def _add(self) -> None:
        async def send(connection: Connection) -> tuple[int, Any]:
            self.process(Event.TAKE)
            wanted = self.status.adding
            codes = await calls.add_partitions(connection, self.transactional_id, self.status, wanted)
            done = frozenset(where for where in wanted if codes.get(where) == ErrorCode.NONE)
            if done:
                self.process(machine.Added(done))
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
            self.process(machine.Drained(is_aborting=False))

    async def _drained_abort(self) -> None:
        while self._is_adding or self._offset_tasks or self._has_in_flight():
            self._moved.clear()
            await self._moved.wait()
        if not self.status.is_v2:
            queues = self._sender.accumulator.queues.values()
            self._lost_s = max([self._lost_s, *(queue.lost_s for queue in queues)])
        await self._copies_dead()
        self.process(machine.Drained(is_aborting=True))

    def _has_in_flight(self) -> bool:
        found = [queue.sequences for queue in self._sender.accumulator.queues.values()]
        keeps = self.status.resends_always
        return any(one is not None and (one.in_flight or (keeps and one.unfinished)) for one in found)

    async def _ended(self, is_commit: bool) -> None:
        async def send(connection: Connection) -> tuple[int, Any]:
            return await calls.end(connection, self.transactional_id, self.status, is_commit=is_commit)

        await self._complete(Call.COMMIT if is_commit else Call.ABORT, send)

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
        mark_retrieved(task)  # the caller may be gone
        self._moved.set()

    async def _send_offsets(self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        deadline_s = self._loop.time() + self._block_s
        self.process(Event.USE_GROUP)
        if not self.status.is_v2 and group.group not in self.status.groups:

            async def send(connection: Connection) -> tuple[int, Any]:
                return await calls.add_offsets(connection, self.transactional_id, self.status, group.group), True

            def is_wanted() -> bool:
                return self.status.state in _SENDING and self._loop.time() < deadline_s

            if await self._call(Call.OFFSETS, send, is_wanted) is None:
                if self.status.state in _SENDING:  # too late
                    self.process(machine.Trouble(KafkaError(ErrorCode.REQUEST_TIMED_OUT, Call.OFFSETS.value)))
                raise self._error_now()
            self.process(machine.GroupAdded(group.group))
        try:
            await self._commit_offsets(offsets, group, deadline_s)
        except ClientError as error:
            self.process(machine.Trouble(error))
            raise

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
        left = dict(offsets)

        async def send(connection: Connection) -> tuple[int, Any]:
            codes = await calls.commit_offsets(connection, self.transactional_id, self.status, group, left)
            for where in [where for where in left if codes.get(where) == ErrorCode.NONE]:
                del left[where]
            return calls.worst(codes.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE) for where in left), True

        try:
            done = await until_decided(
                self._cluster,
                (group.group, GROUP),
                send,
                self._judge(Call.OFFSETS),
                what=f"offsets of group {group.group!r}",
                deadline_s=deadline_s,
                is_wanted=lambda: self.status.state in _SENDING,
                on_retry=partial(self._note_lost, Call.OFFSETS),
            )
        except Refused as refused:
            error: ClientError = KafkaError(refused.code, f"offsets of group {group.group!r}")
            if refused.verdict is Verdict.FATAL:
                self._refused(Call.OFFSETS, refused.verdict, refused.code)
                error = self.status.error or error
            raise error from error.__cause__
        if done is None:
            raise self._error_now()
