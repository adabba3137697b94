"""Whether a member of a streams group may commit and fetch offsets (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import ErrorCode
from ..consumer.commits import MEMBERS_IN_TRANSACTIONS_SINCE, MEMBERS_SINCE
from ..offsets import Partition
from .state import Group, Member


def commit_error(
    group: Group,
    *,
    member_id: str,
    epoch: int,
    unnamed: bool,
    transactional: bool,
    api_version: int,
    partitions: Iterable[Partition],
) -> ErrorCode:
    """Returns why this member may not commit offsets of `partitions`, or NONE. `unnamed` requests have neither a member
    id nor an instance id. `api_version` is that of OffsetCommit or TxnOffsetCommit.

    An earlier epoch of the member is accepted for the source topics of active tasks that were assigned in that epoch or
    before it, and that the member still has.
    """
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    if transactional and epoch == -1 and unnamed:
        return ErrorCode.NONE  # old transactional producers name no member
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and api_version < MEMBERS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    sources = group.source_topics
    if epoch < member.current.epoch and all(
        _was_assigned(member, sources.get(topic), index, epoch) for topic, index in partitions
    ):
        return ErrorCode.NONE
    has_code = not transactional or api_version >= MEMBERS_IN_TRANSACTIONS_SINCE
    return ErrorCode.STALE_MEMBER_EPOCH if has_code else ErrorCode.ILLEGAL_GENERATION


def _was_assigned(member: Member, subtopology: str | None, index: int, epoch: int) -> bool:
    if subtopology is None:
        return False
    for held in (member.current.assigned, member.current.revoking):
        at = held.active.get(subtopology, {}).get(index)
        if at is not None:
            return epoch >= at
    return False


def fetch_error(group: Group, member_id: str | None, epoch: int) -> ErrorCode:
    """Returns why this member may not fetch offsets, or NONE. Administrators send no member id and a negative epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.current.epoch else ErrorCode.STALE_MEMBER_EPOCH
