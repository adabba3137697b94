"""Which access control entries may be created (KIP-140, KIP-290).

Owns the checks of CreateAcls, with Kafka's words, for the handler and the control plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ...protocol.errors import ErrorCode
from ..errors import Refused

pass

if TYPE_CHECKING:
    from ..releases.profiles import Behaviour
    from .acls import Acl


Numbers = tuple[int, int, int, int]  # resource type, pattern type, operation, permission
_PARTS = ("resourceType", "patternType", "operation", "permissionType")


def is_filter(acl: Acl) -> bool:
    """Whether an entry has a value that is allowed in filters only."""
    return (
        acl.resource_type == ResourceType.ANY
        or acl.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == AclOperation.ANY
        or acl.permission_type == PermissionType.ANY
    )


def refusals(acls: list[Acl], behaviour: Behaviour) -> list[Refused | None]:
    """The refusal of each entry of a request; None for an entry that may be created."""
    found = [_refusal(acl, behaviour) for acl in acls]
    if behaviour.acls_as_kraft:
        return found
    # All entries of a pattern were one node of ZooKeeper's, which was written as a whole or not at all.
    unwritten = {acl[:3] for acl, refused in zip(acls, found, strict=True) if refused is None and not _has_node(acl)}
    failed = Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return [
        failed if refused is None and acl[:3] in unwritten else refused
        for acl, refused in zip(acls, found, strict=True)
    ]


def _has_node(acl: Acl) -> bool:
    """Whether ZooKeeper had a place for an entry, and the authorizer a way to write it."""
    name = acl.resource_name
    return ":" in acl.principal and "/" not in name and name not in (".", "..")


def _refusal(acl: Acl, behaviour: Behaviour) -> Refused | None:
    code = ErrorCode.INVALID_REQUEST
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return Refused(code, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        return Refused(code, "Invalid empty resource name")
    unknown = unknown_part((acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type), behaviour)
    if not behaviour.acls_as_kraft:
        return None if unknown is None else Refused(code, "Failed to create ACL")
    if unknown is not None:
        return Refused(code, f"Invalid {unknown} UNKNOWN")
    if ":" not in acl.principal:
        reason = "no colon is present separating the principal type from the principal name"
        return Refused(code, f"Could not parse principal from `{acl.principal}` ({reason})")
    return None


def unknown_part(numbers: Numbers, behaviour: Behaviour) -> str | None:
    """Which part is a number that the release does not know, the first one; None where it knows all."""
    newest_operation = behaviour.newest_acl_operation
    knows_users = newest_operation >= AclOperation.CREATE_TOKENS
    newest_type = ResourceType.USER if knows_users else ResourceType.DELEGATION_TOKEN
    newest = newest_type, PatternType.PREFIXED, newest_operation, PermissionType.ALLOW
    return next((part for part, n, last in zip(_PARTS, numbers, newest, strict=True) if not 0 < n <= last), None)
