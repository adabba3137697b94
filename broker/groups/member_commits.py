"""Whether a member of a consumer or streams group may commit and fetch offsets (KIP-848, KIP-1071, KIP-1251)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from .classic.state import Commit
from .consumer.events import Settings
from .consumer.state import Group as ConsumerGroup
from .consumer.state import Member as ConsumerMember
from .offsets import Partition
from .streams.state import Group as StreamsGroup
from .streams.state import HeldTasks
from .streams.state import Member as StreamsMember

MEMBERS_SINCE = 9
"""The version of OffsetCommit from which on members of these groups commit."""
MEMBERS_IN_TRANSACTIONS_SINCE = 6
"""The version of TxnOffsetCommit with codes for a stale epoch and an unknown group (KIP-1319)."""


def commit_error(
    group: ConsumerGroup | StreamsGroup,
    check: Commit,
    settings: Settings,
    *,
    api_version: int,
    partitions: Iterable[Partition],
    id_of: Callable[[str], bytes | None],
) -> ErrorCode:
    """Returns why the member of a request may not commit offsets of `partitions`, or NONE. The generation of the
    request is the epoch of the member. `api_version` is that of OffsetCommit or TxnOffsetCommit, `settings` are those
    of consumer groups.

    An earlier epoch of the member is accepted for partitions that were assigned in that epoch or before it, and that
    the member still owns; in a streams group for the source topics of such active tasks.
    """
    epoch, transactional = check.generation_id, check.transactional
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    if transactional and epoch == -1 and not check.member_id and check.instance_id is None:
        return ErrorCode.NONE  # old transactional producers name no member
    member = group.members.get(check.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_classic = member.info.classic is not None
    if not transactional and not is_classic and api_version < MEMBERS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    key_of: Callable[[str], Any] = group.source_topics.get if isinstance(group, StreamsGroup) else id_of
    accepts_older = isinstance(group, StreamsGroup) or settings.commits_by_assignment
    is_older = epoch < member.current.epoch and accepts_older
    if is_older and all(_was_assigned(member, key_of(topic), index, epoch) for topic, index in partitions):
        return ErrorCode.NONE
    has_code = not transactional or api_version >= MEMBERS_IN_TRANSACTIONS_SINCE
    return ErrorCode.STALE_MEMBER_EPOCH if has_code and not is_classic else ErrorCode.ILLEGAL_GENERATION


def _was_assigned(member: ConsumerMember | StreamsMember, key: bytes | str | None, index: int, epoch: int) -> bool:
    """`key` is the id of a topic or of a subtopology, None for an unknown one."""
    for held in (member.current.assigned, member.current.revoking):
        epochs: Mapping[Any, Mapping[int, int]] = held.active if isinstance(held, HeldTasks) else held
        at = epochs.get(key, {}).get(index)
        if at is not None:
            return epoch >= at
    return False


def fetch_error(group: ConsumerGroup | StreamsGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Returns why this member may not fetch offsets, or NONE. Administrators send no member id and a negative epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.current.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.info.classic is not None else ErrorCode.STALE_MEMBER_EPOCH
