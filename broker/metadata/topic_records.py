"""The metadata records of topics, partitions and configs, and what they make of a partition's assignment.

Owns the translation between `nodes.Assignment` and Kafka's records. Must not know logs or files.
"""

from __future__ import annotations

from ...protocol.internal_records.metadata_records import ConfigRecord, PartitionChangeRecord, PartitionRecord
from ..replica.assignment import Assignment
from ..replica.partition import LEADER_EPOCH

RESOURCE_TOPIC = 2  # ConfigResource types
LEADER_UNCHANGED = -2  # in a PartitionChangeRecord


def stored_assignment(record: PartitionRecord) -> Assignment:
    """What a record says of who has a partition."""
    epochs = max(record.leader_epoch, LEADER_EPOCH), max(record.partition_epoch, 0)
    going = tuple(record.adding_replicas), tuple(record.removing_replicas)
    return Assignment(tuple(record.replicas), tuple(record.isr), record.leader, *epochs, *going)


def merged(before: Assignment, record: PartitionChangeRecord) -> Assignment:
    """What a partition becomes by a change: each is one more partition epoch, and one that names a leader, were it the
    same, is a new leader epoch."""
    names_leader = record.leader != LEADER_UNCHANGED
    return Assignment(
        before.replicas if record.replicas is None else tuple(record.replicas),
        before.isr if record.isr is None else tuple(record.isr),
        record.leader if names_leader else before.leader,
        before.leader_epoch + names_leader,
        before.partition_epoch + 1,
        before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
    )


def changed_record(
    topic_id: bytes, index: int, before: Assignment, after: Assignment, directory: bytes | None
) -> PartitionChangeRecord | PartitionRecord:
    """The record that makes the one of the other: the change, or the whole where a change cannot say it."""
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
    )
    return record if merged(before, record) == after else partition_record(topic_id, index, after, directory)


def partition_record(topic_id: bytes, index: int, assignment: Assignment, directory: bytes | None) -> PartitionRecord:
    """The whole of a partition, made or changed. All its replicas lie in the one directory."""
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
    )


def config_record(topic: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic, name=name, value=value)
