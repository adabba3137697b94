"""What the requests of the three APIs of access control lists have in common.

Owns which numbers a release knows, what is answered for those that it does not, and the rights that the requests
themselves need. Kafka gives every unknown number the meaning UNKNOWN, and closes the connection for 0, which says so
itself: no client sends that.
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


class AskedFilter(Protocol):
    """A filter as two of the requests have it."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(asked: AskedFilter) -> AclFilter:
    """The filter that is asked for. Raises ProtocolViolation for one that says UNKNOWN."""
    numbers = asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
    check_numbers(numbers)
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def check_numbers(numbers: Numbers) -> None:
    """Raises ProtocolViolation if one of them is UNKNOWN itself."""
    if 0 in numbers:
        raise ProtocolViolation("an access control entry with an UNKNOWN part")


def check_describing(context: RequestContext) -> None:
    """Raises Refused where entries may not be looked at, or nobody asks for them."""
    context.check_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if context.broker.authorizer is None:
        raise Refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def check_altering(context: RequestContext) -> None:
    """Raises Refused where entries may not be changed, or nobody asks for them."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    if context.broker.authorizer is None:
        place = "" if context.broker.profile.behaviour.acls_as_kraft else " on the broker"
        raise Refused(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{place}.")
