"""Incremental fetch sessions (KIP-227): a client need not repeat its partitions, and responses leave out unchanged
ones.

Owns the cache of sessions, their epochs, and the fetch positions stored in them. Reads no logs: the handler gets the
partitions to read here, and the responses to send. Rules: Kafka 4.3's `FetchManager`, `FetchSession`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.frozen import slotted
from ...protocol.limits import INT32_MAX
from ...protocol.named import NamedTuple
from ...protocol.records.steps import Steps
from ..errors import Refused

EVICTABLE_AFTER_MS = 120_000
STEP_PARTITIONS = 2000
EPOCH_MAX = INT32_MAX
INITIAL_EPOCH = 0
FINAL_EPOCH = -1


class PartitionKey(NamedTuple):
    """A partition of a session: by id where the client fetches by id, else by name."""

    topic: str
    topic_id: bytes
    partition: int


class Wanted:
    """The fetch position of one partition, and the offsets of the last response."""

    __slots__ = (
        "current_leader_epoch",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
    )

    def __init__(self, request: Any) -> None:
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(request)

    def update(self, request: Any) -> None:
        """Takes the values of the request's FetchPartition."""
        self.offset: int = request.fetch_offset
        self.max_bytes: int = request.partition_max_bytes
        self.current_leader_epoch: int = request.current_leader_epoch
        self.last_fetched_epoch: int = request.last_fetched_epoch

    def is_news(self, response: Any) -> bool:
        """Whether an incremental response has to include this partition."""
        return bool(
            (response.records is not None and len(response.records))
            or response.error_code
            or response.high_watermark != self.high_watermark
            or response.log_start_offset != self.log_start_offset
            or response.preferred_read_replica != -1
            or response.diverging_epoch.epoch != -1
        )

    def note_sent(self, response: Any) -> None:
        """Stores the offsets of a response that is sent."""
        self.high_watermark = -1 if response.error_code else response.high_watermark
        self.log_start_offset = response.log_start_offset


@slotted
class Session:
    """One session: its partitions in the order in which they are read, and the epoch of the next request. Nodes other
    than `node_id`, which created it, do not have it.
    """

    id: int
    node_id: int
    partitions: dict[PartitionKey, Wanted]
    uses_topic_ids: bool
    created_ms: int
    used_ms: int
    epoch: int = 1


@slotted
class FetchPlan:
    """The partitions that one request reads, in order. `session` is None for a full fetch without a session."""

    partitions: dict[PartitionKey, Wanted]
    session: Session | None = None
    session_epoch: int = 0
    wants_session: bool = False
    node_id: int = 0

    def without(self, keys: Iterable[PartitionKey]) -> FetchPlan:
        """Returns the plan for the partitions other than `keys`."""
        left_out = set(keys)
        return replace(self, partitions={key: one for key, one in self.partitions.items() if key not in left_out})


