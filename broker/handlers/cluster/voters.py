"""What changes of the quorum's voters are checked for before Kafka says that it cannot change them (KIP-853)."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.primitives import ZERO_UUID
from ...context import RequestContext
from ...errors import Refused


def check_cluster(cluster_id: str | None, context: RequestContext) -> None:
    """Whoever asks may alter the cluster, and means this one. Raises Refused."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    own = context.broker.cluster_id
    if cluster_id is not None and cluster_id != own:
        text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, text)


def check_voter(doing: str, voter_id: int, directory_id: bytes) -> None:
    """A voter is named by its id and the id of its directory. Raises Refused."""
    if voter_id < 0 or directory_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{doing} voter request didn't include a valid voter")


def unsupported(doing: str) -> Refused:
    """What a quorum answers whose voters are fixed."""
    text = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return Refused(ErrorCode.UNSUPPORTED_VERSION, text)
