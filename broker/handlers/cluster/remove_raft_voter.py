"""RemoveRaftVoter v0 (KIP-853): refused as by a quorum of fixed voters. Requires ALTER on the cluster."""

from __future__ import annotations

from ....protocol.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ...context import RequestContext, handles
from ...errors import Refused
from .voters import check_cluster, check_voter, unsupported


@handles(RemoveRaftVoterRequest)
async def remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
    """Makes Kafka's checks in their order."""
    try:
        check_cluster(request.cluster_id, context)
        check_voter("Remove", request.voter_id, request.voter_directory_id)
        raise unsupported("removing")
    except Refused as refused:
        return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=refused.code, error_message=refused.message)
