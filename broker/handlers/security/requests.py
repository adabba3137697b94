"""Parts that the requests about access control lists have in common.

Owns the permissions that these requests need, and the handling of numbers that a release does not have. Kafka reads
every unknown number as UNKNOWN, and closes the connection for 0, UNKNOWN itself, which no client sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode, ProtocolViolation
from ...errors import Refused
from ...security.acls import AclFilter
from ...security.entries import Numbers

if TYPE_CHECKING:
    from ...context import RequestContext


class RequestedFilter(Protocol):
    """A filter, in the form of two of the requests."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(requested: RequestedFilter) -> AclFilter:
    """Returns the requested filter. Raises ProtocolViolation for one with an UNKNOWN part."""
    numbers = (
        requested.resource_type_filter,
        requested.pattern_type_filter,
        requested.operation,
        requested.permission_type,
    )
    check_numbers(numbers)
    return AclFilter(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )


def check_numbers(numbers: Numbers) -> None:
    """Raises ProtocolViolation if one of the numbers is UNKNOWN."""
    if 0 in numbers:
        raise ProtocolViolation("an access control entry with an UNKNOWN part")


def check_describing(context: RequestContext) -> None:
    """Raises Refused if the principal may not see the entries, or there is no authorizer."""
    context.check_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if context.broker.authorizer is None:
        raise Refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def check_altering(context: RequestContext) -> None:
    """Raises Refused if the principal may not change the entries, or there is no authorizer."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    if context.broker.authorizer is None:
        place = "" if context.broker.profile.behaviour.acls_as_kraft else " on the broker"
        raise Refused(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{place}.")
