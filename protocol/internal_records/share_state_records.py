"""Records of `__share_group_state`: share partitions (KIP-932). A key begins with its type, a value with its version,
an int16 each.
"""

from __future__ import annotations

from ..primitives import Int8, Int16, Int32, Int64, Text, Uuid
from ..schema import field, group, message


@message(api_key=0, versions="0")
class ShareSnapshotKey:
    """Key 0: the whole state of a share partition."""

    group_id: Text
    topic_id: Uuid
    partition: Int32


@message(api_key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state; the number of completed deliveries since 4.2 (KIP-1226)."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]

    @group
    class StateBatch:
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16


@message(api_key=1, versions="0")
class ShareUpdateKey:
    """Key 1: a change of a share partition."""

    group_id: Text
    topic_id: Uuid
    partition: Int32


@message(api_key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    """What has changed since the snapshot with this epoch."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: list[StateBatch]

    @group
    class StateBatch:
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16
