"""Changes of consumer protocol groups as records of `__consumer_offsets`, in Apache Kafka's format.

The keys have the types 3 to 8 and 16, a null value is a tombstone. `Format` has what differs between releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ....protocol.internal_records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ....protocol.named import NamedTuple
from ..record_form import read_record, readers, write_record
from .state import (
    Assigned,
    AssignmentEpochSet,
    Change,
    Checked,
    ClassicMember,
    Current,
    CurrentSet,
    EpochSet,
    Info,
    InfoSet,
    MemberState,
    Partitions,
    RegexSet,
    Resolved,
    TargetSet,
    TopicsSet,
)

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""


class Format(NamedTuple):
    """The fields that a release writes: the epoch of each partition's assignment, and the time of the target
    assignment, both since 4.3.
    """

    assignment_epochs: bool = True
    assignment_time: bool = True


class GroupChange(NamedTuple):
    """A decoded record."""

    group_id: str
    change: Change
    is_tombstone: bool


def encode(group_id: str, change: Change, written: Format) -> Record | None:
    """Returns the record of a change; None for one that is not stored. Raises MalformedMessage if a string is too
    long.
    """
    if isinstance(change, Checked):
        return None
    key_class, make_key, make_value = _ENCODERS[type(change)]
    return write_record(make_key(key_class, group_id, change), make_value(change, written))


def encode_all(group_id: str, changes: Iterable[Change], written: Format) -> list[Record]:
    """Returns the records of changes, in order."""
    return [record for change in changes if (record := encode(group_id, change, written)) is not None]


def _of_group(key: type[Any], group_id: str, change: Any) -> Any:
    return key(group_id=group_id)


def _of_member(key: type[Any], group_id: str, change: Any) -> Any:
    return key(group_id=group_id, member_id=change.member_id)


def _of_regex(key: type[Any], group_id: str, change: Any) -> Any:
    return key(group_id=group_id, regular_expression=change.regex)


def _epoch_value(change: EpochSet, _: Format) -> Any:
    if change.epoch is None:
        return None
    return ConsumerGroupMetadataValue(epoch=change.epoch, metadata_hash=change.metadata_hash)


def _topics_value(change: TopicsSet, _: Format) -> Any:
    if change.topics is None:
        return None
    topic = ConsumerGroupPartitionMetadataValue.TopicMetadata
    return ConsumerGroupPartitionMetadataValue(
        topics=[
            topic(
                topic_id=topic_id,
                topic_name=name,
                num_partitions=partitions,
                partition_metadata=[
                    topic.PartitionMetadata(partition=index, racks=list(of_it)) for index, of_it in enumerate(racks)
                ],
            )
            for topic_id, name, partitions, racks in change.topics
        ]
    )


def _info_value(change: InfoSet, _: Format) -> Any:
    info = change.info
    if info is None:
        return None
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
    return ConsumerGroupMemberMetadataValue(
        instance_id=info.instance_id,
        rack_id=info.rack_id,
        client_id=info.client_id,
        client_host=info.client_host,
        subscribed_topic_names=sorted(info.topics),
        subscribed_topic_regex=info.regex,
        rebalance_timeout_ms=info.rebalance_timeout_ms,
        server_assignor=info.assignor,
        classic_member_metadata=None
        if info.classic is None
        else classic(
            session_timeout_ms=info.classic.session_timeout_ms,
            supported_protocols=[
                classic.ClassicProtocol(name=name, metadata=metadata) for name, metadata in info.classic.protocols
            ],
        ),
    )


def _assignment_epoch_value(change: AssignmentEpochSet, written: Format) -> Any:
    if change.epoch is None:
        return None
    return ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=change.epoch, assignment_timestamp=change.at_ms if written.assignment_time else 0
    )


def _target_value(change: TargetSet, _: Format) -> Any:
    if change.partitions is None:
        return None
    topic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    ordered = {indexes: sorted(indexes) for indexes in set(change.partitions.values())}  # range: one for all topics
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            topic(topic_id=topic_id, partitions=ordered[indexes])
            for topic_id, indexes in sorted(change.partitions.items())
        ]
    )


def _current_value(change: CurrentSet, written: Format) -> Any:
    current = change.current
    if current is None:
        return None
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        assigned_partitions=_stored(current.assigned, written),
        partitions_pending_revocation=_stored(current.revoking, written),
    )


def _stored(assigned: Assigned, written: Format) -> list[Any]:
    topic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return [
        topic(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[index] for index in sorted(epochs)] if written.assignment_epochs else [],
        )
        for topic_id, epochs in sorted(assigned.items())
    ]


def _regex_value(change: RegexSet, _: Format) -> Any:
    if change.resolved is None:
        return None
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(change.resolved.topics), version=change.resolved.version, timestamp=change.resolved.at_ms
    )


_ENCODERS: dict[type, tuple[type[Any], Callable[[Any, Any, Any], Any], Callable[[Any, Format], Any]]] = {
    EpochSet: (ConsumerGroupMetadataKey, _of_group, _epoch_value),
    TopicsSet: (ConsumerGroupPartitionMetadataKey, _of_group, _topics_value),
    InfoSet: (ConsumerGroupMemberMetadataKey, _of_member, _info_value),
    AssignmentEpochSet: (ConsumerGroupTargetAssignmentMetadataKey, _of_group, _assignment_epoch_value),
    TargetSet: (ConsumerGroupTargetAssignmentMemberKey, _of_member, _target_value),
    CurrentSet: (ConsumerGroupCurrentMemberAssignmentKey, _of_member, _current_value),
    RegexSet: (ConsumerGroupRegularExpressionKey, _of_regex, _regex_value),
}

# --- decoding --------------------------------------------------------------------------------------------------------


def decode(key_type: int, key: bytes, value: bytes | None) -> GroupChange | None:
    """Decodes a record; None for another key type. Raises MalformedMessage."""
    read = read_record(_DECODERS, key_type, key, value)
    return None if read is None else GroupChange(*read)


def _epoch(_: Any, value: ConsumerGroupMetadataValue | None) -> Change:
    return EpochSet(None) if value is None else EpochSet(value.epoch, value.metadata_hash)


def _topics(_: Any, value: ConsumerGroupPartitionMetadataValue | None) -> Change:
    if value is None:
        return TopicsSet(None)
    return TopicsSet(
        tuple(
            (
                one.topic_id,
                one.topic_name,
                one.num_partitions,
                tuple(tuple(partition.racks) for partition in one.partition_metadata),
            )
            for one in value.topics
        )
    )


def _info(key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None) -> Change:
    if value is None:
        return InfoSet(key.member_id, None)
    classic = value.classic_member_metadata
    return InfoSet(
        key.member_id,
        Info(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMember(
                classic.session_timeout_ms,
                tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols),
            ),
        ),
    )


def _assignment_epoch(_: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> Change:
    if value is None:
        return AssignmentEpochSet(None)
    return AssignmentEpochSet(value.assignment_epoch, value.assignment_timestamp)


def _target(
    key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
) -> Change:
    if value is None:
        return TargetSet(key.member_id, None)
    partitions: Partitions = {one.topic_id: frozenset(one.partitions) for one in value.topic_partitions}
    return TargetSet(key.member_id, partitions)


def _current(
    key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
) -> Change:
    if value is None:
        return CurrentSet(key.member_id, None)
    return CurrentSet(
        key.member_id,
        Current(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_loaded(value.assigned_partitions, value.member_epoch),
            revoking=_loaded(value.partitions_pending_revocation, value.member_epoch),
        ),
    )


_STATES = {state.value: state for state in MemberState}


def _loaded(topics: Iterable[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int) -> Assigned:
    """Partitions without epochs, as written before 4.3, count as assigned in the epoch of the member."""
    found: dict[bytes, dict[int, int]] = {}
    for one in topics:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [max(member_epoch, 0)] * len(one.partitions)
        found[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return found


def _regex(key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None) -> Change:
    if value is None:
        return RegexSet(key.regular_expression, None)
    return RegexSet(key.regular_expression, Resolved(frozenset(value.topics), value.version, value.timestamp))


_DECODERS = readers(
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, _epoch),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, _topics),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, _info),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, _assignment_epoch),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, _target),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, _current),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, _regex),
)
