"""Changes of a share group as records of `__consumer_offsets`, in Apache Kafka's format (keys 10 to 15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from ....protocol.internal_records import share_group_records as schemas
from ....protocol.internal_records.share_group_records import TopicInfo, TopicPartitions, TopicPartitionsInfo
from ....protocol.named import NamedTuple
from ..record_form import read_record, readers, write_record
from .assignor import Partitions
from .state import (
    UNRECORDED,
    AssignmentEpochSet,
    Change,
    Current,
    CurrentSet,
    EpochSet,
    Info,
    InfoSet,
    Initialization,
    InitializationSet,
    Initialized,
    TargetSet,
)

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""

MEMBER, GROUP, TARGET_EPOCH, TARGET, CURRENT, INITIALIZATION = range(10, 16)
KEY_TYPES = range(MEMBER, INITIALIZATION + 1)
STABLE = 0  # the only state of a member

_KEYS: dict[int, type[Any]] = {
    MEMBER: schemas.ShareGroupMemberMetadataKey,
    GROUP: schemas.ShareGroupMetadataKey,
    TARGET_EPOCH: schemas.ShareGroupTargetAssignmentMetadataKey,
    TARGET: schemas.ShareGroupTargetAssignmentMemberKey,
    CURRENT: schemas.ShareGroupCurrentMemberAssignmentKey,
    INITIALIZATION: schemas.ShareGroupStatePartitionMetadataKey,
}
_VALUES: dict[int, type[Any]] = {
    MEMBER: schemas.ShareGroupMemberMetadataValue,
    GROUP: schemas.ShareGroupMetadataValue,
    TARGET_EPOCH: schemas.ShareGroupTargetAssignmentMetadataValue,
    TARGET: schemas.ShareGroupTargetAssignmentMemberValue,
    CURRENT: schemas.ShareGroupCurrentMemberAssignmentValue,
    INITIALIZATION: schemas.ShareGroupStatePartitionMetadataValue,
}
_OF_MEMBER = (MEMBER, TARGET, CURRENT)


def encode_all(group_id: str, changes: Iterable[Change], *, has_times: bool = True) -> list[Record]:
    """Returns the records of changes, in order. `has_times` stores the time of a target assignment, as since 4.3.

    Raises MalformedMessage if a string is too long.
    """
    return [_encoded(group_id, change, has_times) for change in changes if not isinstance(change, UNRECORDED)]


def _encoded(group_id: str, change: Change, has_times: bool) -> Record:
    assert not isinstance(change, UNRECORDED)
    kind = _kind(change)
    member = {"member_id": change[0]} if kind in _OF_MEMBER else {}
    return write_record(_KEYS[kind](group_id=group_id, **member), _value(change, has_times))


def _kind(change: Change) -> int:
    kinds: dict[type, int] = {
        InfoSet: MEMBER,
        EpochSet: GROUP,
        AssignmentEpochSet: TARGET_EPOCH,
        TargetSet: TARGET,
        CurrentSet: CURRENT,
        InitializationSet: INITIALIZATION,
    }
    return kinds[type(change)]


def _value(change: Change, has_times: bool) -> Any:
    if isinstance(change, InfoSet):
        info = change.info
        return info and schemas.ShareGroupMemberMetadataValue(
            rack_id=info.rack_id,
            client_id=info.client_id,
            client_host=info.client_host,
            subscribed_topic_names=sorted(info.topics),
        )
    if isinstance(change, EpochSet):
        epoch = change.epoch
        return (
            None if epoch is None else schemas.ShareGroupMetadataValue(epoch=epoch, metadata_hash=change.metadata_hash)
        )
    if isinstance(change, AssignmentEpochSet):
        if change.epoch is None:
            return None
        at_ms = change.at_ms if has_times else 0
        return schemas.ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=change.epoch, assignment_timestamp=at_ms
        )
    if isinstance(change, TargetSet):
        if change.partitions is None:
            return None
        return schemas.ShareGroupTargetAssignmentMemberValue(topic_partitions=_listed(change.partitions))
    if isinstance(change, CurrentSet):
        current = change.current
        return current and schemas.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=STABLE,
            assigned_partitions=_listed(current.assigned),
        )
    assert isinstance(change, InitializationSet)
    found = change.initialization
    return found and schemas.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(found.initializing),
        initialized_topics=_infos(found.initialized),
        deleting_topics=[TopicInfo(topic_id=id, topic_name=name) for id, name in found.deleting.items()],
    )


def _listed(partitions: Partitions) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=id, partitions=sorted(found)) for id, found in partitions.items()]


def _infos(topics: Mapping[bytes, Initialized]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for id, topic in topics.items()
    ]


class ShareGroupChange(NamedTuple):
    """A decoded record."""

    group_id: str
    change: Change


def decode(kind: int, key: bytes, value: bytes | None) -> ShareGroupChange | None:
    """Decodes a record with a key of this kind; None for another kind of group. An initialization that was not complete
    begins again. Raises MalformedMessage.
    """
    read = read_record(_READERS, kind, key, value)
    return None if read is None else ShareGroupChange(read.group_id, read.change)


def _change(kind: int, key: Any, value: Any) -> Change:
    if kind == MEMBER:
        if value is None:
            return InfoSet(key.member_id, None)
        topics = frozenset(value.subscribed_topic_names)
        return InfoSet(key.member_id, Info(value.rack_id, value.client_id, value.client_host, topics))
    if kind == GROUP:
        return EpochSet(None) if value is None else EpochSet(value.epoch, value.metadata_hash)
    if kind == TARGET_EPOCH:
        if value is None:
            return AssignmentEpochSet(None)
        return AssignmentEpochSet(value.assignment_epoch, value.assignment_timestamp)
    if kind == TARGET:
        return TargetSet(key.member_id, None if value is None else _by_id(value.topic_partitions))
    if kind == CURRENT:
        if value is None:
            return CurrentSet(key.member_id, None)
        assigned = _by_id(value.assigned_partitions)
        return CurrentSet(key.member_id, Current(value.member_epoch, value.previous_member_epoch, assigned))
    if value is None:
        return InitializationSet(None)
    return InitializationSet(
        Initialization(
            _topics(value.initializing_topics),
            _topics(value.initialized_topics),
            {one.topic_id: one.topic_name for one in value.deleting_topics},
        )
    )


def _by_id(listed: list[TopicPartitions]) -> Partitions:
    return {one.topic_id: frozenset(one.partitions) for one in listed}


def _topics(listed: list[TopicPartitionsInfo]) -> dict[bytes, Initialized]:
    return {one.topic_id: Initialized(one.topic_name, frozenset(one.partitions)) for one in listed}


_READERS = readers(*((_KEYS[kind], _VALUES[kind], partial(_change, kind)) for kind in KEY_TYPES))
