"""Groups and offsets as records of `__consumer_offsets`, in Apache Kafka's format.

A key is its type (int16: 0 and 1 for an offset, 2 for a classic group; `consumer/`, `share/` and `streams/records.py`
have others) and fields; a value is its version (int16) and fields; a null value is a tombstone. Writes
OffsetCommitValue v3, or v1 with an explicit expiry, and GroupMetadataValue v3, like Apache Kafka 2.3 to 4.0. Reads all
versions.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

from ...protocol.compiler import build, parse
from ...protocol.internal_records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ...protocol.named import NamedTuple
from ..java_hash import string_hash
from .classic.state import Group, GroupState, Member
from .consumer.records import FORMS as CONSUMER_FORMS
from .offsets import CommittedOffset, Partition
from .record_form import GroupChange, Record, leading_int16, value_version
from .share.records import FORMS as SHARE_FORMS
from .streams.records import FORMS as STREAMS_FORMS

OFFSET_KEY_TYPES = (0, 1)
GROUP_KEY_TYPE = 2
NEWEST_VALUE_VERSION = 4


class TransactionalRecord(NamedTuple):
    """A record that takes effect when the transaction of its producer commits."""

    producer_id: int
    key: bytes
    value: bytes | None


class TransactionEnd(NamedTuple):
    """The transaction marker that ends a producer's transaction."""

    producer_id: int
    committed: bool


LogEntry: TypeAlias = Record | TransactionalRecord | TransactionEnd


class OffsetEntry(NamedTuple):
    """A decoded offset record; `committed` is None for a tombstone."""

    group_id: str
    partition: Partition
    committed: CommittedOffset | None


class GroupEntry(NamedTuple):
    """A decoded group record; `group` is None for a tombstone."""

    group_id: str
    group: Group | None


@functools.lru_cache(maxsize=256)
def partition_for(key: str, partitions: int) -> int:
    """Returns the partition of the log for a group id or a transactional id.

    That is |hashCode| % partitions of a Java String, over UTF-16 units, where the absolute value of -2^31 is 0.
    """
    value = string_hash(key)
    if value >= 1 << 31:
        value = (1 << 32) - value
    return 0 if value == 1 << 31 else value % partitions


@functools.lru_cache(maxsize=128)
def _offset_key(group_id: str, topic: str, index: int) -> bytes:
    return b"\x00\x01" + build(OffsetCommitKey(group=group_id, topic=topic, partition=index), 0)


def offset_record(group_id: str, partition: Partition, committed: CommittedOffset | None) -> Record:
    """Returns the record of a committed offset, or its tombstone. Raises MalformedMessage if a string is too long."""
    topic, index = partition
    key = _offset_key(group_id, topic, index)
    if committed is None:
        return key, None
    version = 3 if committed.expire_timestamp_ms is None else 1
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=-1 if committed.expire_timestamp_ms is None else committed.expire_timestamp_ms,
    )
    return key, version.to_bytes(2, "big") + build(value, version)


def group_tombstone(group_id: str) -> Record:
    return b"\x00\x02" + build(GroupMetadataKey(group=group_id), 0), None


def group_record(group: Group) -> Record:
    """Returns the record of a group. Raises MalformedMessage if a string is too long."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_changed_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return group_tombstone(group.group_id)[0], b"\x00\x03" + build(value, 3)


Decoded: TypeAlias = OffsetEntry | GroupEntry | GroupChange


def decode(key: bytes, value: bytes | None) -> Decoded | None:
    """Decodes a record; None for an unknown key type. Raises MalformedMessage."""
    key_type = leading_int16(key, "group record: key")
    if key_type in OFFSET_KEY_TYPES:
        offset_key = parse(OffsetCommitKey, 0, key[2:])
        partition = (offset_key.topic, offset_key.partition)
        return OffsetEntry(offset_key.group, partition, None if value is None else _committed(value))
    if key_type == GROUP_KEY_TYPE:
        group_id = parse(GroupMetadataKey, 0, key[2:]).group
        return GroupEntry(group_id, None if value is None else _group(group_id, value))
    found = (forms.decode(key_type, key, value) for forms in (CONSUMER_FORMS, SHARE_FORMS, STREAMS_FORMS))
    return next((change for change in found if change is not None), None)


def _committed(value: bytes) -> CommittedOffset:
    read = parse(OffsetCommitValue, value_version(value, "group record", NEWEST_VALUE_VERSION), value[2:])
    return CommittedOffset(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        None if read.expire_timestamp == -1 else read.expire_timestamp,
    )


def _group(group_id: str, value: bytes) -> Group:
    read = parse(GroupMetadataValue, value_version(value, "group record", NEWEST_VALUE_VERSION), value[2:])
    members = {
        member.member_id: Member(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # Version 0 has no rebalance timeout: the session timeout served as both.
            rebalance_timeout_ms=member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            session_timeout_ms=member.session_timeout,
            protocols=((read.protocol or "", bytes(member.subscription)),),
            assignment=bytes(member.assignment),
        )
        for member in read.members
    }
    return Group(
        group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        generation_id=read.generation,
        protocol_type=read.protocol_type or None,
        protocol_name=read.protocol,
        leader=read.leader,
        members=members,
        state_changed_ms=read.current_state_timestamp,
    )
