"""Changes of consumer groups as records of `__consumer_offsets`, in Apache Kafka's format (keys 3 to 8 and 16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....protocol.internal_records import consumer_group_records as schemas
from ..common_state import ClassicMember, CurrentSet, InfoSet, MemberState, Partitions, TargetSet
from ..record_form import Form, Format, Forms, assignment_epoch_form, epoch_form
from .state import Assigned, Current, Group, Info, RegexSet, Resolved, StoredTopics, TopicsSet


def _topics_value(topics: StoredTopics, _: Format) -> Any:
    topic = schemas.ConsumerGroupPartitionMetadataValue.TopicMetadata
    return schemas.ConsumerGroupPartitionMetadataValue(
        topics=[
            topic(
                topic_id=topic_id,
                topic_name=name,
                num_partitions=partitions,
                partition_metadata=[
                    topic.PartitionMetadata(partition=index, racks=list(of_it)) for index, of_it in enumerate(racks)
                ],
            )
            for topic_id, name, partitions, racks in topics
        ]
    )


def _info_value(info: Info, _: Format) -> Any:
    classic = schemas.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
    return schemas.ConsumerGroupMemberMetadataValue(
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


def _target_value(partitions: Partitions, _: Format) -> Any:
    topic = schemas.ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    ordered = {indexes: sorted(indexes) for indexes in set(partitions.values())}  # range: one for all topics
    return schemas.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            topic(topic_id=topic_id, partitions=ordered[indexes]) for topic_id, indexes in sorted(partitions.items())
        ]
    )


def _current_value(current: Current, written: Format) -> Any:
    return schemas.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        assigned_partitions=_stored(current.assigned, written),
        partitions_pending_revocation=_stored(current.revoking, written),
    )


def _stored(assigned: Assigned, written: Format) -> list[Any]:
    topic = schemas.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return [
        topic(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[index] for index in sorted(epochs)] if written.assignment_epochs else [],
        )
        for topic_id, epochs in sorted(assigned.items())
    ]


def _regex_value(resolved: Resolved, _: Format) -> Any:
    return schemas.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.at_ms
    )


# --- decoding --------------------------------------------------------------------------------------------------------


def _topics(value: schemas.ConsumerGroupPartitionMetadataValue) -> tuple[StoredTopics]:
    return (
        tuple(
            (
                one.topic_id,
                one.topic_name,
                one.num_partitions,
                tuple(tuple(partition.racks) for partition in one.partition_metadata),
            )
            for one in value.topics
        ),
    )


def _info(value: schemas.ConsumerGroupMemberMetadataValue) -> tuple[Info]:
    classic = value.classic_member_metadata
    info = Info(
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
    )
    return (info,)


def _target(value: schemas.ConsumerGroupTargetAssignmentMemberValue) -> tuple[Partitions]:
    return ({one.topic_id: frozenset(one.partitions) for one in value.topic_partitions},)


def _current(value: schemas.ConsumerGroupCurrentMemberAssignmentValue) -> tuple[Current]:
    current = Current(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_loaded(value.assigned_partitions, value.member_epoch),
        revoking=_loaded(value.partitions_pending_revocation, value.member_epoch),
    )
    return (current,)


_STATES = {state.value: state for state in MemberState}


def _loaded(
    topics: Iterable[schemas.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int
) -> Assigned:
    """Partitions without epochs, as written before 4.3, count as assigned in the epoch of the member."""
    found: dict[bytes, dict[int, int]] = {}
    for one in topics:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [max(member_epoch, 0)] * len(one.partitions)
        found[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return found


def _regex(value: schemas.ConsumerGroupRegularExpressionValue) -> tuple[Resolved]:
    return (Resolved(frozenset(value.topics), value.version, value.timestamp),)


FORMS = Forms(
    Group,
    epoch_form(3),
    Form(TopicsSet, 4, _topics_value, _topics),
    Form(InfoSet, 5, _info_value, _info),
    assignment_epoch_form(6),
    Form(TargetSet, 7, _target_value, _target),
    Form(CurrentSet, 8, _current_value, _current),
    Form(RegexSet, 16, _regex_value, _regex),
)
encode_all, decode = FORMS.encode_all, FORMS.decode
