"""WriteTxnMarkers: request and response of API key 27. KIP-98, KIP-664, KIP-1228."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Writes transaction markers to partitions, regardless of the coordinator's state. v2 adds the transaction version
    (KIP-1228)."""

    markers: list[WritableTxnMarker]

    @group
    class WritableTxnMarker:
        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Bool  # true for commit
        topics: list[WritableTxnMarkerTopic]
        coordinator_epoch: Int32
        transaction_version: Int8 = field("2+", default=0, ignorable=True)

        @group
        class WritableTxnMarkerTopic:
            name: Text
            partition_indexes: list[Int32]


@message(api_key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    """One error per marker and partition, by producer."""

    markers: list[WritableTxnMarkerResult]

    @group
    class WritableTxnMarkerResult:
        producer_id: Int64
        topics: list[WritableTxnMarkerTopicResult]

        @group
        class WritableTxnMarkerTopicResult:
            name: Text
            partitions: list[WritableTxnMarkerPartitionResult]

            @group
            class WritableTxnMarkerPartitionResult:
                partition_index: Int32
                error_code: Int16
