"""What an answer tells of a leader that the client did not know (KIP-951): who it is, since when, and where.

Only where there are several nodes: one alone has nothing to tell, and its answers stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol.errors import ErrorCode
from ..context import RequestContext
from ..replica.assignment import NO_LEADER
from ..replica.partition import NotLed


def tell_leader(answer: Any, error: Exception, context: RequestContext, since: int) -> None:
    """Puts the leader into a partition's answer to Produce or Fetch, from version `since` on. Who knows of a newer
    epoch than the leader is told nothing."""
    if not isinstance(error, NotLed) or error.code is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return
    if context.api_version >= since and context.broker.nodes.is_cluster:
        leader = answer.__class__.LeaderIdAndEpoch
        answer.current_leader = leader(leader_id=error.partition.leader, leader_epoch=error.partition.leader_epoch)


def endpoints_of(response: type, answers: Iterable[Any], context: RequestContext) -> list[Any]:
    """Where the leaders are that these partitions' answers name, each once, as the `NodeEndpoint`s of a response."""
    leaders = dict.fromkeys(answer.current_leader.leader_id for answer in answers)
    return [endpoint(response.NodeEndpoint, leader, context) for leader in leaders if leader != NO_LEADER]  # type: ignore[attr-defined]


def endpoint(made: type, node_id: int, context: RequestContext) -> Any:
    """A node and where this client finds it, as `made`, whose fields are node_id, host, port and rack."""
    host, port = context.broker.endpoint(context.connection_info, node_id)
    return made(node_id=node_id, host=host, port=port, rack=context.broker.config.get("broker.rack"))
