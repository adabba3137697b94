"""The mapping of ids between two brokers, learned from pairs of responses and applied to requests and comparisons.

Owns the fields of Kafka's messages whose values a broker chooses (ids, epochs, generations, offsets), and their values
on the other side. An unknown value is mapped to itself. Nothing is learned from an error response of either side. Fetch
sessions have state and are in `requests.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crc32c import crc32c

from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX
from ...protocol.named import NamedTuple
from ...protocol.narrowing import is_list
from ...protocol.primitives import ZERO_UUID
from ...protocol.records import batch, formats
from ...protocol.records.layout import CRC_AT, CRC_FROM, PRODUCER_EPOCH_AT, PRODUCER_ID_AT
from ...protocol.schema import Value, fields_of, spec
from .value_comparison import is_bytes_like

OF_NODES = (4, 8)  # the resource types whose names are numbers of nodes: BROKER and BROKER_LOGGER
NO_ID = -1

NODES = frozenset(
    """leader_id node_id broker_id controller_id preferred_read_replica replica_nodes isr_nodes offline_replicas
    eligible_leader_replicas last_known_elr replicas adding_replicas removing_replicas broker_ids voter_id
    replica_id""".split()
)
LEADER_EPOCHS = frozenset("leader_epoch current_leader_epoch committed_leader_epoch last_fetched_epoch epoch".split())
OFFSETS = frozenset(
    """fetch_offset offset committed_offset base_offset high_watermark last_stable_offset low_watermark end_offset
    first_offset current_txn_start_offset old_style_offsets""".split()
)
TOPIC_FIELDS = ("topic", "topic_name", "name")
PARTITION_FIELDS = ("partition_index", "partition", "index", "partition_id")


class Place(NamedTuple):
    """The group, topic and partition that a field refers to."""

    group: str = ""
    topic: str = ""
    partition: int = -1


NOWHERE = Place()


class Ids:
    """The mapping of ids: each dict maps values of the left to values of the right.

    `shifts`: (topic, partition) -> difference of offsets, if the right had other records before.
    `topic_names`: topic id of the left -> name.
    """

    def __init__(self, nodes: Mapping[int, int] | None = None) -> None:
        self.nodes = dict(nodes or {})
        self.clusters: dict[str, str] = {}
        self.producers: dict[int, int] = {}
        self.epochs: dict[tuple[int, int], int] = {}
        self.members: dict[str, str] = {}
        self.generations: dict[tuple[str, int], int] = {}
        self.topic_ids: dict[bytes, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.leader_epochs: dict[tuple[str, int, int], int] = {}
        self.shifts: dict[tuple[str, int], int] = {}
        self.tokens: dict[Any, Any] = {}  # ids (text) and secrets (bytes) of delegation tokens
        self.newest_token: bytes | None = None  # the right's; recordings have no secrets
        self.instances: dict[bytes, bytes] = {}  # client instance ids of telemetry (KIP-714)
        self.subscriptions: dict[int, int] = {}

    def place_in(self, value: Value, place: Place) -> Place:
        """Returns the place that the fields of `value` refer to; `place` is that of the enclosing value."""
        fields = fields_of(value)
        for name in TOPIC_FIELDS:
            if name in fields:
                topic = getattr(value, name)
                if isinstance(topic, str) and topic:
                    place = place._replace(topic=topic)
                break
        else:
            name = ""
        topic_id = getattr(value, "topic_id", ZERO_UUID)
        if topic_id != ZERO_UUID and not (name and getattr(value, name)):
            place = place._replace(topic=self.topic_names.get(bytes(topic_id), bytes(topic_id).hex()))
        for name in PARTITION_FIELDS:
            if name in fields and isinstance(partition := getattr(value, name), int):
                place = place._replace(partition=partition)
                break
        group = getattr(value, "group_id", None)
        return place._replace(group=group) if isinstance(group, str) else place

    def field(self, name: str, value: Any, owner: Value, place: Place) -> Any:
        """Returns the value of a field on the right for its value on the left."""
        found = _KINDS.get(name)
        if found is None or value is None:
            return value
        if is_list(value):
            return [found(self, one, name, owner, place) for one in value]
        return found(self, value, name, owner, place)

    def epoch(self, producer_id: int, epoch: int) -> int:
        """Returns the producer epoch on the right; an unknown one has the same distance from the last known epoch."""
        known = self.epochs.get((producer_id, epoch))
        if known is not None or epoch < 0:
            return epoch if known is None else known
        below = [one for (found, one) in self.epochs if found == producer_id and one < epoch]
        return min(epoch - max(below) + self.epochs[producer_id, max(below)], INT16_MAX) if below else epoch

    def name_on_right(self, topic_id: bytes) -> str:
        """Returns the name of a topic of the right, or "" if unknown."""
        left = next((one for one, other in self.topic_ids.items() if other == topic_id), topic_id)
        return self.topic_names.get(left, "")

    def id_on_right(self, topic: str) -> bytes:
        """Returns the id of a topic of the right, or zeros if unknown."""
        found = [
            self.topic_ids[one] for one, name in self.topic_names.items() if name == topic and one in self.topic_ids
        ]
        return found[-1] if found else ZERO_UUID

    def shift(self, place: Place) -> int:
        """Returns the difference of offsets between right and left."""
        return self.shifts.get((place.topic, place.partition), 0)

    def message(self, value: Any, place: Place = NOWHERE) -> Any:
        """Maps a message of the left to the right; returns a copy if any field changes."""
        if is_list(value):
            made = [self.message(one, place) for one in value]
            return value if all(one is other for one, other in zip(made, value, strict=True)) else made
        if not isinstance(value, Value):
            return value
        here = self.place_in(value, place)
        found: dict[str, Any] = {}
        for name in fields_of(value):
            old = getattr(value, name)
            new = self.message(old, here) if isinstance(old, Value | list) else old
            new = self.field(name, new, value, here)
            if new is not old and new != old:
                found[name] = new
        return changed(value, **found) if found else value

    def records(self, records: Any) -> Any:
        """Replaces the producer ids and epochs in record batches; other bytes are returned unchanged."""
        made: bytearray | None = None
        for position, header in formats.sound_headers(records):
            if header.magic != batch.MAGIC or header.producer_id < 0:
                continue
            producer_id = self.producers.get(header.producer_id, header.producer_id)
            epoch = self.epoch(header.producer_id, header.producer_epoch)
            if (producer_id, epoch) != (header.producer_id, header.producer_epoch):
                made = bytearray(records) if made is None else made
                _rewrite(made, position, header, producer_id, epoch)
        return records if made is None else bytes(made)


def values_in(message: Any) -> Iterator[Value]:
    """Yields a message and the values inside of it, at any depth."""
    if is_list(message):
        for one in message:
            yield from values_in(one)
    elif isinstance(message, Value):
        yield message
        for name in fields_of(message):
            yield from values_in(getattr(message, name))


def changed(value: Any, **fields: Any) -> Any:
    """Returns a copy of a message or of a part of one, with other values in some fields."""
    return type(value)(**{**{name: getattr(value, name) for name in fields_of(value)}, **fields})


def _rewrite(data: bytearray, position: int, header: batch.BatchHeader, producer_id: int, epoch: int) -> None:
    """Replaces the producer of a batch, and its CRC unless that was wrong before."""
    was_right = batch.crc_matches(data, position, header)
    data[position + PRODUCER_ID_AT : position + PRODUCER_EPOCH_AT] = producer_id.to_bytes(8, "big", signed=True)
    data[position + PRODUCER_EPOCH_AT : position + PRODUCER_EPOCH_AT + 2] = epoch.to_bytes(2, "big", signed=True)
    if was_right:
        crc = crc32c(memoryview(data)[position + CRC_FROM : position + header.size_bytes])
        data[position + CRC_AT : position + CRC_AT + 4] = crc.to_bytes(4, "big")


Kind = Callable[[Ids, Any, str, Value, Place], Any]


def _in(table: Callable[[Ids], Mapping[Any, Any]]) -> Kind:
    """Returns the mapping by a table; bytes may be a view of a buffer, which is no key."""
    return lambda ids, value, name, owner, place: table(ids).get(bytes(value) if is_bytes_like(value) else value, value)


def _producer_epoch(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.epoch(getattr(owner, name.removesuffix("epoch") + "id", NO_ID), value)


def _generation(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.generations.get((place.group, value), value)


def _leader_epoch(ids: Ids, value: int, name: str, owner: Value, place: Place) -> int:
    return ids.leader_epochs.get((place.topic, place.partition, value), value)


def _offset(ids: Ids, value: Any, name: str, owner: Value, place: Place) -> Any:
    return value + ids.shift(place) if isinstance(value, int) and value >= 0 else value


def _resource(ids: Ids, value: str, name: str, owner: Value, place: Place) -> str:
    if getattr(owner, "resource_type", 0) not in OF_NODES or not (value.isascii() and value.isdigit()):
        return value
    return str(ids.nodes.get(int(value), int(value)))


def _token(ids: Ids, value: Any, name: str, owner: Value, place: Place) -> Any:
    if isinstance(value, str):
        return ids.tokens.get(value, value)
    if bytes(value) in ids.tokens:
        return ids.tokens[bytes(value)]
    # Recordings have zeros for secrets.
    return value if ids.newest_token is None or any(value) else ids.newest_token


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(NODES, _in(lambda ids: ids.nodes)),
    **dict.fromkeys(LEADER_EPOCHS, _leader_epoch),
    **dict.fromkeys(OFFSETS, _offset),
    **dict.fromkeys(
        ("producer_id", "v3_and_below_producer_id", "ongoing_txn_producer_id", "producer_id_filters"),
        _in(lambda ids: ids.producers),
    ),
    **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch", "ongoing_txn_producer_epoch"), _producer_epoch),
    **dict.fromkeys(("member_id", "leader"), _in(lambda ids: ids.members)),
    **dict.fromkeys(("generation_id", "generation_id_or_member_epoch"), _generation),
    **dict.fromkeys(("hmac", "token_id"), _token),
    "topic_id": _in(lambda ids: ids.topic_ids),
    "cluster_id": _in(lambda ids: ids.clusters),
    "resource_name": _resource,
    "client_instance_id": _in(lambda ids: ids.instances),
    "subscription_id": _in(lambda ids: ids.subscriptions),
    "records": lambda ids, value, name, owner, place: ids.records(value),
}


# Learning

LATEST = -1  # the timestamp of ListOffsets for the log end offset
Learner = Callable[[Ids, Any, Any, Any], None]


def learn(ids: Ids, request: object, left: Any, right: Any) -> None:
    """Learns from both responses to `request`, which is the left's."""
    found = _LEARNERS.get(spec(type(request)).api_key)
    if found is not None:
        found(ids, request, left, right)


