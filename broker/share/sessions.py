"""Share sessions (KIP-932): a member need not repeat its partitions, and its records are released when it goes away.

A session has no id: it belongs to a member of a group at one node, and ends with the connection that opened it. Owns
the sessions, their epochs and limit. Rules: Kafka 4.3's `SharePartitionManager`, `ShareSessionCache`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ...protocol.named import NamedTuple
from ..errors import Refused

INITIAL_EPOCH, FINAL_EPOCH = 0, -1


class TopicPartition(NamedTuple):
    """A partition of a topic by the topic's id."""

    topic_id: bytes
    partition: int


class SessionKey(NamedTuple):
    """The identity of a session."""

    node_id: int
    group_id: str
    member: str


class Connection(Protocol):
    """A connection with sessions; `on_lost` is called when it is closed."""

    on_lost: Callable[[], object] | None


@dataclass(slots=True, eq=False)
class Entry:
    """A partition of a session: the topic's name when it was added, or None, and whether the next response includes it
    in any case.
    """

    name: str | None
    is_news: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """One session: its partitions in the order in which they are read, and the epoch of the next request."""

    key: SessionKey
    connection: Connection
    partitions: dict[TopicPartition, Entry] = field(default_factory=dict[TopicPartition, Entry])
    epoch: int = 1


@dataclass(slots=True, eq=False)
class ShareFetchPlan:
    """The partitions that a ShareFetch reads, with the names of their topics. `session` is None for a full request."""

    partitions: dict[TopicPartition, str | None]
    session: Session | None = None
    session_epoch: int = 0

    @property
    def is_outdated(self) -> bool:
        """Whether another request has advanced the session meanwhile."""
        return self.session is not None and self.session.epoch != self.session_epoch

    def selected(self, responses: Sequence[tuple[TopicPartition, Any]]) -> list[tuple[TopicPartition, Any]]:
        """Returns the responses that are sent, and notes them: an incremental response has those with records, an
        error, or a new partition.
        """
        if self.session is None:
            return list(responses)
        partitions, sent = self.session.partitions, list[tuple[TopicPartition, Any]]()
        for key, response in responses:
            entry = partitions.get(key)
            if entry is None or not (len(response.records) or entry.is_news or response.error_code):
                continue
            entry.is_news = bool(response.error_code)
            sent.append((key, response))
            if len(response.records):
                # To the end: with a small max_bytes, the other partitions come first in the next fetch.
                partitions[key] = partitions.pop(key)
        return sent


class ShareSessions:
    """The sessions of one broker. `limit` is the largest number of sessions of a node.

    `released` is called for a member whose connection was lost, with the partitions of its session; `emptied` for a
    group that has lost its last session at a node with a connection.
    """

    def __init__(
        self,
        limit: int,
        released: Callable[[SessionKey, list[TopicPartition]], object],
        emptied: Callable[[int, str], object],
    ) -> None:
        self._limit = limit
        self._released = released
        self._emptied = emptied
        self._sessions: dict[SessionKey, Session] = {}
        self._at_node: Counter[int] = Counter()
        self._of_group: Counter[tuple[int, str]] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def fetching(
        self,
        key: SessionKey,
        epoch: int,
        listed: dict[TopicPartition, str | None],
        forgotten: Iterable[TopicPartition],
        connection: Connection,
        *,
        acknowledges: bool,
    ) -> ShareFetchPlan:
        """Returns what a ShareFetch reads, and opens or continues its session. Raises Refused."""
        session = self._sessions.get(key)
        if epoch == FINAL_EPOCH:
            if session is None:
                raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND)
            return ShareFetchPlan({})
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise Refused(ErrorCode.INVALID_REQUEST)
            if session is not None:
                self._remove(session)
            if self._at_node[key.node_id] >= self._limit:
                raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            self._open(key, listed, connection)
            return ShareFetchPlan(dict(listed))
        session = self._checked(key, epoch)
        for partition, name in listed.items():
            if partition not in session.partitions:
                session.partitions[partition] = Entry(name, is_news=True)
        for partition in forgotten:
            session.partitions.pop(partition, None)
        session.epoch = next_epoch(epoch)
        names = {partition: entry.name for partition, entry in session.partitions.items()}
        return ShareFetchPlan(names, session, session.epoch)

    def acknowledging(self, key: SessionKey, epoch: int) -> None:
        """Continues the session of a ShareAcknowledge. Raises Refused."""
        if epoch == INITIAL_EPOCH:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            if key not in self._sessions:
                raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND)
            return
        self._checked(key, epoch).epoch = next_epoch(epoch)

    def close(self, key: SessionKey) -> list[TopicPartition]:
        """Removes a session and returns its partitions; an unknown one has none."""
        session = self._sessions.get(key)
        if session is None:
            return []
        self._remove(session)
        return list(session.partitions)

    def close_all(self) -> None:
        """Removes all sessions."""
        for session in list(self._sessions.values()):
            self._remove(session)

    def _checked(self, key: SessionKey, epoch: int) -> Session:
        session = self._sessions.get(key)
        if session is None:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if session.epoch != epoch:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session

    def _open(self, key: SessionKey, listed: dict[TopicPartition, str | None], connection: Connection) -> None:
        entries = {partition: Entry(name) for partition, name in listed.items()}
        session = self._sessions[key] = Session(key, connection, entries)
        self._at_node[key.node_id] += 1
        self._of_group[key.node_id, key.group_id] += 1
        connection.on_lost = partial(self._lost, session)  # as in Kafka, for the newest session of a connection

    def _remove(self, session: Session) -> None:
        key = session.key
        del self._sessions[key]
        self._at_node[key.node_id] -= 1
        self._of_group[key.node_id, key.group_id] -= 1

    def _lost(self, session: Session) -> None:
        """Ends the session of a closed connection."""
        key = session.key
        if self._sessions.get(key) is session:
            self._remove(session)
            self._released(key, list(session.partitions))
        if self._of_group[key.node_id, key.group_id] <= 0:
            del self._of_group[key.node_id, key.group_id]
            self._emptied(key.node_id, key.group_id)


def next_epoch(epoch: int) -> int:
    """Returns the epoch after this one."""
    return 1 if epoch == INT32_MAX else epoch + 1
