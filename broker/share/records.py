"""Share partitions as records of `__share_group_state`, in Apache Kafka's format.

A key is its type (int16: 0 a snapshot, 1 an update of the snapshot before it), the group, the topic id and the
partition; a value is its version (int16, 0) and fields. A snapshot without a value is a tombstone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from ...protocol.compiler import build, parse
from ...protocol.errors import MalformedMessage
from ...protocol.internal_records.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ...protocol.named import NamedTuple
from .values import SharePartitionKey, StateBatch

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value."""

SNAPSHOT, UPDATE = 0, 1
VALUE_VERSION = b"\0\0"


class ShareState(NamedTuple):
    """The stored state of a share partition. `complete_count` is the number of offsets from the start offset on in a
    terminal state, -1 if unknown; `created_ms` is the time of the last snapshot by updates, `written_ms` that of the
    last snapshot.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int = 0
    written_ms: int = 0


class ShareEntry(NamedTuple):
    """A decoded record; without a state it is a tombstone."""

    key: SharePartitionKey
    is_snapshot: bool
    state: ShareState | None


@lru_cache(4096)
def _key(key: SharePartitionKey, kind: int) -> bytes:
    made = (ShareUpdateKey if kind == UPDATE else ShareSnapshotKey)(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return kind.to_bytes(2, "big") + build(made, 0)


def tombstone(key: SharePartitionKey) -> Record:
    """Returns the tombstone of a share partition. Raises MalformedMessage if the group id is too long."""
    return _key(key, SNAPSHOT), None


def snapshot_record(key: SharePartitionKey, state: ShareState) -> Record:
    """Returns the record of a whole state. Raises MalformedMessage if the group id is too long."""
    made = ShareSnapshotValue.StateBatch
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=[
            made(first_offset=b.first, last_offset=b.last, delivery_state=int(b.state), delivery_count=b.delivery_count)
            for b in state.batches
        ],
    )
    return _key(key, SNAPSHOT), VALUE_VERSION + build(value, 0)


def update_record(key: SharePartitionKey, state: ShareState) -> Record:
    """Returns the record of what has changed; start offset -1 for an unchanged one. Raises MalformedMessage if the
    group id is too long.
    """
    made = ShareUpdateValue.StateBatch
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        state_batches=[
            made(first_offset=b.first, last_offset=b.last, delivery_state=int(b.state), delivery_count=b.delivery_count)
            for b in state.batches
        ],
    )
    return _key(key, UPDATE), VALUE_VERSION + build(value, 0)


def decode(key: bytes, value: bytes | None) -> ShareEntry | None:
    """Decodes a record; None for a key of another type, and for an update without a value. Raises MalformedMessage."""
    kind = _leading_int16(key, "key")
    if kind not in (SNAPSHOT, UPDATE):
        return None
    read = parse(ShareUpdateKey if kind == UPDATE else ShareSnapshotKey, 0, key[2:])
    of = SharePartitionKey(read.group_id, read.topic_id, read.partition)
    if value is None:
        return ShareEntry(of, True, None) if kind == SNAPSHOT else None
    version = _leading_int16(value, "value")
    if version != 0:
        raise MalformedMessage(f"share state record: value version {version}, expected 0")
    if kind == UPDATE:
        update = parse(ShareUpdateValue, 0, value[2:])
        state = ShareState(
            update.snapshot_epoch,
            0,
            update.leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            tuple(
                StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
                for b in update.state_batches
            ),
        )
        return ShareEntry(of, False, state)
    whole = parse(ShareSnapshotValue, 0, value[2:])
    state = ShareState(
        whole.snapshot_epoch,
        whole.state_epoch,
        whole.leader_epoch,
        whole.start_offset,
        whole.delivery_complete_count,
        tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in whole.state_batches
        ),
        whole.create_timestamp,
        whole.write_timestamp,
    )
    return ShareEntry(of, True, state)


def _leading_int16(data: bytes, what: str) -> int:
    if len(data) < 2:
        raise MalformedMessage(f"share state record: {what} of {len(data)} bytes")
    return int.from_bytes(data[:2], "big", signed=True)