def learn_names(ids: Ids, response: Any) -> None:
    """Learns the names of the left's topic ids from a response that has both."""
    for topic in getattr(response, "topics", None) or ():
        name, topic_id = getattr(topic, "name", None), bytes(getattr(topic, "topic_id", ZERO_UUID))
        if name and topic_id != ZERO_UUID:
            ids.topic_names[topic_id] = name


def topics_without(ids: Ids, message: Any) -> Iterator[str]:
    """Yields the names of topics whose ids are in a message of the left and not mapped to the right yet."""
    for value in values_in(message):
        topic_id = bytes(getattr(value, "topic_id", ZERO_UUID))
        if topic_id != ZERO_UUID and topic_id not in ids.topic_ids and topic_id in ids.topic_names:
            yield ids.topic_names[topic_id]


def _ok(*responses: Any) -> bool:
    return all(one.error_code == ErrorCode.NONE for one in responses)


def _pairs(left: list[Any] | None, right: list[Any] | None, *names: str) -> Iterator[tuple[Any, Any]]:
    """Yields the pairs of elements with the same values in the fields `names`."""
    there = {tuple(getattr(one, name) for name in names): one for one in right or ()}
    for one in left or ():
        other = there.get(tuple(getattr(one, name) for name in names))
        if other is not None:
            yield one, other


