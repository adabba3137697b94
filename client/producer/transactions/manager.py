"""Transactions of a producer as they happen: performs what `state_machine.py` decides.

Owns the requests to coordinators and their retries, who waits for a commit or an abort, and how long. Requests go on in
the background until they are answered, whoever has given up waiting: the same call made again waits for the same.
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
    AskProducerId,
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
    Rewind,
    Settle,
    Standing,
    State,
    Take,
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
_Asked = Callable[[Connection], Awaitable[tuple[int, Any]]]


class Transactions:
    """Those of one sender. `standing` is where its producer is."""

    def __init__(self, sender: SenderState, transactional_id: str) -> None:
        self.standing = Standing()
        self.transactional_id = transactional_id
        self._sender = sender
        self._cluster = sender.cluster
        self._block_s = sender.options.max_block_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._events: deque[Any] = deque()
        self._is_telling = False
        self._number = 0
        self._moved = asyncio.Event()
        self._is_adding = False
        self._offset_tasks: set[asyncio.Task[None]] = set()
        self._acked: dict[PartitionQueue, int] = {}  # the newest acknowledged offset before this transaction
        self._settling: asyncio.Future[ClientError | None] = self._loop.create_future()
        self._unheard: type | None = None  # which call's outcome nobody has been told
        self._lost_s = float("-inf")  # when a request was last lost of which a late copy could do harm

    # -- the table

    def tell(self, event: Any) -> None:
        """Has the table decide, and does what it says. Raises for a call that does not fit."""
        self._events.append(event)
        if self._is_telling:  # an effect of the event before
            return
        self._is_telling = True
        try:
            while self._events:
                self.standing, effects = advance(self.standing, self._events.popleft())
                for effect in effects:
                    self._PERFORM[type(effect)](self, effect)
        finally:
            self._is_telling = False
            self._events.clear()
            self._moved.set()

    # -- what the sender asks and tells

    @property
    def resends_always(self) -> bool:
        """Whether a batch of a transaction that fails is sent again after an error that may pass."""
        return self.standing.resends_always

    @property
    def is_failing(self) -> bool:
        """Whether the transaction cannot be committed any more."""
        return self.standing.state in _FAILING

    @property
    def owner(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self.standing.producer_id, self.standing.epoch

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether batches of a partition may leave; if not yet, it is seen to."""
        if self.standing.state in _SENDING:
            where = queue.topic, queue.index
            if where not in self.standing.added:
                if queue not in self._acked:
                    self._acked[queue] = -1 if queue.sequences is None else queue.sequences.last_acked_offset
                self.tell(Use(where))
            return where in self.standing.added
        return self.is_failing and self.standing.resends_always and not queue.waiting

    def failed(self, batch: Batch, error: BaseException) -> None:
        """A batch has failed, for whatever reason."""
        if self.standing.state not in (*_SENDING, *_FAILING):
            return
        cause = error if isinstance(error, ClientError) else ClientError(str(error))
        is_refused = not batch.attempts and isinstance(error, KafkaError) and not error.retriable
        sequences = batch.queue.sequences
        is_definite = is_refused or (sequences is not None and sequences.restarting)
        self.tell(Trouble(cause, is_sequenced=batch.base_sequence >= 0, is_definite=is_definite))

    def needs_new_start(self, queue: PartitionQueue) -> None:
        """The sequences of a partition do not go on: the broker forgot the producer, or something is missing."""
        text = f"{queue.topic}-{queue.index}: the sequences of the producer have to begin anew"
        self.tell(Trouble(TransactionAborted(text), is_sequenced=True))

    def covers(self, queue: PartitionQueue) -> bool:
        """Whether the newest acknowledged record of a partition is of this transaction."""
        sequences = queue.sequences
        return sequences is not None and sequences.last_acked_offset > self._acked.get(queue, -1)

    def answered(self) -> None:
        """Requests were answered, or their connection has ended."""
        if self.is_failing:
            self._drop()
            self._moved.set()

    # -- what the application asks

    def ticket(self) -> int:
        """What a record is sent with: the number of the open transaction. Raises where there is none."""
        state = self.standing.state
        if state is State.OPEN:
            return self._number
        if state is State.FAILED:
            error = TransactionFailed(f"the transaction cannot go on, only be aborted: {self.standing.error}")
            raise error from self.standing.error
        raise InvalidTransactionState(f"a record is sent within a transaction: the producer {state.value}")

    def refuses(self, ticket: int) -> ClientError | None:
        """Why a record can no longer be sent, after waiting for something; None if it can."""
        try:
            if self.ticket() == ticket:
                return None
        except ClientError as error:
            return error
        return InvalidTransactionState("the transaction of the record has ended")

    async def init(self) -> None:
        """Gets the producer id, unless there is one."""
        self._check_alive()
        if self.standing.state is State.NEW:
            self._start(Initialize())
        if self.standing.state is State.INITIALIZING:
            await self._settled("the producer id")

    async def begin(self) -> None:
        """Opens a transaction, after `init`."""
        await self.init()
        self._check_alive()
        self.tell(Begin())
        self._number += 1
        self._unheard = None
        self._acked.clear()

    async def commit(self) -> None:
        """Sends all, and has the coordinator commit."""
        if self._unheard is not Commit:
            self._start(Commit())
        await self._settled("the commit")

    async def abort(self) -> None:
        """Drops what was not sent, and has the coordinator abort."""
        if self._unheard is not Abort:
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
            self.tell(call)
        except ClientError:
            self._settling = before
            raise
        if not before.done():
            before.set_result(InvalidTransactionState("the transaction is being aborted"))
        self._unheard = type(call)

    async def _settled(self, what: str) -> None:
        settling = self._settling
        try:
            async with asyncio.timeout(self._block_s):
                error = await asyncio.shield(settling)
        except TimeoutError:
            raise TransactionUnsettled(f"{what} was not answered in time: the same call may be made again") from None
        if settling is self._settling:
            self._unheard = None
        if error is None:
            return
        if isinstance(error, ProducerFailed | InvalidTransactionState | ClientClosed):
            raise error
        raise TransactionFailed(f"the transaction cannot be committed, only aborted: {error}") from error

    async def finish(self) -> None:
        """Before the producer is closed: aborts what is open, waits for what is under way."""
        state = self.standing.state
        if state in (State.OPEN, State.FAILED):
            await self.abort()
        elif state in (State.COMMITTING, State.ABORTING):
            await self._settled("the end of the transaction")

    def close(self) -> None:
        """Nothing is asked any more."""
        if not self._settling.done():
            self._settling.set_result(ClientClosed("the producer is closed"))

    # -- effects

    def _ask_producer_id(self, effect: AskProducerId) -> None:
        self._sender.task(self._init(effect))

    def _add_partitions(self, effect: AddPartitions) -> None:
        if not self._is_adding:
            self._is_adding = True
            self._sender.task(self._add())

    def _drop_unsent(self, effect: DropUnsent) -> None:
        self._drop()

    def _drop(self) -> None:
        """What is not in flight fails; what was sent is kept where it has to be sent again (rule 5)."""
        reason = str(self.standing.error or "the transaction is being aborted")
        self._sender.drop(lambda: TransactionAborted(reason), keep_sent=self.standing.resends_always)

    def _drain(self, effect: Drain) -> None:
        if effect.is_aborting:
            self._drop()  # at once: nothing new may leave any more
        self._sender.task(self._drained_abort() if effect.is_aborting else self._drained_commit())

    def _end(self, effect: End) -> None:
        self._sender.task(self._ended(effect.is_commit))

    def _adopt(self, effect: Adopt) -> None:
        self._sender.producer_ids.add(self.standing.producer_id)
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

    # -- requests

    async def _asked(self, call: Call, ask: _Asked, is_wanted: Callable[[], bool] = lambda: True) -> Any:
        """Asks the coordinator until there is an answer that decides, or nobody wants it: then None.

        Returns what `ask` found, told what else there was: trouble, or the end.
        """
        attempt = 0
        while is_wanted():
            verdict = Verdict.AGAIN
            try:
                code, found = await ask(await self._cluster.coordinator(self.transactional_id, TRANSACTION))
                verdict = judge(self.standing, call, code)
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
        """In the second version every transaction has its epoch, so that a late copy of a request is fenced."""
        if call is Call.INIT or not self.standing.is_v2:
            self._lost_s = self._loop.time()

    async def _copies_dead(self) -> None:
        """Waits until nothing that was lost can arrive any more: it would begin, fill or end another transaction."""
        await asyncio.sleep(max(0.0, self._lost_s + COPIES_LIVE_S - self._loop.time()))

    def _delay_s(self, verdict: Verdict, attempt: int) -> float:
        delay_s = self._cluster.retry_backoff_s(attempt)
        return min(delay_s, SOON_S * 2 ** min(attempt - 1, 10)) if verdict is Verdict.SOON else delay_s

    def _refused(self, call: Call, verdict: Verdict, code: int) -> None:
        if verdict is Verdict.FATAL:
            self.tell(Doom(fatal(call, code, self.transactional_id)))
        else:
            self.tell(Trouble(KafkaError(code, call.value), is_unknown=verdict is Verdict.UNKNOWN))

    def _broken(self, call: Call, error: ClientError) -> None:
        """What cannot be asked, or is not answered by a coordinator: there is no way on."""
        if isinstance(error, UnsupportedVersion):
            failure: ProducerFailed = TransactionsUnsupported(f"there are no transactions here: {error}")
        elif isinstance(error, KafkaError):
            failure = fatal(call, error.code, self.transactional_id)
        else:
            failure = ProducerFailed(f"{call.value}: {error}")
        failure.__cause__ = error
        self.tell(Doom(failure))

    async def _init(self, effect: AskProducerId) -> None:
        async def ask(connection: Connection) -> tuple[int, Any]:
            timeout_ms = self._sender.options.transaction_timeout_ms
            return await calls.init(connection, self.transactional_id, timeout_ms, effect.producer_id, effect.epoch)

        found = await self._asked(Call.INIT, ask)
        if found is not None:
            await self._copies_dead()
            self.tell(found)

    async def _add(self) -> None:
        async def ask(connection: Connection) -> tuple[int, Any]:
            self.tell(Take())
            wanted = self.standing.asked
            codes = await calls.add_partitions(connection, self.transactional_id, self.standing, wanted)
            done = frozenset(where for where in wanted if codes.get(where) == ErrorCode.NONE)
            if done:
                self.tell(Added(done))
            return calls.worst(codes.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE) for where in wanted), done

        def is_wanted() -> bool:
            return self.standing.state in _SENDING and bool(self.standing.waiting or self.standing.asked)

        try:
            while is_wanted() and await self._asked(Call.ADD, ask, is_wanted) is not None:
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
        if number == self._number:  # else it was aborted, and this is the drain of what is long over
            self.tell(Drained(is_aborting=False))

    async def _drained_abort(self) -> None:
        while self._is_adding or self._offset_tasks or self._is_unanswered():
            self._moved.clear()
            await self._moved.wait()
        if not self.standing.is_v2:
            queues = self._sender.accumulator.queues.values()
            self._lost_s = max([self._lost_s, *(queue.lost_s for queue in queues)])
        await self._copies_dead()
        self.tell(Drained(is_aborting=True))

    def _is_unanswered(self) -> bool:
        found = [queue.sequences for queue in self._sender.accumulator.queues.values()]
        keeps = self.standing.resends_always
        return any(one is not None and (one.in_flight or (keeps and one.unfinished)) for one in found)

    async def _ended(self, is_commit: bool) -> None:
        async def ask(connection: Connection) -> tuple[int, Any]:
            return await calls.end(connection, self.transactional_id, self.standing, is_commit=is_commit)

        found = await self._asked(Call.COMMIT if is_commit else Call.ABORT, ask)
        if found is not None:
            await self._copies_dead()
            self.tell(found)

    # -- offsets of a group

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commits offsets with the transaction: they count when it is committed."""
        self._check_alive()
        self.ticket()
        if not offsets:
            return
        task = self._loop.create_task(self._send_offsets(dict(offsets), group))
        self._offset_tasks.add(task)
        task.add_done_callback(self._offsets_sent)
        # To give up waiting does not take the offsets out of the transaction.
        await asyncio.shield(task)

    def _offsets_sent(self, task: asyncio.Task[None]) -> None:
        self._offset_tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is seen by who waits, if anyone does
        self._moved.set()

    async def _send_offsets(self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        deadline_s = self._loop.time() + self._block_s
        self.tell(UseGroup())
        if not self.standing.is_v2 and group.group not in self.standing.groups:

            async def ask(connection: Connection) -> tuple[int, Any]:
                return await calls.add_offsets(connection, self.transactional_id, self.standing, group.group), True

            def is_wanted() -> bool:
                return self.standing.state in _SENDING and self._loop.time() < deadline_s

            if await self._asked(Call.OFFSETS, ask, is_wanted) is None:
                self._tell_late()
                raise self._error_now()
            self.tell(GroupAdded(group.group))
        try:
            await self._commit_offsets(offsets, group, deadline_s)
        except ClientError as error:
            self.tell(Trouble(error))
            raise

    def _tell_late(self) -> None:
        if self.standing.state in _SENDING:
            self.tell(Trouble(KafkaError(ErrorCode.REQUEST_TIMED_OUT, Call.OFFSETS.value)))

    def _error_now(self) -> ClientError:
        error = self.standing.error or TransactionAborted("the transaction is being aborted")
        if isinstance(error, ProducerFailed):
            return error
        failed = TransactionFailed(f"the transaction cannot go on, only be aborted: {error}")
        failed.__cause__ = error
        return failed

    async def _commit_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline_s: float
    ) -> None:
        """TxnOffsetCommit, to the group's coordinator, until all are taken. Raises what cannot be tried again."""
        attempt = 0
        while self.standing.state in _SENDING:
            verdict = Verdict.AGAIN
            try:
                connection = await self._cluster.coordinator(group.group, timeout_s=deadline_s - self._loop.time())
                told = await calls.commit_offsets(connection, self.transactional_id, self.standing, group, offsets)
                codes = {where: told.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE) for where in offsets}
                code = calls.worst(codes.values())
                verdict = judge(self.standing, Call.OFFSETS, code)
                if verdict is Verdict.DONE:
                    return
                error: ClientError = KafkaError(code, f"the offsets of group {group.group!r}")
                if verdict is Verdict.FATAL:
                    self._refused(Call.OFFSETS, verdict, code)
                    error = self.standing.error or error
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
        AskProducerId: _ask_producer_id,
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
