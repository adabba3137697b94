"""Changes of a share group as records of `__consumer_offsets`, in Apache Kafka's format (keys 10 to 15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....protocol.internal_records import share_group_records as schemas
from ....protocol.internal_records.share_group_records import TopicInfo, TopicPartitions, TopicPartitionsInfo
from ..common_state import CurrentSet, InfoSet, Partitions, TargetSet
from ..record_form import Form, Format, Forms, assignment_epoch_form, epoch_form
from .state import Current, Group, Info, Initialization, InitializationSet, Initialized


def _info_value(info: Info, _: Format) -> Any:
    return schemas.ShareGroupMemberMetadataValue(
        rack_id=info.rack_id,
        client_id=info.client_id,
        client_host=info.client_host,
        subscribed_topic_names=sorted(info.topics),
    )


def _target_value(partitions: Partitions, _: Format) -> Any:
    return schemas.ShareGroupTargetAssignmentMemberValue(topic_partitions=_listed(partitions))


def _current_value(current: Current, _: Format) -> Any:
    return schemas.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
        assigned_partitions=_listed(current.assigned),
    )


def _initialization_value(found: Initialization, _: Format) -> Any:
    return schemas.ShareGroupStatePartitionMetadataValue(
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


# --- decoding --------------------------------------------------------------------------------------------------------


def _info(value: schemas.ShareGroupMemberMetadataValue) -> tuple[Info]:
    info = Info(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )
    return (info,)


def _target(value: schemas.ShareGroupTargetAssignmentMemberValue) -> tuple[Partitions]:
    return (_by_id(value.topic_partitions),)


def _current(value: schemas.ShareGroupCurrentMemberAssignmentValue) -> tuple[Current]:
    assigned = _by_id(value.assigned_partitions)
    return (Current(value.member_epoch, value.previous_member_epoch, assigned=assigned),)


def _initialization(value: schemas.ShareGroupStatePartitionMetadataValue) -> tuple[Initialization]:
    """Reads the state of share partitions. An initialization that was not complete begins again."""
    deleting = {one.topic_id: one.topic_name for one in value.deleting_topics}
    return (Initialization(_topics(value.initializing_topics), _topics(value.initialized_topics), deleting),)


def _by_id(listed: list[TopicPartitions]) -> Partitions:
    return {one.topic_id: frozenset(one.partitions) for one in listed}


def _topics(listed: list[TopicPartitionsInfo]) -> dict[bytes, Initialized]:
    return {one.topic_id: Initialized(one.topic_name, frozenset(one.partitions)) for one in listed}


FORMS = Forms(
    Group,
    Form(InfoSet, 10, _info_value, _info),
    epoch_form(11),
    assignment_epoch_form(12),
    Form(TargetSet, 13, _target_value, _target),
    Form(CurrentSet, 14, _current_value, _current),
    Form(InitializationSet, 15, _initialization_value, _initialization),
)
encode_all, decode = FORMS.encode_all, FORMS.decode