def _topics(ids: Ids, left: list[Any] | None, right: list[Any] | None, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, left, right) of the topics in both lists, matched by name or, without names, by id."""
    there: dict[Any, Any] = {}
    for one in right or ():
        there[getattr(one, name) or bytes(one.topic_id)] = one
    for one in left or ():
        topic = getattr(one, name)
        topic_id = bytes(getattr(one, "topic_id", ZERO_UUID))
        other = there.get(topic or ids.topic_ids.get(topic_id, topic_id))
        if other is not None:
            yield topic or ids.topic_names.get(topic_id, topic_id.hex()), one, other


def _producer(ids: Ids, request: Any, left: Any, right: Any) -> None:
    if _ok(left, right) and left.producer_id >= 0 and right.producer_id >= 0:
        ids.producers[left.producer_id] = right.producer_id
        ids.epochs[left.producer_id, left.producer_epoch] = right.producer_epoch
    if getattr(left, "ongoing_txn_producer_id", -1) >= 0 and right.ongoing_txn_producer_id >= 0:
        ids.producers[left.ongoing_txn_producer_id] = right.ongoing_txn_producer_id
        epoch = left.ongoing_txn_producer_epoch
        ids.epochs[left.ongoing_txn_producer_id, epoch] = right.ongoing_txn_producer_epoch


def _join(ids: Ids, request: Any, left: Any, right: Any) -> None:
    with_member_id = {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}
    if left.error_code not in with_member_id or right.error_code not in with_member_id:
        return
    if left.member_id and right.member_id:
        ids.members[left.member_id] = right.member_id
    if not _ok(left, right):
        return
    ids.generations[request.group_id, left.generation_id] = right.generation_id
    # The leader's response lists all members: they are matched by their subscriptions, if these are unique.
    for one in left.members:
        same = [other for other in right.members if _sent(other) == _sent(one)]
        if (
            one.member_id not in ids.members
            and len(same) == 1
            and sum(_sent(o) == _sent(one) for o in left.members) == 1
        ):
            ids.members[one.member_id] = same[0].member_id


def _sent(member: Any) -> tuple[Any, bytes]:
    return member.group_instance_id, bytes(member.metadata)


def _learn_topic(ids: Ids, name: str | None, left: Any, right: Any) -> None:
    if left.topic_id != ZERO_UUID:
        if name:
            ids.topic_names[bytes(left.topic_id)] = name
        if right.topic_id != ZERO_UUID:
            ids.topic_ids[bytes(left.topic_id)] = bytes(right.topic_id)


def _learn_leader_epoch(ids: Ids, name: str, left: Any, right: Any) -> None:
    if left.leader_epoch >= 0 and right.leader_epoch >= 0:
        ids.leader_epochs[name, left.partition_index, left.leader_epoch] = right.leader_epoch


def _metadata(ids: Ids, request: Any, left: Any, right: Any) -> None:
    _cluster(ids, request, left, right)
    _described_topics(ids, request, left, right)


def _described_topics(ids: Ids, request: Any, left: Any, right: Any) -> None:
    for name, one, other in _topics(ids, left.topics, right.topics, "name"):
        _learn_topic(ids, name, one, other)
        for part, there in _pairs(one.partitions, other.partitions, "partition_index"):
            _learn_leader_epoch(ids, name, part, there)


def _created(ids: Ids, request: Any, left: Any, right: Any) -> None:
    for name, one, other in _topics(ids, left.topics, right.topics, "name"):
        _learn_topic(ids, name, one, other)
        if _ok(one):  # a new topic: its offsets begin at 0
            for place in [place for place in ids.shifts if place[0] == name]:
                del ids.shifts[place]


def _deleted(ids: Ids, request: Any, left: Any, right: Any) -> None:
    for name, one, other in _topics(ids, left.responses, right.responses, "name"):
        _learn_topic(ids, name, one, other)


def _cluster(ids: Ids, request: Any, left: Any, right: Any) -> None:
    if left.cluster_id and right.cluster_id:
        ids.clusters[left.cluster_id] = right.cluster_id


def _produced(ids: Ids, request: Any, left: Any, right: Any) -> None:
    for name, one, other in _topics(ids, left.responses, right.responses, "name"):
        for part, there in _pairs(one.partition_responses, other.partition_responses, "index"):
            if _ok(part, there) and part.base_offset >= 0 and there.base_offset >= 0:
                ids.shifts.setdefault((name, part.index), there.base_offset - part.base_offset)


def _listed(ids: Ids, request: Any, left: Any, right: Any) -> None:
    timestamps = {
        (topic.name, one.partition_index): one.timestamp for topic in request.topics for one in topic.partitions
    }
    for name, one, other in _topics(ids, left.topics, right.topics, "name"):
        for part, there in _pairs(one.partitions, other.partitions, "partition_index"):
            if not _ok(part, there):
                continue
            _learn_leader_epoch(ids, name, part, there)
            if timestamps.get((name, part.partition_index)) == LATEST and part.offset >= 0 and there.offset >= 0:
                ids.shifts.setdefault((name, part.partition_index), there.offset - part.offset)


def _learn_token(ids: Ids, request: Any, left: Any, right: Any) -> None:
    if _ok(left, right):
        ids.tokens[left.token_id] = right.token_id
        ids.newest_token = bytes(right.hmac)
        if any(left.hmac):
            ids.tokens[bytes(left.hmac)] = bytes(right.hmac)


def _subscribed(ids: Ids, request: Any, left: Any, right: Any) -> None:
    if _ok(left, right):
        ids.instances[bytes(left.client_instance_id)] = bytes(right.client_instance_id)
        ids.subscriptions[left.subscription_id] = right.subscription_id


# Errors of brokers that are not ready, on which clients retry: of a topic that is not on all brokers yet, and of a
# coordinator that loads its log or creates its topic.
OF_TOPICS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
OF_COORDINATORS = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


def error_codes(response: Any) -> Iterator[int]:
    """Yields every error code in a response, including nested ones."""
    for value in values_in(response):
        for name in fields_of(value).keys() & {"error_code", "partition_error_code"}:
            yield getattr(value, name)


WITH_TOPIC_NAMES = frozenset({ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS})
_LEARNERS: dict[int, Learner] = {
    0: _produced,
    2: _listed,
    3: _metadata,
    11: _join,
    19: _created,
    20: _deleted,
    22: _producer,
    26: _producer,
    38: _learn_token,
    60: _cluster,
    71: _subscribed,
    75: _described_topics,
}
