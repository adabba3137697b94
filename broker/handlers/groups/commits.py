"""Checks of OffsetCommit and TxnOffsetCommit on a partition, before those of the group."""

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
"""Partitions with these verdicts share the verdict on the member."""


COMMITS_AT_ONCE = 500
"""Commits in one cooperative step: each one writes a record."""

T = TypeVar("T")


def refused_first(topics: Sequence[T], errors: Sequence[list[ErrorCode]]) -> list[tuple[T, list[ErrorCode]]]:
    """Returns topics with the verdicts on their partitions, in Kafka's order: first the topics with a partition that is
    refused before the checks of the group.
    """
    return sorted(zip(topics, errors, strict=True), key=lambda pair: all(error in JUDGED for error in pair[1]))


def commit_refusal(groups: GroupCoordinator | GroupsAtNode, topic: str, index: int, metadata: str | None) -> ErrorCode:
    """Returns the reason why an offset of this partition cannot be committed, or NONE."""
    if not groups.topics.has_partition(topic, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The config is in bytes, but Kafka compares it with Java's characters, which are UTF-16 units.
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
    """Calls `GroupCoordinator.commit` in cooperative steps; returns one result for all these partitions.

    Each step checks the group again, so that a member that is replaced between two steps commits nothing more. Its
    earlier commits stay: the client receives the error for all partitions, as for a commit whose response is lost.
    """
    for first in range(0, len(commits) or 1, COMMITS_AT_ONCE):
        if context.is_due(2 * COMMITS_AT_ONCE if len(commits) > COMMITS_AT_ONCE else 2 * len(commits)):
            await context.next_step()
        some = commits[first : first + COMMITS_AT_ONCE]
        error = context.groups.commit(group_id, commits=some, **more)
        if error is not ErrorCode.NONE:
            return error
    return ErrorCode.NONE
