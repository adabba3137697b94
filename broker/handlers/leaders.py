"""The current leader in responses to clients with outdated metadata (KIP-951): its id, epoch and endpoint.

Only a cluster of several nodes returns it: a lone node leads every partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.messages.records.leaders import LeaderIdAndEpoch, NodeEndpoint
from ..context import RequestContext
from ..replica.assignment import NO_LEADER
from ..replica.partition import NotLed

T = TypeVar("T")


def set_leader(partition: Any, error: Exception, context: RequestContext, since: int) -> None:
    """Sets the current leader in a partition's response to Produce or Fetch, from version `since` on. Nothing is set if
    the client has a newer epoch than the leader.
    """
    if not isinstance(error, NotLed) or error.code is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return
    if context.api_version >= since and context.broker.nodes.is_cluster:
        leader, epoch = error.partition.leader, error.partition.leader_epoch
        partition.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)


def endpoints_of(partitions: Iterable[Any], context: RequestContext) -> list[NodeEndpoint]:
    """Returns the endpoints of the leaders in the partitions of a response, each once."""
    leaders = dict.fromkeys(partition.current_leader.leader_id for partition in partitions)
    return [endpoint(NodeEndpoint, leader, context) for leader in leaders if leader != NO_LEADER]


def endpoint(made: Callable[..., T], node_id: int, context: RequestContext) -> T:
    """Returns a node with its endpoint for this client as `made`, a class with the fields node_id, host, port and
    rack.
    """
    host, port = context.broker.endpoint(context.connection_info, node_id)
    return made(node_id=node_id, host=host, port=port, rack=context.broker.nodes.racks[node_id])