class FetchSessions:
    """The session cache of one broker; `random_id` returns non-zero ids of 31 bits."""

    def __init__(self, random_id: Callable[[], int], slots: int) -> None:
        self._random_id = random_id
        self._slots = slots
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def planning(self, request: Any, uses_topic_ids: bool, now_ms: int, node_id: int = 0) -> Steps[FetchPlan]:
        """Returns what a FetchRequest reads from a node, in cooperative steps. The session's epoch changes in the
        first step, so that a second request with it fails. Raises Refused if the session is unknown or its epoch is
        wrong.
        """
        listed: dict[PartitionKey, Any] = {}
        left = STEP_PARTITIONS
        for topic in request.topics:
            left -= 1 + len(topic.partitions)
            if left < 0:
                yield None
                left = STEP_PARTITIONS
            for number, partition in enumerate(topic.partitions, 1):
                listed[PartitionKey(topic.topic, topic.topic_id, partition.partition)] = partition
                if number % STEP_PARTITIONS == 0:
                    yield None
        session = self._sessions.get(request.session_id)
        if session is not None and session.node_id != node_id:
            session = None
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                del self._sessions[session.id]  # a full request ends the session that it names
            wanted: dict[PartitionKey, Wanted] = {}
            for number, (key, partition) in enumerate(listed.items(), 1):
                wanted[key] = Wanted(partition)
                if number % STEP_PARTITIONS == 0:
                    yield None
            return FetchPlan(wanted, wants_session=request.session_epoch == INITIAL_EPOCH, node_id=node_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)
        epoch = session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        for number, (key, partition) in enumerate(listed.items(), 1):
            known = session.partitions.get(key)
            if known is None:
                session.partitions[key] = Wanted(partition)
            else:
                known.update(partition)
            if number % STEP_PARTITIONS == 0:
                yield None
        for topic in request.forgotten_topics_data:
            left -= 1 + len(topic.partitions)
            if left < 0:
                yield None
                left = STEP_PARTITIONS
            for number, index in enumerate(topic.partitions, 1):
                session.partitions.pop(PartitionKey(topic.topic, topic.topic_id, index), None)
                if number % STEP_PARTITIONS == 0:
                    yield None
        if not session.partitions:
            self._sessions.pop(session.id, None)
            return FetchPlan({})
        return FetchPlan(dict(session.partitions), session, epoch)

    def keys(self, request: Any) -> list[PartitionKey]:
        """Returns the partitions that `request` would read, in no order, without changing a session."""
        keys = {
            PartitionKey(topic.topic, topic.topic_id, partition.partition): None
            for topic in request.topics
            for partition in topic.partitions
        }
        session = self._sessions.get(request.session_id)
        if session is not None and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            keys |= dict.fromkeys(session.partitions)
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    keys.pop(PartitionKey(topic.topic, topic.topic_id, index), None)
        return list(keys)

    def pending(self, plan: FetchPlan, responses: list[tuple[PartitionKey, Any]]) -> list[tuple[PartitionKey, Any]]:
        """Returns the responses that `concluding` would send, without changing a session."""
        if plan.session is None:
            return responses
        known = plan.session.partitions
        return [(key, response) for key, response in responses if key in known and known[key].is_news(response)]

    def concluding(
        self, plan: FetchPlan, responses: list[tuple[PartitionKey, Any]], uses_topic_ids: bool, now_ms: int
    ) -> Steps[tuple[int, list[tuple[PartitionKey, Any]]]]:
        """Returns (session id, the responses to send), in cooperative steps. Raises Refused if another request used
        the session meanwhile.
        """
        if plan.session is None:
            if not plan.wants_session:
                return 0, responses
            session = self._begin(plan, uses_topic_ids, now_ms)
            if session is None:
                return 0, responses
            for number, (key, response) in enumerate(responses, 1):
                if (wanted := session.partitions.get(key)) is not None:
                    wanted.note_sent(response)
                if number % STEP_PARTITIONS == 0:
                    yield None
            return session.id, responses
        session = plan.session
        if session.epoch != plan.session_epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        sent: list[tuple[PartitionKey, Any]] = []
        for number, (key, response) in enumerate(responses, 1):
            if number % STEP_PARTITIONS == 0:
                yield None
            wanted = session.partitions.get(key)
            if wanted is None:
                continue
            is_news = wanted.is_news(response)
            wanted.note_sent(response)
            if not is_news:
                continue
            sent.append((key, response))
            if response.records is not None and len(response.records):
                # To the end: with a small max_bytes, the other partitions come first in the next fetch.
                session.partitions[key] = session.partitions.pop(key)
        return session.id, sent

    def forget(self, node_id: int) -> None:
        """Removes the sessions of a node that stopped."""
        for session in [session for session in self._sessions.values() if session.node_id == node_id]:
            del self._sessions[session.id]

    def _begin(self, plan: FetchPlan, uses_topic_ids: bool, now_ms: int) -> Session | None:
        partitions = plan.partitions
        if self._slots == 0 or (len(self._sessions) >= self._slots and not self._evict(len(partitions), now_ms)):
            return None
        while True:
            id = self._random_id()
            if id != 0 and id not in self._sessions:
                break
        session = self._sessions[id] = Session(id, plan.node_id, dict(partitions), uses_topic_ids, now_ms, now_ms)
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        """Evicts a session in favour of one with `size` partitions, as Kafka does: an unused one, else an old smaller
        one.
        """
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms <= EVICTABLE_AFTER_MS:
            old = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTABLE_AFTER_MS]
            smallest = min(old, key=lambda s: (len(s.partitions), s.id), default=None)
            if smallest is None or (size, 0) < (len(smallest.partitions), smallest.id):
                return False
            oldest = smallest
        del self._sessions[oldest.id]
        return True
