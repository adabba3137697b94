"""Changes of a streams group as records of `__consumer_offsets`, in Apache Kafka's format (keys 17 and 19 to 23)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ....protocol.internal_records import streams_group_records as schemas
from ....protocol.internal_records.streams_group_records import CurrentTaskIds, KeyValue, TaskIds
from ....protocol.named import NamedTuple
from ..record_form import read_record, readers, write_record
from .state import (
    RECORDED,
    AssignmentEpochSet,
    Change,
    Current,
    CurrentSet,
    Endpoint,
    EpochSet,
    HeldTasks,
    Info,
    InfoSet,
    MemberState,
    TargetSet,
    TopologySet,
)
from .values import CopartitionGroup, InternalTopic, Subtopology, Tasks, TasksTuple, Topology

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""
StoredSubtopology = schemas.StreamsGroupTopologyValue.Subtopology


class StreamsGroupChange(NamedTuple):
    """A decoded record of a streams group."""

    group_id: str
    change: Change
    is_tombstone: bool


def encode_all(group_id: str, changes: Iterable[Change], *, has_times: bool = True) -> list[Record]:
    """Returns the records of changes, in order. `has_times` stores the time of a target assignment, as since 4.3.

    Raises MalformedMessage if a string is too long.
    """
    records: list[Record] = []
    for change in changes:
        if isinstance(change, RECORDED):
            if isinstance(change, AssignmentEpochSet) and not has_times:
                change = change._replace(at_ms=0)
            records.append(_encoded(group_id, change))
    return records


def _encoded(group_id: str, change: Change) -> Record:
    key_class, value_of = _ENCODERS[type(change)]
    member_id: str | None = getattr(change, "member_id", None)
    key = key_class(group_id=group_id) if member_id is None else key_class(group_id=group_id, member_id=member_id)
    return write_record(key, value_of(change))


# --- encoding --------------------------------------------------------------------------------------------------------


def _pairs(mapping: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in sorted(mapping.items())]


def _epoch_value(change: EpochSet) -> Any:
    if change.epoch is None:
        return None
    stored, failed = change.description
    return schemas.StreamsGroupMetadataValue(
        epoch=change.epoch,
        metadata_hash=change.metadata_hash,
        validated_topology_epoch=change.validated_epoch,
        last_assignment_configs=_pairs(change.configs),
        stored_description_topology_epoch=stored,
        failed_description_topology_epoch=failed,
    )


def _info_value(change: InfoSet) -> Any:
    info = change.info
    if info is None:
        return None
    endpoint = schemas.StreamsGroupMemberMetadataValue.Endpoint
    return schemas.StreamsGroupMemberMetadataValue(
        instance_id=info.instance_id,
        rack_id=info.rack_id,
        client_id=info.client_id,
        client_host=info.client_host,
        rebalance_timeout_ms=info.rebalance_timeout_ms,
        topology_epoch=info.topology_epoch,
        process_id=info.process_id,
        user_endpoint=None if info.endpoint is None else endpoint(host=info.endpoint.host, port=info.endpoint.port),
        client_tags=_pairs(info.tags),
    )


def _assignment_epoch_value(change: AssignmentEpochSet) -> Any:
    if change.epoch is None:
        return None
    return schemas.StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=change.epoch, assignment_timestamp=change.at_ms
    )


def _target_value(change: TargetSet) -> Any:
    if change.tasks is None:
        return None
    active, standby, warmup = (
        [TaskIds(subtopology_id=id, partitions=sorted(found)) for id, found in sorted(tasks.items())]
        for tasks in change.tasks
    )
    return schemas.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=active, standby_tasks=standby, warmup_tasks=warmup
    )


def _current_value(change: CurrentSet) -> Any:
    current = change.current
    if current is None:
        return None
    assigned, revoking = current.assigned, current.revoking
    return schemas.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state.value,
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


def _topology_value(change: TopologySet) -> Any:
    topology = change.topology
    if topology is None:
        return None
    return schemas.StreamsGroupTopologyValue(
        epoch=topology.epoch, subtopologies=[_stored(part) for part in topology.subtopologies.values()]
    )


def _stored(part: Subtopology) -> StoredSubtopology:
    return StoredSubtopology(
        subtopology_id=part.id,
        source_topics=list(part.source_topics),
        source_topic_regex=list(part.source_regexes),
        state_changelog_topics=_topics(part.changelogs),
        repartition_sink_topics=list(part.repartition_sinks),
        repartition_source_topics=_topics(part.repartition_sources),
        copartition_groups=[
            StoredSubtopology.CopartitionGroup(
                source_topics=list(one.source_topics),
                source_topic_regex=list(one.source_regexes),
                repartition_source_topics=list(one.repartition_sources),
            )
            for one in part.copartition_groups
        ],
    )


def _topics(topics: Iterable[InternalTopic]) -> list[StoredSubtopology.TopicInfo]:
    return [
        StoredSubtopology.TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in one.configs],
        )
        for one in topics
    ]


_ENCODERS: dict[type, tuple[type[Any], Callable[[Any], Any]]] = {
    EpochSet: (schemas.StreamsGroupMetadataKey, _epoch_value),
    InfoSet: (schemas.StreamsGroupMemberMetadataKey, _info_value),
    AssignmentEpochSet: (schemas.StreamsGroupTargetAssignmentMetadataKey, _assignment_epoch_value),
    TargetSet: (schemas.StreamsGroupTargetAssignmentMemberKey, _target_value),
    CurrentSet: (schemas.StreamsGroupCurrentMemberAssignmentKey, _current_value),
    TopologySet: (schemas.StreamsGroupTopologyKey, _topology_value),
}

# --- decoding --------------------------------------------------------------------------------------------------------


def decode(key_type: int, key: bytes, value: bytes | None) -> StreamsGroupChange | None:
    """Decodes a record; None for another key type. Raises MalformedMessage."""
    read = read_record(_DECODERS, key_type, key, value)
    return None if read is None else StreamsGroupChange(*read)


def _epoch(_: Any, value: schemas.StreamsGroupMetadataValue | None) -> Change:
    if value is None:
        return EpochSet(None)
    configs = {one.key: one.value for one in value.last_assignment_configs or ()}
    description = value.stored_description_topology_epoch, value.failed_description_topology_epoch
    return EpochSet(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs, description)


def _info(key: schemas.StreamsGroupMemberMetadataKey, value: schemas.StreamsGroupMemberMetadataValue | None) -> Change:
    if value is None:
        return InfoSet(key.member_id, None)
    endpoint = value.user_endpoint
    return InfoSet(
        key.member_id,
        Info(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            tags={one.key: one.value for one in value.client_tags},
        ),
    )


def _assignment_epoch(_: Any, value: schemas.StreamsGroupTargetAssignmentMetadataValue | None) -> Change:
    if value is None:
        return AssignmentEpochSet(None)
    return AssignmentEpochSet(value.assignment_epoch, value.assignment_timestamp)


def _target(
    key: schemas.StreamsGroupTargetAssignmentMemberKey, value: schemas.StreamsGroupTargetAssignmentMemberValue | None
) -> Change:
    if value is None:
        return TargetSet(key.member_id, None)
    roles = (value.active_tasks, value.standby_tasks, value.warmup_tasks)
    return TargetSet(key.member_id, TasksTuple(*map(_tasks, roles)))


def _tasks(listed: Iterable[TaskIds | CurrentTaskIds]) -> dict[str, frozenset[int]]:
    return {one.subtopology_id: frozenset(one.partitions) for one in listed if one.partitions}


def _current(
    key: schemas.StreamsGroupCurrentMemberAssignmentKey, value: schemas.StreamsGroupCurrentMemberAssignmentValue | None
) -> Change:
    if value is None:
        return CurrentSet(key.member_id, None)
    epoch = value.member_epoch
    assigned = HeldTasks(_loaded(value.active_tasks, epoch), _tasks(value.standby_tasks), _tasks(value.warmup_tasks))
    revoking = HeldTasks(
        _loaded(value.active_tasks_pending_revocation, epoch),
        _tasks(value.standby_tasks_pending_revocation),
        _tasks(value.warmup_tasks_pending_revocation),
    )
    state = _STATES.get(value.state, MemberState.UNKNOWN)
    return CurrentSet(key.member_id, Current(epoch, value.previous_member_epoch, state, assigned, revoking))


_STATES = {state.value: state for state in MemberState}


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


def _topology(_: Any, value: schemas.StreamsGroupTopologyValue | None) -> Change:
    if value is None:
        return TopologySet(None)
    return TopologySet(Topology(value.epoch, {part.subtopology_id: _subtopology(part) for part in value.subtopologies}))


def _subtopology(part: StoredSubtopology) -> Subtopology:
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


def _internal(topics: Iterable[StoredSubtopology.TopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            one.name,
            one.partitions,
            one.replication_factor,
            tuple((config.key, config.value) for config in one.topic_configs),
        )
        for one in topics
    )


_DECODERS = readers(
    (schemas.StreamsGroupMetadataKey, schemas.StreamsGroupMetadataValue, _epoch),
    (schemas.StreamsGroupMemberMetadataKey, schemas.StreamsGroupMemberMetadataValue, _info),
    (
        schemas.StreamsGroupTargetAssignmentMetadataKey,
        schemas.StreamsGroupTargetAssignmentMetadataValue,
        _assignment_epoch,
    ),
    (schemas.StreamsGroupTargetAssignmentMemberKey, schemas.StreamsGroupTargetAssignmentMemberValue, _target),
    (schemas.StreamsGroupCurrentMemberAssignmentKey, schemas.StreamsGroupCurrentMemberAssignmentValue, _current),
    (schemas.StreamsGroupTopologyKey, schemas.StreamsGroupTopologyValue, _topology),
)
