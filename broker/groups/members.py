"""Looks up the members of a group of the consumer, share or streams protocol. Raises Kafka's errors for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from ...protocol.errors import ErrorCode
from ..errors import Refused


class AnyMember(Protocol):
    @property
    def member_id(self) -> str: ...


M = TypeVar("M", bound=AnyMember, covariant=True)


class WithMembers(Protocol[M]):
    """A group of these protocols."""

    group_id: str

    @property
    def members(self) -> Mapping[str, M]: ...


class WithStaticMembers(WithMembers[M], Protocol[M]):
    """A group that may have static members."""

    def static_member(self, instance_id: str | None) -> M | None: ...


def member_of(group: WithStaticMembers[M], member_id: str, instance_id: str | None) -> M:
    """Returns the member that sends a request. Raises Refused."""
    return known_member(group, member_id) if instance_id is None else known_static(group, member_id, instance_id)


def known_member(group: WithMembers[M], member_id: str) -> M:
    """Returns a member by its id. Raises Refused."""
    member = group.members.get(member_id)
    if member is None:
        text = f"Member {member_id} is not a member of group {group.group_id}."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member


def known_static(group: WithStaticMembers[M], member_id: str, instance_id: str) -> M:
    """Returns a static member, which must have this id. Raises Refused."""
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, text)
    return member


def full(kind: str, max_size: int) -> Refused:
    """Returns the error of a group that takes no more members."""
    text = f"The {kind} group has reached its maximum capacity of {max_size} members."
    return Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def fenced(kind: str, epoch: int, current_epoch: int, more: str = "") -> Refused:
    """Returns the error of a member whose heartbeat has another epoch than the group has for it."""
    compared = "greater" if epoch > current_epoch else "smaller"
    text = (
        f"The {kind} group member has a {compared} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current_epoch}){more}. The member must abandon all its partitions and rejoin."
    )
    return Refused(ErrorCode.FENCED_MEMBER_EPOCH, text)
