"""The mapping of fetch sessions (KIP-227) between two brokers.

Owns the translation of a Fetch request in a session of the left broker to one for the right broker. If the right broker
did not create a session, the request becomes a full one for all partitions of the session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...protocol.limits import INT32_MAX
from ...protocol.messages.records.fetch import FetchRequest

NO_SESSION, FINAL_EPOCH = 0, -1
_EPOCH_MAX = INT32_MAX
Topic = tuple[str, bytes]


@dataclass
class _Session:
    right_id: int
    epoch: int = 1
    partitions: dict[Topic, dict[int, Any]] = field(default_factory=dict[Topic, dict[int, Any]])

    def take(self, request: Any) -> None:
        """Adds and removes the partitions of an incremental request."""
        for topic in request.topics:
            known = self.partitions.setdefault((topic.topic, bytes(topic.topic_id)), {})
            known.update((one.partition, one) for one in topic.partitions)
        for topic in request.forgotten_topics_data:
            known = self.partitions.get((topic.topic, bytes(topic.topic_id)), {})
            for number in topic.partitions:
                known.pop(number, None)


class FetchSessions:
    """The open sessions of the left, by node and session id."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _Session] = {}

    def sent(self, node_id: int, request: Any) -> Any:
        """Returns a Fetch request of the left with the session of the right.

        Topic names and ids are the left's: this comes before ids are mapped.
        """
        if request.session_id == NO_SESSION:
            return request
        found = self._open.get((node_id, request.session_id))
        if found is None:
            return request
        if request.session_epoch <= 0:  # the session is closed, or replaced by a new one with all partitions
            del self._open[node_id, request.session_id]
            epoch = request.session_epoch if found.right_id else min(request.session_epoch, FINAL_EPOCH)
            return _with(request, session_id=found.right_id, session_epoch=epoch)
        found.take(request)
        if found.right_id:
            epoch = found.epoch
            found.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
            return _with(request, session_id=found.right_id, session_epoch=epoch)
        topics = [
            FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=list(known.values()))
            for (name, topic_id), known in found.partitions.items()
            if known
        ]
        return _with(request, session_id=NO_SESSION, session_epoch=FINAL_EPOCH, topics=topics, forgotten_topics_data=[])

    def learn(self, node_id: int, request: Any, left: Any, right: Any) -> None:
        """Learns a new session from both responses to a full request of the left."""
        if request.session_epoch == 0 and left.session_id:
            session = _Session(right.session_id)
            session.take(request)
            self._open[node_id, left.session_id] = session


def _with(request: Any, **changed: Any) -> Any:
    return type(request)(**{**{name: getattr(request, name) for name in request._fields}, **changed})
