"""Checks of a change of voters that precede Kafka's refusal to change them (KIP-853)."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.primitives import ZERO_UUID
from ...context import RequestContext
from ...errors import Refused


def check_cluster(cluster_id: str | None, context: RequestContext) -> None:
    """Checks the permission to alter the cluster, and the cluster id. Raises Refused."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    own = context.broker.cluster_id
    if cluster_id is not None and cluster_id != own:
        text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, text)


def check_voter(doing: str, voter_id: int, directory_id: bytes) -> None:
    """Checks the voter's id and directory id. Raises Refused."""
    if voter_id < 0 or directory_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{doing} voter request didn't include a valid voter")


def unsupported(doing: str) -> Refused:
    """The refusal of a quorum of fixed voters."""
    text = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return Refused(ErrorCode.UNSUPPORTED_VERSION, text)
