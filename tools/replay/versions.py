"""Translates a request to another version, and responses of two versions to a common form.

Owns the changes of Kafka's messages between versions: a name became an id, a single value became a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...broker.handlers import HANDLERS
from ...broker.network.route import route_of
from ...protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ...protocol.messages.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ...protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ...protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ...protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ...protocol.messages.topics.metadata import MetadataRequest
from ...protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ...protocol.narrowing import is_list
from ...protocol.primitives import ZERO_UUID
from ...protocol.schema import Value, Versions, default_of, fields_of
from .name_mapping import TOPIC_FIELDS, Ids, changed


class CannotTranslate(Exception):
    """A version cannot express a request; the text is one line."""


def newest_shared(api_key: int, theirs: Versions, recorded: int) -> int | None:
    """Returns the version nearest to the recorded one that the right serves and Ottla has, or None."""
    if api_key not in HANDLERS:
        return None
    ours = route_of(api_key).versions
    best = min(max(recorded, theirs.first), theirs.last)
    return best if best in ours else None


def in_version(request: object, version: int, ids: Ids) -> Any:
    """Translates a request with ids of the right to another version. Raises CannotTranslate."""
    shaped = _SHAPES.get(type(request))
    if shaped is not None:
        request = shaped(request, version)
    return _named(request, version, ids)


def _named(value: Any, version: int, ids: Ids) -> Any:
    """Replaces topic ids by names, or names by ids, as the version requires."""
    if is_list(value):
        return [_named(one, version, ids) for one in value]
    if not isinstance(value, Value):
        return value
    fields = fields_of(value)
    found = {name: _named(getattr(value, name), version, ids) for name in fields}
    names = [name for name in TOPIC_FIELDS if name in fields]
    if names and "topic_id" in fields:
        name = names[0]
        topic, topic_id = found[name], bytes(found["topic_id"])
        if version not in fields["topic_id"].versions and topic_id != ZERO_UUID:
            found[name] = topic or ids.name_on_right(topic_id)
            found["topic_id"] = ZERO_UUID
        elif version not in fields[name].versions and topic:
            found["topic_id"] = ids.id_on_right(topic)
            found[name] = ""
        if not found[name] and found["topic_id"] in (None, ZERO_UUID):
            raise CannotTranslate(
                f"v{version} needs the topic's name instead of its id, or the reverse, which is unknown"
            )
    return type(value)(**found)


def _only(items: list[Any], what: str, version: int) -> Any:
    if len(items) != 1:
        raise CannotTranslate(f"v{version} allows one {what}, the request has {len(items)}")
    return items[0]


def _find_coordinator(request: Any, version: int) -> Any:
    if version >= 4:
        keys = request.coordinator_keys or [request.key]
        return changed(request, key="", coordinator_keys=keys)
    key = _only(request.coordinator_keys, "key", version) if request.coordinator_keys else request.key
    return changed(request, key=key, coordinator_keys=[])


def _leave_group(request: Any, version: int) -> Any:
    if version >= 3:
        members = request.members or [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        return changed(request, member_id="", members=members)
    if not request.members:
        return request
    member = _only(request.members, "member", version)
    if member.group_instance_id is not None:
        raise CannotTranslate(f"v{version} has no static members")
    return changed(request, member_id=member.member_id, members=[])


def _offset_fetch(request: Any, version: int) -> Any:
    if version < 7:
        request = changed(request, require_stable=False)
    if version >= 8:
        if request.groups:
            return request
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = request.topics and [
            kind.OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes)
            for one in request.topics
        ]
        return changed(request, group_id="", topics=[], groups=[kind(group_id=request.group_id, topics=topics)])
    if not request.groups:
        return request
    group = _only(request.groups, "group", version)
    plain = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = group.topics and [plain(name=one.name, partition_indexes=one.partition_indexes) for one in group.topics]
    return changed(request, group_id=group.group_id, topics=topics, groups=[])


def _delete_topics(request: Any, version: int) -> Any:
    if version >= 6:
        state = DeleteTopicsRequest.DeleteTopicState
        topics = request.topics or [state(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
        return changed(request, topics=topics, topic_names=[])
    if any(not one.name for one in request.topics):
        raise CannotTranslate(f"v{version} cannot delete topics by id")
    return changed(request, topics=[], topic_names=request.topic_names or [one.name for one in request.topics])


def _metadata(request: Any, version: int) -> Any:
    request = _without_flags(request, version)
    return changed(request, topics=[]) if version == 0 and request.topics is None else request


def _without_flags(request: Value, version: int) -> Any:
    """Drops optional fields that the version lacks, as clients do."""
    lacking = [name for name, field in fields_of(request).items() if version not in field.versions]
    return changed(request, **{name: default_of(type(request), name) for name in lacking if name not in ("topics",)})


_SHAPES: dict[type, Callable[[Any, int], Any]] = {
    FindCoordinatorRequest: _find_coordinator,
    LeaveGroupRequest: _leave_group,
    OffsetFetchRequest: _offset_fetch,
    DeleteTopicsRequest: _delete_topics,
    MetadataRequest: _metadata,
    DescribeConfigsRequest: _without_flags,
    TxnOffsetCommitRequest: _without_flags,
}


def one_shape(request: Any, response: Any) -> Any:
    """Translates a response to the form common to all versions. `request` is its request, in any version."""
    if isinstance(response, FindCoordinatorResponse) and not response.coordinators:
        names = ("node_id", "host", "port", "error_code", "error_message")
        key = request.key or next(iter(request.coordinator_keys), "")
        coordinator = FindCoordinatorResponse.Coordinator(key=key, **{name: getattr(response, name) for name in names})
        return FindCoordinatorResponse(coordinators=[coordinator])
    if isinstance(response, OffsetFetchResponse) and not response.groups:
        kind = OffsetFetchResponse.OffsetFetchResponseGroup
        topics = [_group_topic(kind.OffsetFetchResponseTopics, one) for one in response.topics]
        group_id = request.group_id or next((one.group_id for one in request.groups), "")
        group = kind(group_id=group_id, topics=topics, error_code=response.error_code)
        return OffsetFetchResponse(groups=[group])
    if isinstance(response, LeaveGroupResponse) and len(response.members) == 1 and not response.error_code:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response


def _group_topic(kind: Any, topic: Any) -> Any:
    part = kind.OffsetFetchResponsePartitions
    partitions = [part(**{name: getattr(one, name) for name in fields_of(one)}) for one in topic.partitions]
    return kind(name=topic.name, partitions=partitions)
