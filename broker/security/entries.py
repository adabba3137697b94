"""Validates access control entries (KIP-140, KIP-290).

Owns the checks of CreateAcls, with Kafka's error messages, for the handler and the control plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ...protocol.errors import ErrorCode
from ..errors import Refused
from .hosts import parse_block

if TYPE_CHECKING:
    from ..releases.profiles import Behaviour
    from .acls import Acl, AclFilter

_PARTS = ("resourceType", "patternType", "operation", "permissionType")


def numbers_of(acl: Acl | AclFilter) -> tuple[int, int, int, int]:
    """Returns the parts that are numbers, in the order of _PARTS."""
    return acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type


def is_filter(acl: Acl) -> bool:
    """Returns whether an entry has a value that is only allowed in filters."""
    return (
        acl.resource_type == ResourceType.ANY
        or acl.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == AclOperation.ANY
        or acl.permission_type == PermissionType.ANY
    )


def refusals(acls: list[Acl], behaviour: Behaviour, *, cidr_hosts: bool) -> list[Refused | None]:
    """Returns the error of each entry of a request, or None. `cidr_hosts`: `metadata.version` allows blocks of
    addresses.
    """
    found = [_refusal(acl, behaviour, cidr_hosts=cidr_hosts) for acl in acls]
    if behaviour.acls_as_kraft:
        return found
    # ZooKeeper stored all entries of a pattern in one node, which was written as a whole or not at all.
    unwritten = {acl[:3] for acl, refused in zip(acls, found, strict=True) if refused is None and not _has_node(acl)}
    failed = Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return [
        failed if refused is None and acl[:3] in unwritten else refused
        for acl, refused in zip(acls, found, strict=True)
    ]


def _has_node(acl: Acl) -> bool:
    """Returns whether AclAuthorizer could write the entry to ZooKeeper."""
    name = acl.resource_name
    return ":" in acl.principal and "/" not in name and name not in (".", "..")


def _refusal(acl: Acl, behaviour: Behaviour, *, cidr_hosts: bool) -> Refused | None:
    code = ErrorCode.INVALID_REQUEST
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return Refused(code, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        return Refused(code, "Invalid empty resource name")
    unknown = unknown_part(acl, behaviour)
    if not behaviour.acls_as_kraft:
        return None if unknown is None else Refused(code, "Failed to create ACL")
    if unknown is not None:
        return Refused(code, f"Invalid {unknown} UNKNOWN")
    if ":" not in acl.principal:
        reason = "no colon is present separating the principal type from the principal name"
        return Refused(code, f"Could not parse principal from `{acl.principal}` ({reason})")
    return _host_refusal(acl.host, cidr_hosts=cidr_hosts) if behaviour.cidr_hosts else None


def _host_refusal(host: str, *, cidr_hosts: bool) -> Refused | None:
    if not host:
        return Refused(ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")
    if "/" in host:
        if not cidr_hosts:
            text = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
            return Refused(ErrorCode.UNSUPPORTED_VERSION, text)
        try:
            parse_block(host)
        except ValueError as error:
            return Refused(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {error}")
    return None


def unknown_part(acl: Acl | AclFilter, behaviour: Behaviour) -> str | None:
    """Returns the first part whose number the release does not support, or None."""
    newest_operation = behaviour.newest_acl_operation
    knows_users = newest_operation >= AclOperation.CREATE_TOKENS
    newest_type = ResourceType.USER if knows_users else ResourceType.DELEGATION_TOKEN
    newest = newest_type, PatternType.PREFIXED, newest_operation, PermissionType.ALLOW
    compared = zip(_PARTS, numbers_of(acl), newest, strict=True)
    return next((part for part, n, last in compared if not 0 < n <= last), None)
