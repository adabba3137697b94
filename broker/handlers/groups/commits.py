"""What OffsetCommit and TxnOffsetCommit have in common: the checks of a partition, before those of the group, and the
topics of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ...groups.offsets import CommittedOffset, Partition

if TYPE_CHECKING:
    from ...context import RequestContext

JUDGED = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
"""Partitions with these verdicts share the verdict on the member."""


COMMITS_AT_ONCE = 500
"""Commits in one cooperative step: each one writes a record."""

SORTED_PER_ENTRY = 20
"""Topics that are sorted in the time of one entry of a cooperative step."""


async def response_topics(
    kinds: tuple[Any, Any],
    topics: Sequence[Any],
    errors: Sequence[list[ErrorCode]] | None,
    outcome: ErrorCode,
    context: RequestContext,
) -> list[Any]:
    """Returns the topics of a response: `errors` are the verdicts on partitions before the checks of the group, None
    for a request that is refused as a whole, `outcome` is the verdict on the others. Topics with a partition that is
    refused before come first, as in Kafka. `kinds` are the classes of topics and partitions.
    """
    of_topic, of_partition = kinds
    if errors is None:
        errors = [[ErrorCode.NONE] * len(topic.partitions) for topic in topics]

    def partition(judged: tuple[Any, ErrorCode]) -> Any:
        requested, error = judged
        code = outcome if error in JUDGED and outcome is not ErrorCode.NONE else error
        return of_partition(partition_index=requested.partition_index, error_code=code)

    await context.step(len(errors) // SORTED_PER_ENTRY)
    ordered = sorted(zip(topics, errors, strict=True), key=lambda pair: all(error in JUDGED for error in pair[1]))
    await context.step(len(errors) // SORTED_PER_ENTRY)
    made: list[Any] = []
    for topic, found in ordered:
        partitions = await context.mapped(partition, list(zip(topic.partitions, found, strict=True)))
        made.append(of_topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return made


async def judged(
    topics: Sequence[Any], committed: Callable[[Any], CommittedOffset], context: RequestContext, *, by_id: bool
) -> tuple[list[str | None], list[list[ErrorCode]], list[tuple[Partition, CommittedOffset]]]:
    """Returns the names of the topics of a request, the errors of their partitions before the checks of the group, and
    what `committed` makes of the partitions without an error.
    """
    errors: list[list[ErrorCode]] = []
    commits: list[tuple[Partition, CommittedOffset]] = []
    name_of = context.groups.topics.name_of  # with several nodes, each access to the groups is a copy
    names = [name_of(topic.topic_id) if by_id else topic.name for topic in topics]
    for name, topic in zip(names, topics, strict=True):
        await context.step()  # also for a topic without partitions
        errors.append(await _refusals(name, topic.partitions, context))
        for partition, error in zip(topic.partitions, errors[-1], strict=True):
            await context.step()
            if name is not None and error is ErrorCode.NONE:
                commits.append(((name, partition.partition_index), committed(partition)))
    return names, errors, commits


async def _refusals(name: str | None, requested: list[Any], context: RequestContext) -> list[ErrorCode]:
    """The reasons why offsets of these partitions of a topic cannot be committed; NONE for the others."""
    refused = ErrorCode.UNKNOWN_TOPIC_ID if name is None else context.topic_refusal(AclOperation.READ, name)
    if name is None or refused is not ErrorCode.NONE:
        return [refused] * len(requested)
    groups = context.groups

    def refusal(one: Any) -> ErrorCode:
        if not groups.topics.has_partition(name, one.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # The config is in bytes, but Kafka compares it with Java's characters, which are UTF-16 units.
        units = len((one.committed_metadata or "").encode("utf-16-be", "surrogatepass")) // 2
        is_too_large = units > groups.settings.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE

    return await context.mapped(refusal, requested)


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
        await context.step(2 * min(len(commits), COMMITS_AT_ONCE))
        some = commits[first : first + COMMITS_AT_ONCE]
        error = context.groups.commit(group_id, commits=some, **more)
        if error is not ErrorCode.NONE:
            return error
    return ErrorCode.NONE
