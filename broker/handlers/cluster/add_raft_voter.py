"""AddRaftVoter v0-v1 (KIP-853, KIP-1186): refused as by a quorum of fixed voters. Requires ALTER on the cluster."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ...context import RequestContext, handles
from ...errors import Refused
from .voters import check_cluster, check_voter, unsupported

LISTENER = "CONTROLLER"


@handles(AddRaftVoterRequest)
async def add_raft_voter(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    """Makes Kafka's checks in their order. CONTROLLER is the listener's name in Kafka's default configuration."""
    try:
        check_cluster(request.cluster_id, context)
        check_voter("Add", request.voter_id, request.voter_directory_id)
        if LISTENER not in (listener.name for listener in request.listeners):
            given = ", ".join(
                f"ListenerName({one.name})={one.host}/<unresolved>:{one.port}" for one in request.listeners
            )
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{given}}})) for the default "
                f"listener ListenerName({LISTENER})",
            )
        raise unsupported("adding")
    except Refused as refused:
        return AddRaftVoterResponse(throttle_time_ms=0, error_code=refused.code, error_message=refused.message)
