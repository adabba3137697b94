"""Interface of authorizers, and the error codes and messages of refusals.

Depends neither on requests nor on the metadata log.
"""

from __future__ import annotations

from typing import Protocol

from ...protocol.acls import AclOperation, ResourceType
from ...protocol.errors import ErrorCode

USER_TYPE = "User"
"""The type of all principals that are users."""
ANONYMOUS = f"{USER_TYPE}:ANONYMOUS"
"""Principal of an unauthenticated connection."""

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

REFUSAL_TEXTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
}
"""Kafka's error messages, for responses that have a field for them."""


class Authorizer(Protocol):
    """Decides whether a principal, connected from a host, may perform an operation."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Returns whether the operation is allowed on the resource with this exact name."""
        ...

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Returns whether the operation is allowed on any resource of the type."""
        ...
