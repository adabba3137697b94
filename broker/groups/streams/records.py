"""Changes of a streams group as records of `__consumer_offsets`, in Apache Kafka's format (keys 17 and 19 to 23)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....protocol.internal_records import streams_group_records as schemas
from ....protocol.internal_records.streams_group_records import CurrentTaskIds
from ....protocol.messages.streams import parts
from ....protocol.messages.streams.parts import KeyValue, TaskIds, TopicInfo
from ..common_state import CurrentSet, InfoSet, MemberState, TargetSet
from ..record_form import Form, Format, Forms, assignment_epoch_form
from .state import Current, Endpoint, EpochSet, Group, HeldTasks, Info, TopologySet
from .values import CopartitionGroup, InternalTopic, Subtopology, Tasks, TasksTuple, Topology


def _pairs(mapping: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in sorted(mapping.items())]


def _epoch_value(
    epoch: int,
    metadata_hash: int,
    validated_epoch: int,
    configs: Mapping[str, str],
    description: tuple[int, int],
    _: Format,
) -> Any:
    stored, failed = description
    return schemas.StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=_pairs(configs),
        stored_description_topology_epoch=stored,
        failed_description_topology_epoch=failed,
    )


def _info_value(info: Info, _: Format) -> Any:
    endpoint = info.endpoint
    return schemas.StreamsGroupMemberMetadataValue(
        instance_id=info.instance_id,
        rack_id=info.rack_id,
        client_id=info.client_id,
        client_host=info.client_host,
        rebalance_timeout_ms=info.rebalance_timeout_ms,
        topology_epoch=info.topology_epoch,
        process_id=info.process_id,
        user_endpoint=None if endpoint is None else parts.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_pairs(info.tags),
    )


def _target_value(given: TasksTuple, _: Format) -> Any:
    active, standby, warmup = map(task_ids, given)
    return schemas.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=active, standby_tasks=standby, warmup_tasks=warmup
    )


def task_ids(tasks: Tasks) -> list[TaskIds]:
    """Returns tasks as messages and records have them."""
    return [TaskIds(subtopology_id=id, partitions=sorted(found)) for id, found in sorted(tasks.items())]


def _current_value(current: Current, _: Format) -> Any:
    assigned, revoking = current.assigned, current.revoking
    return schemas.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=_STATES[current.state],
        active_tasks=_with_epochs(assigned),
        standby_tasks=_listed(assigned.standby),
        warmup_tasks=_listed(assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(revoking),
        standby_tasks_pending_revocation=_listed(revoking.standby),
        warmup_tasks_pending_revocation=_listed(revoking.warmup),
    )


def _with_epochs(held: HeldTasks) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(
            subtopology_id=id, partitions=sorted(epochs), assignment_epochs=[epochs[index] for index in sorted(epochs)]
        )
        for id, epochs in sorted(held.active.items())
    ]


def _listed(tasks: Tasks) -> list[CurrentTaskIds]:
    return [CurrentTaskIds(subtopology_id=id, partitions=sorted(found)) for id, found in sorted(tasks.items())]


def _topology_value(topology: Topology, _: Format) -> Any:
    return schemas.StreamsGroupTopologyValue(
        epoch=topology.epoch, subtopologies=[_stored(part) for part in topology.subtopologies.values()]
    )


def _stored(part: Subtopology) -> parts.Subtopology:
    return parts.Subtopology(
        subtopology_id=part.id,
        source_topics=list(part.source_topics),
        source_topic_regex=list(part.source_regexes),
        state_changelog_topics=topic_infos(part.changelogs),
        repartition_sink_topics=list(part.repartition_sinks),
        repartition_source_topics=topic_infos(part.repartition_sources),
        copartition_groups=[
            parts.Subtopology.CopartitionGroup(
                source_topics=list(one.source_topics),
                source_topic_regex=list(one.source_regexes),
                repartition_source_topics=list(one.repartition_sources),
            )
            for one in part.copartition_groups
        ],
    )


def topic_infos(topics: Iterable[InternalTopic]) -> list[TopicInfo]:
    """Returns internal topics as messages and records have them."""
    return [
        TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in one.configs],
        )
        for one in topics
    ]


# --- decoding --------------------------------------------------------------------------------------------------------


def _epoch(value: schemas.StreamsGroupMetadataValue) -> tuple[Any, ...]:
    configs = {one.key: one.value for one in value.last_assignment_configs or ()}
    description = value.stored_description_topology_epoch, value.failed_description_topology_epoch
    return value.epoch, value.metadata_hash, value.validated_topology_epoch, configs, description


def _info(value: schemas.StreamsGroupMemberMetadataValue) -> tuple[Info]:
    endpoint = value.user_endpoint
    info = Info(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags={one.key: one.value for one in value.client_tags},
    )
    return (info,)


def _target(value: schemas.StreamsGroupTargetAssignmentMemberValue) -> tuple[TasksTuple]:
    return (TasksTuple(_tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)),)


def _tasks(listed: Iterable[TaskIds | CurrentTaskIds]) -> dict[str, frozenset[int]]:
    return {one.subtopology_id: frozenset(one.partitions) for one in listed if one.partitions}


def _current(value: schemas.StreamsGroupCurrentMemberAssignmentValue) -> tuple[Current]:
    epoch = value.member_epoch
    assigned = HeldTasks(_loaded(value.active_tasks, epoch), _tasks(value.standby_tasks), _tasks(value.warmup_tasks))
    revoking = HeldTasks(
        _loaded(value.active_tasks_pending_revocation, epoch),
        _tasks(value.standby_tasks_pending_revocation),
        _tasks(value.warmup_tasks_pending_revocation),
    )
    state = next((state for state, number in _STATES.items() if number == value.state), MemberState.UNKNOWN)
    return (Current(epoch, value.previous_member_epoch, state, assigned, revoking),)


_STATES = {MemberState.STABLE: 1, MemberState.UNREVOKED: 2, MemberState.UNRELEASED: 3, MemberState.UNKNOWN: 127}


def _loaded(listed: Iterable[CurrentTaskIds], member_epoch: int) -> dict[str, dict[int, int]]:
    """Active tasks without epochs, as written before 4.2, count as assigned in the epoch of the member."""
    found: dict[str, dict[int, int]] = {}
    for one in listed:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [member_epoch] * len(one.partitions)
        if one.partitions:
            found[one.subtopology_id] = dict(zip(one.partitions, epochs, strict=True))
    return found


def _topology(value: schemas.StreamsGroupTopologyValue) -> tuple[Topology]:
    return (Topology(value.epoch, {part.subtopology_id: subtopology_of(part) for part in value.subtopologies}),)


def subtopology_of(part: parts.Subtopology) -> Subtopology:
    """Returns a subtopology from its record or from a heartbeat."""
    return Subtopology(
        part.subtopology_id,
        tuple(part.source_topics),
        tuple(part.source_topic_regex),
        tuple(part.repartition_sink_topics),
        _internal(part.state_changelog_topics),
        _internal(part.repartition_source_topics),
        tuple(
            CopartitionGroup(
                tuple(one.source_topics), tuple(one.source_topic_regex), tuple(one.repartition_source_topics)
            )
            for one in part.copartition_groups
        ),
    )


def _internal(topics: Iterable[TopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            one.name,
            one.partitions,
            one.replication_factor,
            tuple((config.key, config.value) for config in one.topic_configs),
        )
        for one in topics
    )


FORMS = Forms(
    Group,
    Form(EpochSet, 17, _epoch_value, _epoch),
    Form(InfoSet, 19, _info_value, _info),
    assignment_epoch_form(20),
    Form(TargetSet, 21, _target_value, _target),
    Form(CurrentSet, 22, _current_value, _current),
    Form(TopologySet, 23, _topology_value, _topology),
)
encode_all, decode = FORMS.encode_all, FORMS.decode
