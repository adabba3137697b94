"""Record values of `__remote_log_metadata` (KIP-405): the copies of segments in remote storage.

A value has the frame of `metadata_values`, then the message in flexible encoding. The records have no key.
"""

from __future__ import annotations

from typing import Any

from ..primitives import Bool, Bytes, Int8, Int32, Int64, Text, Uuid
from ..schema import field, group, message, spec
from .metadata_values import decode_one_of

TOPIC = "__remote_log_metadata"
COPY_FINISHED = 1
"""The state of a copy that can be read. 0: it is being made; 2 and 3: it is being, and was deleted."""


@group
class TopicIdPartition:
    name: Text
    id: Uuid
    partition: Int32


@group
class RemoteLogSegmentId:
    topic_id_partition: TopicIdPartition
    id: Uuid


@message(api_key=0, versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    """The copying of a segment begins. `end_offset` is that of its last record."""

    remote_log_segment_id: RemoteLogSegmentId
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpoch]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8
    txn_index_empty: Bool = field(default=False, tag=0)

    @group
    class SegmentLeaderEpoch:
        leader_epoch: Int32
        offset: Int64


@message(api_key=1, versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    """The copy has another state."""

    remote_log_segment_id: RemoteLogSegmentId
    broker_id: Int32
    event_timestamp_ms: Int64
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8


_CLASSES: dict[int, type[Any]] = {
    spec(cls).api_key: cls for cls in (RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataUpdateRecord)
}


def decode(value: bytes) -> RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord | None:
    """Returns the record of a value, or None for one that is about no copy of a segment. Raises MalformedMessage."""
    return decode_one_of(_CLASSES, value)
