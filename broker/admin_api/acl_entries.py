"""Access control entries: listed, added and removed by the rules of DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from ...protocol.acls import AclOperation, PatternType, PermissionType, ResourceType, words
from ...protocol.errors import ErrorCode
from ..errors import Refused
from ..security.acls import Acl, AclFilter
from ..security.entries import refusals
from .views import AclEntry

if TYPE_CHECKING:
    from ..broker_state import BrokerState

ALL = AclEntry()
"""The filter that matches every entry."""
ENTRIES_MAX = 10_000  # in one response
N = TypeVar("N", bound=IntEnum)


def found(state: BrokerState, wanted: AclEntry) -> list[AclEntry]:
    """Returns the first ENTRIES_MAX entries that match, sorted. Raises Refused."""
    _check_on(state)
    return [_entry(acl) for acl in sorted(state.acls.find(_filter(wanted)))[:ENTRIES_MAX]]


def add(state: BrokerState, entries: list[AclEntry]) -> None:
    """Adds the entries, all or none. Raises Refused, StorageError."""
    _check_on(state)
    acls = [_acl(entry) for entry in entries]
    for refused in refusals(acls, state.profile.behaviour, cidr_hosts=state.features.cidr_hosts):
        if refused is not None:
            raise refused
    state.acls.add(acls, state.clock.now_ms())


def remove(state: BrokerState, wanted: AclEntry) -> list[AclEntry]:
    """Removes the entries that match, all or none, and returns them. Raises Refused, StorageError."""
    _check_on(state)
    going = sorted(state.acls.find(_filter(wanted)))
    state.acls.remove(going, state.clock.now_ms())
    return [_entry(acl) for acl in going]


def _check_on(state: BrokerState) -> None:
    if state.authorizer is None:
        raise Refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def _entry(acl: Acl) -> AclEntry:
    return AclEntry(
        _name(ResourceType, acl.resource_type),
        acl.resource_name,
        _name(PatternType, acl.pattern_type),
        acl.principal,
        acl.host,
        _name(AclOperation, acl.operation),
        _name(PermissionType, acl.permission_type),
    )


def _name(of: type[IntEnum], number: int) -> str:
    """Returns Kafka's name of a code; the number itself for a code that a later release has written."""
    try:
        return of(number).name
    except ValueError:
        return str(number)


def _acl(entry: AclEntry) -> Acl:
    """Returns the entry as the broker's authorizer has it. Raises Refused if a part is missing."""
    return Acl(
        _number(ResourceType, "resource_type", entry.resource_type),
        entry.resource_name or "",
        _number(PatternType, "pattern_type", entry.pattern_type),
        entry.principal or "",
        entry.host or "*",
        _number(AclOperation, "operation", entry.operation),
        _number(PermissionType, "permission", entry.permission),
    )


def _number(of: type[N], part: str, text: str | None, *, in_filter: bool = False) -> N:
    if text is None and in_filter:
        return of["ANY"]
    known = words(of, in_filter=in_filter)
    if text not in known:
        raise Refused(ErrorCode.INVALID_REQUEST, f"INVALID_REQUEST: {part} is {text!r}, not one of {', '.join(known)}")
    return of[text]


def _filter(wanted: AclEntry) -> AclFilter:
    return AclFilter(
        _number(ResourceType, "resource_type", wanted.resource_type, in_filter=True),
        wanted.resource_name,
        _number(PatternType, "pattern_type", wanted.pattern_type, in_filter=True),
        wanted.principal,
        wanted.host,
        _number(AclOperation, "operation", wanted.operation, in_filter=True),
        _number(PermissionType, "permission", wanted.permission, in_filter=True),
    )
