"""DescribeCluster: request and response of API key 60. KIP-700, KIP-919, KIP-1073."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """v1 selects brokers or controllers (KIP-919), v2 includes fenced brokers."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """Cluster id, controller and brokers."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: Text | None = None
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: Text
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648

    @group
    class DescribeClusterBroker:
        broker_id: Int32
        host: Text
        port: Int32
        rack: Text | None = None
        is_fenced: Bool = field("2+", default=False)
