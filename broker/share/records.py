"""Share partitions as records of `__share_group_state`, in Apache Kafka's format.

A key is its type (int16: 0 a snapshot, 1 an update of the snapshot before it), the group, the topic id and the
partition; a value is its version (int16, 0) and fields. A snapshot without a value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ...protocol.compiler import build, parse
from ...protocol.internal_records.share_state_records import ShareSnapshotValue, ShareStateKey, ShareUpdateValue
from ...protocol.messages.share import parts
from ...protocol.named import NamedTuple
from ..groups.record_form import Record, leading_int16, value_version
from ..groups.share.state import SharePartitionKey
from .values import StateBatch

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
    made = ShareStateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return kind.to_bytes(2, "big") + build(made, 0)


def tombstone(key: SharePartitionKey) -> Record:
    """Returns the tombstone of a share partition. Raises MalformedMessage if the group id is too long."""
    return _key(key, SNAPSHOT), None


def snapshot_record(key: SharePartitionKey, state: ShareState) -> Record:
    """Returns the record of a whole state. Raises MalformedMessage if the group id is too long."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=encoded(state.batches),
    )
    return _key(key, SNAPSHOT), VALUE_VERSION + build(value, 0)


def update_record(key: SharePartitionKey, state: ShareState) -> Record:
    """Returns the record of what has changed; start offset -1 for an unchanged one. Raises MalformedMessage if the
    group id is too long.
    """
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        state_batches=encoded(state.batches),
    )
    return _key(key, UPDATE), VALUE_VERSION + build(value, 0)


def encoded(batches: Iterable[StateBatch]) -> list[parts.StateBatch]:
    """Returns batches as they are in records and responses."""
    made = parts.StateBatch
    return [
        made(first_offset=b.first, last_offset=b.last, delivery_state=int(b.state), delivery_count=b.delivery_count)
        for b in batches
    ]


def decoded(batches: Iterable[parts.StateBatch]) -> tuple[StateBatch, ...]:
    """Returns batches that are in a record or a request."""
    return tuple(StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches)


def decode(key: bytes, value: bytes | None) -> ShareEntry | None:
    """Decodes a record; None for a key of another type, and for an update without a value. Raises MalformedMessage."""
    kind = leading_int16(key, "share state record: key")
    if kind not in (SNAPSHOT, UPDATE):
        return None
    read = parse(ShareStateKey, 0, key[2:])
    of = SharePartitionKey(read.group_id, read.topic_id, read.partition)
    if value is None:
        return ShareEntry(of, True, None) if kind == SNAPSHOT else None
    version = value_version(value, "share state record")
    found = parse(ShareUpdateValue if kind == UPDATE else ShareSnapshotValue, version, value[2:])
    is_whole = isinstance(found, ShareSnapshotValue)
    state = ShareState(
        found.snapshot_epoch,
        found.state_epoch if is_whole else 0,
        found.leader_epoch,
        found.start_offset,
        found.delivery_complete_count,
        decoded(found.state_batches),
        found.create_timestamp if is_whole else 0,
        found.write_timestamp if is_whole else 0,
    )
    return ShareEntry(of, kind == SNAPSHOT, state)
