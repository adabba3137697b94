"""What OffsetCommit and TxnOffsetCommit check of one partition before the group is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ...protocol.errors import ErrorCode
from .at_node import GroupsAtNode
from .coordinator import GroupCoordinator

JUDGED = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
"""The verdicts on partitions that share the one on the member."""


T = TypeVar("T")


def refused_first(topics: Sequence[T], errors: Sequence[list[ErrorCode]]) -> list[tuple[T, list[ErrorCode]]]:
    """Topics with the verdicts on their partitions in the order in which Kafka answers: first those of which something
    is refused before the group is asked."""
    return sorted(zip(topics, errors, strict=True), key=lambda pair: all(error in JUDGED for error in pair[1]))


def commit_refusal(groups: GroupCoordinator | GroupsAtNode, topic: str, index: int, metadata: str | None) -> ErrorCode:
    """Why an offset of this partition cannot be committed; NONE if it can."""
    if not groups.partition_exists(topic, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The limit says bytes and is compared with Java's characters, which are UTF-16 units.
    if len((metadata or "").encode("utf-16-be", "surrogatepass")) // 2 > groups.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE
