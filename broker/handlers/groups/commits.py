"""What OffsetCommit and TxnOffsetCommit check of one partition before the group is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ....protocol.errors import ErrorCode
from ...groups.at_node import GroupsAtNode
from ...groups.coordinator import GroupCoordinator
from ...groups.offsets import CommittedOffset, Partition

if TYPE_CHECKING:
    from ...context import RequestContext

JUDGED = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
"""The verdicts on partitions that share the one on the member."""


COMMITS_AT_ONCE = 500
"""Of one cooperative step: each is a record that is written."""

T = TypeVar("T")


def refused_first(topics: Sequence[T], errors: Sequence[list[ErrorCode]]) -> list[tuple[T, list[ErrorCode]]]:
    """Topics with the verdicts on their partitions in the order in which Kafka answers: first those of which something
    is refused before the group is asked."""
    return sorted(zip(topics, errors, strict=True), key=lambda pair: all(error in JUDGED for error in pair[1]))


def commit_refusal(groups: GroupCoordinator | GroupsAtNode, topic: str, index: int, metadata: str | None) -> ErrorCode:
    """Why an offset of this partition cannot be committed; NONE if it can."""
    if not groups.topics.has_partition(topic, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The limit says bytes and is compared with Java's characters, which are UTF-16 units.
    if len((metadata or "").encode("utf-16-be", "surrogatepass")) // 2 > groups.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def commit(
    context: RequestContext,
    group_id: str,
    *,
    commits: Sequence[tuple[Partition, CommittedOffset]],
    **more: Any,
) -> ErrorCode:
    """`GroupCoordinator.commit` in cooperative steps: the one answer for all these partitions.

    Each step asks the group again, so that a member which is replaced between two of them writes nothing more. What it
    wrote before that stays: the client receives the error for all partitions, as for a commit whose response is lost.
    """
    for first in range(0, len(commits) or 1, COMMITS_AT_ONCE):
        if context.is_due(2 * COMMITS_AT_ONCE if len(commits) > COMMITS_AT_ONCE else 2 * len(commits)):
            await context.next_step()
        some = commits[first : first + COMMITS_AT_ONCE]
        error = context.groups.commit(group_id, commits=some, **more)
        if error is not ErrorCode.NONE:
            return error
    return ErrorCode.NONE
