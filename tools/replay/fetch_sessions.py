"""Fetch sessions (KIP-227) of two brokers: which is which, at which epoch, and what each of them asks for.

Owns what a request within a session of the left is on the right. Where the right gave no session, each request is made
one without: for all partitions that the session had.
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
        """Takes in what a request adds and leaves out."""
        for topic in request.topics:
            known = self.partitions.setdefault((topic.topic, bytes(topic.topic_id)), {})
            known.update((one.partition, one) for one in topic.partitions)
        for topic in request.forgotten_topics_data:
            known = self.partitions.get((topic.topic, bytes(topic.topic_id)), {})
            for number in topic.partitions:
                known.pop(number, None)


class FetchSessions:
    """The sessions of the left that are open, by node and id."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _Session] = {}

    def sent(self, node_id: int, request: Any) -> Any:
        """A Fetch request of the left, with the session that it has on the right. The names of topics are the left's:
        this comes before ids are mapped."""
        if request.session_id == NO_SESSION:
            return request
        found = self._open.get((node_id, request.session_id))
        if found is None:
            return request
        if request.session_epoch <= 0:  # it ends, or is begun anew with all partitions
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

    def answered(self, node_id: int, request: Any, left: Any, right: Any) -> None:
        """Takes in the answers of both to a request of the left that has all partitions: that is how sessions begin."""
        if request.session_epoch == 0 and left.session_id:
            session = _Session(right.session_id)
            session.take(request)
            self._open[node_id, left.session_id] = session


def _with(request: Any, **changed: Any) -> Any:
    return type(request)(**{**{name: getattr(request, name) for name in request._fields}, **changed})
