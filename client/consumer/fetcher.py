"""Sends Fetch requests for the assigned partitions, and processes the responses.

Owns the states of the assigned partitions, the requests in flight (at most two at a node with disjoint partitions, so
that a partition without records does not delay others), the lookup of positions (committed offsets, or by
`offset_reset`), back-off and leader changes. No task runs while no request is in flight: every change calls `wake`, and
one pass over the states sends the possible requests.

Fetch sessions (KIP-227) are not used: every request is a full one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NoReturn

from ...protocol.errors import ErrorCode
from ...protocol.messages.records.fetch import FetchRequest, FetchResponse
from ...protocol.primitives import ZERO_UUID
from ..net.cluster import NO_NODE, Cluster
from ..net.connection import Connection
from ..net.errors import ClientClosed, ClientError, KafkaError, MessageTooLarge, is_retriable
from .list_offsets import EARLIEST, LATEST, OffsetLookup, TopicPartition
from .options import ConsumerOptions
from .positions import COMMITTED, PartitionState
from .records import Chunk, ConsumerRecord

SLOTS = 2  # requests in flight at one node
FETCH_WITHOUT_IDS = 12
WARN_ATTEMPTS = 5  # metadata refreshes without a leader before a warning
RESETS = {"latest": LATEST, "earliest": EARLIEST, "none": None}
Current = Callable[[], list[PartitionState]]
Committed = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]]
_log = logging.getLogger("ottla.client")


class Fetcher:
    """The fetcher of one consumer. `committed` fetches the committed offsets of the group, None without a group."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions, committed: Committed | None = None) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self._topics: frozenset[str] = frozenset()  # topics whose metadata is kept, besides those of `states`
        self._failure: ClientError | None = None  # of one of the topics
        self.lookup = OffsetLookup(cluster, options.isolation == "read_committed")
        self.changed = asyncio.Event()  # set when records or an error may be available
        self._cluster = cluster
        self._options = options
        self._committed = committed
        self._committed_only = options.isolation == "read_committed"
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots: dict[int, set[int]] = {}
        self._is_open = True
        self._is_awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        self._learning = False
        self._learn_attempts = 0
        self._learn_not_before = 0.0
        cluster.add_listener(self.wake)

    async def close(self) -> None:
        """Cancels the requests in flight."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.states.clear()
        self.changed.set()

    # Assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the assigned partitions; those that stay keep their state."""
        wanted = dict.fromkeys(partitions)
        for where in [where for where in self.states if where not in wanted]:
            self.states.pop(where).refetch()  # its responses in flight are ignored
        for where in wanted:
            if where not in self.states:
                state = self.states[where] = PartitionState(*where, self._options.max_partition_fetch_bytes)
                self._begin(state)
        self.changed.set()
        self.wake()

    def follow(self, topics: frozenset[str]) -> None:
        """Keeps the metadata of these topics up to date, also without an assigned partition."""
        self._topics = topics
        self.wake()

    def _begin(self, state: PartitionState) -> None:
        if self._committed is not None:
            state.lose(COMMITTED)
        else:
            self.apply_reset(state, "no position")

    def apply_reset(self, state: PartitionState, why: str) -> None:
        """Resets the position by `offset_reset`; for "none" the next read raises an error."""
        policy = RESETS[self._options.offset_reset]
        if policy is not None:
            state.lose(policy)
            return
        text = f"{state.topic}-{state.partition}: {why}, and offset.reset is none"
        state.failure = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        self.changed.set()

    # Reading

    def take(self, room: int) -> tuple[PartitionState, list[ConsumerRecord]] | None:
        """Returns up to `room` records of one partition, or None without any. Raises the error of a partition once.

        Partitions are read round-robin, one batch each.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        for where, state in self.states.items():
            if state.is_paused:
                continue
            if state.failure is not None:
                self.raise_failure(state, state.failure)
            if state.index >= len(state.records) and not state.chunks:
                continue
            chunks = len(state.chunks)
            try:
                found = state.fill()
            except ClientError as error:
                self.raise_failure(state, error)
            finally:
                if len(state.chunks) != chunks:
                    self.wake()
            if found:
                records = state.handed_out(room)
                if state.index >= len(state.records):
                    del self.states[where]  # moved to the end of the round-robin order
                    self.states[where] = state
                return state, records
        return None

    def raise_failure(self, state: PartitionState, failure: ClientError) -> NoReturn:
        """Raises the error of a partition; the next read retries."""
        state.refetch()
        if state.position < 0 and state.reset is None:
            self._begin(state)
        self.wake()
        raise failure

    # Requests

    def wake(self) -> None:
        """Schedules a pass in the next iteration of the event loop."""
        if not self._is_awake and self._is_open:
            self._is_awake = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        self._is_awake = False
        if not self._is_open:
            return
        now = self._loop.time()
        later: list[float] = []
        leaderless = {topic for topic in self._topics if not self._cluster.is_fresh(topic)}
        fetching: dict[int, list[PartitionState]] = {}
        searching: dict[int, list[PartitionState]] = {}
        restoring: list[PartitionState] = []
        for state in self.states.values():
            is_searching = state.reset is not None and not state.is_busy and state.failure is None
            if not is_searching and not state.is_fetchable():
                continue
            if state.not_before > now:
                later.append(state.not_before)
            elif state.reset == COMMITTED:
                restoring.append(state)
            else:
                leader = self._cluster.leader(state.topic, state.partition)
                if leader == NO_NODE:
                    leaderless.add(state.topic)
                else:
                    (searching if is_searching else fetching).setdefault(leader, []).append(state)
        if restoring:
            self._run(restoring, self._restore)
        for node_id, states in searching.items():
            self._run(states, partial(self._search, node_id))
        for node_id, states in fetching.items():
            self._begin_fetch(node_id, states)
        if not leaderless:
            self._learn_attempts = 0
        elif when := self._learn(leaderless, now):
            later.append(when)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(min(later), self.wake) if later else None

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _run(self, states: list[PartitionState], work: Callable[[Current], Awaitable[None]]) -> None:
        """Runs a request for partitions, which are busy meanwhile; after a failure they back off.

        `work` gets a function that returns those without a seek since now: a seek before the first step of the task
        invalidates this request and starts another.
        """
        versions = [(state, state.version) for state in states]
        for state in states:
            state.is_busy = True

        def current() -> list[PartitionState]:
            return [state for state, version in versions if state.version == version]

        async def run() -> None:
            failure: ClientError | None = None
            try:
                await work(current)
            except ClientError as error:
                failure = error
            for state in current():
                state.is_busy = False
                if failure is not None:
                    self._failed(state, failure)
            self.wake()

        self._task(run())

    def _failed(self, state: PartitionState, error: ClientError) -> None:
        """Schedules a retry with new metadata, or stores a fatal error for the next read."""
        if isinstance(error, ClientClosed):
            return
        if not error.retriable:
            state.failure = error
            self.changed.set()
            return
        self._cluster.expire(state.topic)
        self._delay(state)

    def _delay(self, state: PartitionState) -> None:
        state.attempts += 1
        state.not_before = self._loop.time() + self._cluster.retry_backoff_s(state.attempts)

    # Leaders

    def _learn(self, topics: set[str], now: float) -> float:
        """Refreshes the metadata of topics without a leader; returns the time of the next refresh, or 0."""
        if self._learning:
            return 0.0
        if self._learn_not_before <= now:
            self._learning = True
            self._learn_attempts += 1
            self._task(self._learned(topics))
            return 0.0
        return self._learn_not_before

    async def _learned(self, topics: set[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except ClientError as error:
            _log.debug("metadata refresh failed: %s", error)
        for topic in sorted(topics):
            known = self._cluster.topics.get(topic)
            if known is not None and known.error and not is_retriable(known.error):
                self._failure = KafkaError(known.error, f"topic {topic!r}")
                self.changed.set()
        if self._learn_attempts == WARN_ATTEMPTS:
            _log.warning("partitions without a leader: topics %s", ", ".join(sorted(topics)))
        self._learning = False
        self._learn_not_before = self._loop.time() + self._cluster.retry_backoff_s(self._learn_attempts)
        self.wake()

    # Positions

    async def _restore(self, current: Current) -> None:
        assert self._committed is not None
        found = await self._committed([(state.topic, state.partition) for state in current()])
        for state in current():
            offset = found.get((state.topic, state.partition), -1)
            if offset >= 0:
                state.jump(offset)
                state.committed = offset
                self.changed.set()
            else:
                self.apply_reset(state, "no committed offset")

    async def _search(self, node_id: int, current: Current) -> None:
        wanted = {(state.topic, state.partition): state.reset or 0 for state in current()}
        connection = await self._cluster.connection(node_id, "control")
        results = await self.lookup.send(connection, wanted)
        for state in current():
            result = results[state.topic, state.partition]
            if isinstance(result, KafkaError):
                self._failed(state, result)
            else:
                state.jump(max(result.offset, 0))
                self.changed.set()

    # Fetch

    def _begin_fetch(self, node_id: int, states: list[PartitionState]) -> None:
        slots = self._slots.setdefault(node_id, set())
        free = next((slot for slot in range(SLOTS) if slot not in slots), None)
        if free is None:
            return
        slots.add(free)
        states.sort(key=lambda state: state.turn)
        self._run(states, partial(self._fetch, node_id, free))

    async def _fetch(self, node_id: int, slot: int, current: Current) -> None:
        try:
            states = current()
            if not states:
                return
            connection = await self._cluster.connection(node_id, f"fetch-{slot}")
            request, version, names = self._request(connection, states)
            timeout_s = (self._options.request_timeout_ms + self._options.fetch_max_wait_ms) / 1000
            response: FetchResponse = await connection.request(request, version, timeout_s=timeout_s)
        finally:
            self._slots[node_id].discard(slot)
        if response.error_code:
            raise KafkaError(response.error_code)
        responses: dict[TopicPartition, Any] = {}
        for topic in response.responses:
            name = topic.topic if version <= FETCH_WITHOUT_IDS else names.get(topic.topic_id, "")
            responses.update({(name, one.partition_index): one for one in topic.partitions})
        for state in current():
            partition = responses.get((state.topic, state.partition))
            if partition is None:
                self._delay(state)
            elif partition.error_code:
                self._refused(state, partition.error_code)
            else:
                self._arrived(state, partition)

    def _request(
        self, connection: Connection, states: list[PartitionState]
    ) -> tuple[FetchRequest, int, dict[bytes, str]]:
        topic_class = FetchRequest.FetchTopic
        by_topic: dict[str, list[FetchRequest.FetchTopic.FetchPartition]] = {}
        for state in states:
            one = topic_class.FetchPartition(
                partition=state.partition,
                current_leader_epoch=self.lookup.epoch(state.topic, state.partition),
                fetch_offset=state.fetch_offset,
                partition_max_bytes=state.limit_bytes,
            )
            by_topic.setdefault(state.topic, []).append(one)
        ids = self._cluster.topic_ids(by_topic)
        newest = FETCH_WITHOUT_IDS if ZERO_UUID in ids.values() else None
        options = self._options
        request = FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=int(self._committed_only),
            topics=[topic_class(topic=name, topic_id=ids[name], partitions=some) for name, some in by_topic.items()],
        )
        return request, connection.version_of(FetchRequest, newest), {ids[name]: name for name in ids}

    def _refused(self, state: PartitionState, code: int) -> None:
        offset, where = state.fetch_offset, f"{state.topic}-{state.partition}"
        error = KafkaError(code, f"{where} at offset {offset}")
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if offset != state.position or state.chunks:
                self._delay(state)  # records fetched before are read first
            else:
                _log.info("%s: offset %d out of range, position reset by auto.offset.reset", where, offset)
                self.apply_reset(state, f"offset {offset} is out of range")
        elif error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self._delay(state)
        elif error.code == ErrorCode.CORRUPT_MESSAGE:
            state.failure = error
            self.changed.set()
        else:
            self._failed(state, error)

    def _arrived(self, state: PartitionState, response: Any) -> None:
        offset = state.fetch_offset
        state.high_watermark = response.high_watermark
        data = response.records
        if not data:
            state.attempts = 0
            return
        aborted = response.aborted_transactions or ()
        chunk = Chunk(
            state.topic,
            state.partition,
            data,
            offset,
            committed_only=self._committed_only,
            aborted=[(one.producer_id, one.first_offset) for one in aborted],
            check_crcs=self._options.check_crcs,
        )
        if chunk.needed_bytes:
            self._enlarge(state, chunk.needed_bytes, offset)
        elif chunk.next_offset <= offset and not chunk.is_broken:
            self._delay(state)  # no requested record: not retried at once
        else:
            self._turn += 1
            state.turn = self._turn
            state.attempts = 0
            state.chunks.append(chunk)
            state.fetch_offset = chunk.next_offset
            self.changed.set()

    def _enlarge(self, state: PartitionState, needed_bytes: int, offset: int) -> None:
        """Raises the size limit of a partition: Fetch before v3 also cuts the first batch at the limit (KIP-74)."""
        if state.limit_bytes < needed_bytes <= self._options.fetch_max_bytes:
            state.limit_bytes = needed_bytes
            return
        state.failure = MessageTooLarge(
            f"{state.topic}-{state.partition}: the batch at offset {offset} has {needed_bytes} bytes, more than"
            f" max.partition.fetch.bytes ({state.limit_bytes}) and fetch.max.bytes"
            f" ({self._options.fetch_max_bytes}) allow"
        )
        self.changed.set()
