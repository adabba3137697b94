"""Metadata records of topics, partitions and configs, and their conversion from and to assignments.

Uses neither logs nor files.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.internal_records.metadata_records import ConfigRecord, PartitionChangeRecord, PartitionRecord
from ..replica.assignment import Assignment
from ..replica.partition import LEADER_EPOCH

LEADER_UNCHANGED = -2  # in a PartitionChangeRecord


def stored_assignment(record: PartitionRecord) -> Assignment:
    """Returns the assignment in a partition record."""
    epochs = max(record.leader_epoch, LEADER_EPOCH), max(record.partition_epoch, 0)
    going = tuple(record.adding_replicas), tuple(record.removing_replicas)
    eligible = tuple(record.eligible_leader_replicas or ()), tuple(record.last_known_elr or ())
    return Assignment(tuple(record.replicas), tuple(record.isr), record.leader, *epochs, *going, *eligible)


def merged(before: Assignment, record: PartitionChangeRecord) -> Assignment:
    """Applies a change record to an assignment. Every change increments the partition epoch; a record with a leader,
    even the same one, also increments the leader epoch.
    """
    names_leader = record.leader != LEADER_UNCHANGED
    return Assignment(
        before.replicas if record.replicas is None else tuple(record.replicas),
        before.isr if record.isr is None else tuple(record.isr),
        record.leader if names_leader else before.leader,
        before.leader_epoch + names_leader,
        before.partition_epoch + 1,
        before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        before.eligible if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
        before.last_known if record.last_known_elr is None else tuple(record.last_known_elr),
    )


def changed_record(
    topic_id: bytes, index: int, before: Assignment, after: Assignment, directory: bytes | None
) -> PartitionChangeRecord | PartitionRecord:
    """Returns the record from `before` to `after`: a change record, or a full one where that cannot express it."""
    replicas = None if after.replicas == before.replicas else list(after.replicas)
    is_new = (after.leader, after.leader_epoch) != (before.leader, before.leader_epoch)
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=None if after.isr == before.isr else list(after.isr),
        leader=after.leader if is_new else LEADER_UNCHANGED,
        replicas=replicas,
        adding_replicas=None if after.adding == before.adding else list(after.adding),
        removing_replicas=None if after.removing == before.removing else list(after.removing),
        directories=None if replicas is None or directory is None else [directory] * len(replicas),
        eligible_leader_replicas=None if after.eligible == before.eligible else list(after.eligible),
        last_known_elr=None if after.last_known == before.last_known else list(after.last_known),
    )
    return record if merged(before, record) == after else partition_record(topic_id, index, after, directory)


def partition_record(topic_id: bytes, index: int, assignment: Assignment, directory: bytes | None) -> PartitionRecord:
    """Returns the full record of a partition. All its replicas are in the same directory."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(assignment.replicas),
        isr=list(assignment.isr),
        removing_replicas=list(assignment.removing),
        adding_replicas=list(assignment.adding),
        leader=assignment.leader,
        leader_epoch=assignment.leader_epoch,
        partition_epoch=assignment.partition_epoch,
        directories=[] if directory is None else [directory] * len(assignment.replicas),
        eligible_leader_replicas=list(assignment.eligible) or None,
        last_known_elr=list(assignment.last_known) or None,
    )


def config_records(kind: int, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[ConfigRecord]:
    """Returns the records that replace the configs `before` of a resource by `after`, the removals first."""
    changed: dict[str, str | None] = {key: None for key in before if key not in after}
    changed |= {key: value for key, value in after.items() if before.get(key) != value}
    return [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value) for key, value in changed.items()
    ]


def apply_config(record: ConfigRecord, configs: dict[str, str]) -> None:
    """Sets or removes a config of a resource."""
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value
