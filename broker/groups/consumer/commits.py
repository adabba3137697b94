"""Whether a member of a group of the consumer protocol may commit and fetch offsets (KIP-848, KIP-1251)."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import ErrorCode
from .events import Settings
from .state import Group, Member

MEMBERS_SINCE = 9
"""The version of OffsetCommit from which on members of the consumer protocol commit."""
MEMBERS_IN_TRANSACTIONS_SINCE = 6
"""The version of TxnOffsetCommit with codes for a stale epoch and an unknown group (KIP-1319)."""


def commit_error(
    group: Group,
    settings: Settings,
    *,
    member_id: str,
    epoch: int,
    unnamed: bool,
    transactional: bool,
    api_version: int,
    partitions: Iterable[tuple[bytes | None, int]],
) -> ErrorCode:
    """Returns why this member may not commit offsets of `partitions`, pairs of topic id and index, or NONE. `unnamed`
    requests have neither a member id nor an instance id. `api_version` is that of OffsetCommit or TxnOffsetCommit.

    An earlier epoch of the member is accepted for partitions that were assigned in that epoch or before it, and that
    the member still owns.
    """
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    if transactional and epoch == -1 and unnamed:
        return ErrorCode.NONE  # old transactional producers name no member
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_classic = member.info.classic is not None
    if not transactional and not is_classic and api_version < MEMBERS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    is_older = epoch < member.current.epoch and settings.commits_by_assignment
    if is_older and all(_was_assigned(member, topic_id, index, epoch) for topic_id, index in partitions):
        return ErrorCode.NONE
    has_code = not transactional or api_version >= MEMBERS_IN_TRANSACTIONS_SINCE
    return ErrorCode.STALE_MEMBER_EPOCH if has_code and not is_classic else ErrorCode.ILLEGAL_GENERATION


def _was_assigned(member: Member, topic_id: bytes | None, index: int, epoch: int) -> bool:
    if topic_id is None:
        return False
    at = member.current.assigned.get(topic_id, {}).get(index)
    if at is None:
        at = member.current.revoking.get(topic_id, {}).get(index)
    return at is not None and epoch >= at


def fetch_error(group: Group, member_id: str | None, epoch: int) -> ErrorCode:
    """Returns why this member may not fetch offsets, or NONE. Administrators send no member id and a negative epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.info.classic is None else ErrorCode.ILLEGAL_GENERATION
