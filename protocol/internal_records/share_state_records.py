"""Records of `__share_group_state`: share partitions (KIP-932). A key begins with its type, a value with its version,
an int16 each. Both types have the same key.
"""

from __future__ import annotations

from ..messages.share.parts import StateBatch
from ..primitives import Int32, Int64, Text, Uuid
from ..schema import field, message


@message(versions="0")
class ShareStateKey:
    group_id: Text
    topic_id: Uuid
    partition: Int32


@message(api_key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share partition; the number of completed deliveries since 4.2 (KIP-1226)."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


@message(api_key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    """What has changed since the snapshot with this epoch."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: list[StateBatch]
