"""The translation of recorded requests for the target broker, and the learning from its responses.

Owns the steps from a recorded request to its frame: fetch sessions, group leaders, ids, and the version. A request
without a change is sent with its recorded bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...broker.recording.decoding import request_value, response_value
from ...broker.recording.exchange import Ending, Exchange
from ...protocol.api_key import ApiKey
from ...protocol.compiler import build
from ...protocol.errors import ErrorCode, MalformedMessage
from ...protocol.headers import request_header
from ...protocol.limits import INT32_MAX
from ...protocol.messages.groups.join_group import JoinGroupRequest
from ...protocol.messages.groups.sync_group import SyncGroupRequest
from ...protocol.messages.records.fetch import FetchRequest
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.named import NamedTuple
from ...protocol.schema import spec
from ..release_table import api_name, range_text
from .name_mapping import (
    OF_COORDINATORS,
    WITH_TOPIC_NAMES,
    Ids,
    changed,
    error_codes,
    learn,
    learn_names,
    topics_without,
)
from .target import Target
from .versions import CannotTranslate, in_version, newest_shared

# The recorded broker did nothing and the client retried: if both requests were sent, both would take effect.
NOT_READY = OF_COORDINATORS | {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CONCURRENT_TRANSACTIONS}
LOGIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
CHANGED_AGAIN = frozenset({ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.JOIN_GROUP})
NO_SESSION, FINAL_EPOCH = 0, -1
Topic = tuple[str, bytes]


class NotSent(Exception):
    """A request is not played; the text is one line.

    `expected`: the reason is in the versions that the broker serves. `translatable`: with `--translate` the request is
    tried in another version.
    """

    def __init__(self, text: str, *, expected: bool = False, translatable: bool = False) -> None:
        super().__init__(text)
        self.expected = expected
        self.translatable = translatable


class Outgoing(NamedTuple):
    """A request to send."""

    frame: bytes
    version: int
    silent: bool


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


class _FetchSessions:
    """The open fetch sessions of the left (KIP-227), by node and session id.

    If the right broker did not create a session, a request in it becomes a full one for all partitions of the session.
    """

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
            return changed(request, session_id=found.right_id, session_epoch=epoch)
        found.take(request)
        if found.right_id:
            epoch = found.epoch
            found.epoch = 1 if epoch == INT32_MAX else epoch + 1
            return changed(request, session_id=found.right_id, session_epoch=epoch)
        topics = [
            FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=list(known.values()))
            for (name, topic_id), known in found.partitions.items()
            if known
        ]
        return changed(
            request, session_id=NO_SESSION, session_epoch=FINAL_EPOCH, topics=topics, forgotten_topics_data=[]
        )

    def learn(self, node_id: int, request: Any, left: Any, right: Any) -> None:
        """Learns a new session from both responses to a full request of the left."""
        if request.session_epoch == 0 and left.session_id:
            session = _Session(right.session_id)
            session.take(request)
            self._open[node_id, left.session_id] = session


class _Roles:
    """The leaders of all group generations on both sides; generations are numbered as on the left.

    The SyncGroup of the leader has the assignments of all members: another member sends those of the recording if the
    right broker chose another leader.
    """

    def __init__(self, requests: Iterable[Any]) -> None:
        """`requests` are the recorded requests, of any API."""
        self._assignments: dict[tuple[str, int], list[Any]] = {}
        for one in requests:
            if isinstance(one, SyncGroupRequest) and one.assignments:
                self._assignments[one.group_id, one.generation_id] = one.assignments
        self._leaders: dict[tuple[str, int], tuple[str, str]] = {}  # (left's, right's) member ids
        self.moved: set[str] = set()
        """The groups whose leader differs on the right."""

    def joined(self, group: str, left: Any, right: Any) -> None:
        """Learns the leaders from both responses to a JoinGroup."""
        if left.error_code == right.error_code == ErrorCode.NONE and left.leader and right.leader:
            self._leaders[group, left.generation_id] = left.leader, right.leader

    def sent(self, request: Any, members: Mapping[str, str]) -> Any:
        """Returns a SyncGroup of the left with assignments if its member leads on the right, otherwise without.

        `members` has the ids of members on the right by those on the left.
        """
        place = request.group_id, request.generation_id
        left, right = self._leaders.get(place, ("", ""))
        if members.get(left, left) == right:
            return request
        self.moved.add(request.group_id)
        is_leader = members.get(request.member_id, request.member_id) == right
        return changed(request, assignments=self._assignments.get(place, []) if is_leader else [])


class Sending:
    """The state of one playback: the mappings of ids, fetch sessions and group leaders."""

    def __init__(
        self, exchanges: Sequence[Exchange], target: Target, nodes: dict[int, int], *, translate: bool
    ) -> None:
        self.ids = Ids(nodes)
        self.target = target
        self._translate = translate
        self._sessions = _FetchSessions()
        for one in exchanges:
            if one.api_key in WITH_TOPIC_NAMES and one.response is not None:
                learn_names(self.ids, response_value(one))
        self.roles = _Roles(request_value(one) for one in exchanges if one.api_key == ApiKey.SYNC_GROUP)

    def unknown_members(self, exchange: Exchange) -> bool:
        """Returns whether a SyncGroup assigns partitions to members whose ids on the right are unknown."""
        if exchange.api_key != ApiKey.SYNC_GROUP:
            return False
        request = request_value(exchange)
        return request is not None and any(one.member_id not in self.ids.members for one in request.assignments)

    def unknown_topics(self, exchange: Exchange) -> frozenset[str]:
        """Returns the topics in a request whose ids on the right are unknown."""
        return frozenset(topics_without(self.ids, request_value(exchange)))

    def learn_topic_id(self, name: str, topic_id: bytes) -> None:
        """Learns the id of a topic on the right."""
        for left, known in self.ids.topic_names.items():
            if known == name and left not in self.ids.topic_ids:
                self.ids.topic_ids[left] = topic_id

    def outgoing(self, exchange: Exchange) -> Outgoing:
        """Returns the request to send. Raises NotSent."""
        if exchange.request is None:
            raise NotSent("its bytes were not recorded")
        if exchange.api_key in LOGIN and (self.target.security.login is not None or _has_succeeded(exchange)):
            raise NotSent("a recording has no passwords: --command-config has the login")
        if len(exchange.request) < 8:
            return Outgoing(exchange.request, exchange.api_version, False)
        version = self._version(exchange)
        request = request_value(exchange)
        if request is None:  # malformed, or of an unknown API: the recorded bytes are sent
            return Outgoing(exchange.request, version, exchange.ending is Ending.SILENT)
        if exchange.api_key in CHANGED_AGAIN and exchange.ending is Ending.RESPONDED:
            codes = set(error_codes(response_value(exchange)))
            if codes and codes <= NOT_READY:
                name = ErrorCode(min(codes)).name
                raise NotSent(f"the response was {name}, and the client retried")
        silent = isinstance(request, ProduceRequest) and request.acks == 0
        mapped: object = self._mapped(exchange, request)
        if version != exchange.api_version:
            try:
                mapped = in_version(mapped, version, self.ids)
            except CannotTranslate as error:
                raise NotSent(str(error), expected=True) from None
        if mapped is request and version == exchange.api_version:
            return Outgoing(exchange.request, version, silent)
        client_id = None if exchange.client_id is None else exchange.client_id.encode()[:32767]
        header = request_header(exchange.api_key, version, 0, client_id, version in spec(type(mapped)).flexible)
        try:
            return Outgoing(header + build(mapped, version), version, silent)
        except MalformedMessage as error:
            raise NotSent(str(error), expected=version != exchange.api_version) from None

    def _version(self, exchange: Exchange) -> int:
        """Returns the version to send. Raises NotSent if there is none."""
        key, version = exchange.api_key, exchange.api_version
        any_version = key == ApiKey.API_VERSIONS and not self._translate  # it has a response in any version (KIP-511)
        if version in self.target.versions.get(key, ()) or (any_version and self.target.has_api_versions):
            return version
        name = api_name(key)
        ends = self.target.versions.get(key)
        if ends is None:
            raise NotSent(f"{name} is not served", expected=True)
        shared = newest_shared(key, ends, version)
        if shared is None or not self._translate:
            why = f"{name} v{version} is not served, only {range_text(ends)}"
            raise NotSent(why, expected=True, translatable=shared is not None)
        return shared

    def _mapped(self, exchange: Exchange, request: Any) -> Any:
        if isinstance(request, FetchRequest):
            request = self._sessions.sent(exchange.peer.node_id, request)
        elif isinstance(request, SyncGroupRequest):
            request = self.roles.sent(request, self.ids.members)
        return self.ids.message(request)

    def concluded(self, exchange: Exchange, played: Exchange) -> None:
        """Learns from the responses of both sides."""
        if exchange.response is None or played.response is None:
            return
        request, left, right = request_value(exchange), response_value(exchange), response_value(played)
        if request is None or left is None or right is None:
            return
        learn(self.ids, request, left, right)
        if isinstance(request, FetchRequest):
            self._sessions.learn(exchange.peer.node_id, request, left, right)
        elif isinstance(request, JoinGroupRequest):
            self.roles.joined(request.group_id, left, right)


def _has_succeeded(exchange: Exchange) -> bool:
    return exchange.response is not None and getattr(response_value(exchange), "error_code", -1) == ErrorCode.NONE


def played_exchange(exchange: Exchange, outgoing: Outgoing) -> Exchange:
    """Returns the exchange of the playback, still without a response."""
    return replace(
        exchange,
        api_version=outgoing.version,
        request=outgoing.frame,
        request_bytes=len(outgoing.frame),
        response=None,
        response_bytes=0,
        duration_ns=-1,
        ending=Ending.PENDING,
        reason="",
        fault=None,
    )
