"""Learns the mapping of ids between two brokers from pairs of responses to the same request.

Owns the rules by API. Nothing is learned from an error response of either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.narrowing import is_list
from ...protocol.primitives import ZERO_UUID
from ...protocol.schema import Value, fields_of, spec
from .name_mapping import Ids

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


def topics_without(ids: Ids, value: Any) -> Iterator[str]:
    """Yields the names of topics whose ids are in a message of the left and not mapped to the right yet."""
    if is_list(value):
        for one in value:
            yield from topics_without(ids, one)
    elif isinstance(value, Value):
        topic_id = bytes(getattr(value, "topic_id", ZERO_UUID))
        if topic_id != ZERO_UUID and topic_id not in ids.topic_ids and topic_id in ids.topic_names:
            yield ids.topic_names[topic_id]
        for name in fields_of(value):
            if isinstance(inner := getattr(value, name), Value | list):
                yield from topics_without(ids, inner)


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


def _topic(ids: Ids, name: str | None, left: Any, right: Any) -> None:
    """Learns the id of a topic."""
    if left.topic_id != ZERO_UUID:
        if name:
            ids.topic_names[bytes(left.topic_id)] = name
        if right.topic_id != ZERO_UUID:
            ids.topic_ids[bytes(left.topic_id)] = bytes(right.topic_id)


def _leader_epochs(ids: Ids, name: str, left: Any, right: Any) -> None:
    for one, other in _pairs(left.partitions, right.partitions, "partition_index"):
        if one.leader_epoch >= 0 and other.leader_epoch >= 0:
            ids.leader_epochs[name, one.partition_index, one.leader_epoch] = other.leader_epoch


def _metadata(ids: Ids, request: Any, left: Any, right: Any) -> None:
    if left.cluster_id and right.cluster_id:
        ids.clusters[left.cluster_id] = right.cluster_id
    _described_topics(ids, request, left, right)


def _described_topics(ids: Ids, request: Any, left: Any, right: Any) -> None:
    for name, one, other in _topics(ids, left.topics, right.topics, "name"):
        _topic(ids, name, one, other)
        _leader_epochs(ids, name, one, other)


def _created(ids: Ids, request: Any, left: Any, right: Any) -> None:
    for name, one, other in _topics(ids, left.topics, right.topics, "name"):
        _topic(ids, name, one, other)
        if _ok(one):  # a new topic: its offsets begin at 0
            _forget(ids, name)


def _deleted(ids: Ids, request: Any, left: Any, right: Any) -> None:
    for name, one, other in _topics(ids, left.responses, right.responses, "name"):
        _topic(ids, name, one, other)


def _forget(ids: Ids, topic: str) -> None:
    for place in [place for place in ids.shifts if place[0] == topic]:
        del ids.shifts[place]


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
            if part.leader_epoch >= 0 and there.leader_epoch >= 0:
                ids.leader_epochs[name, part.partition_index, part.leader_epoch] = there.leader_epoch
            if timestamps.get((name, part.partition_index)) == LATEST and part.offset >= 0 and there.offset >= 0:
                ids.shifts.setdefault((name, part.partition_index), there.offset - part.offset)


def _token(ids: Ids, request: Any, left: Any, right: Any) -> None:
    if _ok(left, right):
        ids.tokens[left.token_id] = right.token_id
        ids.newest_token = bytes(right.hmac)
        if any(left.hmac):
            ids.tokens[bytes(left.hmac)] = bytes(right.hmac)


def _subscribed(ids: Ids, request: Any, left: Any, right: Any) -> None:
    if _ok(left, right):
        ids.instances[bytes(left.client_instance_id)] = bytes(right.client_instance_id)
        ids.subscriptions[left.subscription_id] = right.subscription_id


def error_codes(response: Any) -> Iterator[int]:
    """Yields every error code in a response, including nested ones."""
    if is_list(response):
        for one in response:
            yield from error_codes(one)
    elif isinstance(response, Value):
        for name in fields_of(response):
            value = getattr(response, name)
            if name in ("error_code", "partition_error_code"):
                yield value
            elif isinstance(value, Value | list):
                yield from error_codes(value)


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
    38: _token,
    60: _cluster,
    71: _subscribed,
    75: _described_topics,
}
