"""Commits offsets to a consumer group without being a member of it."""

from __future__ import annotations

from collections.abc import Mapping

from ....client.consumer.group_offsets import NOT_A_MEMBER, GroupOffsets, OffsetAndMetadata
from ....client.net.errors import ClientError
from ...backend import ReadError, TopicPartition
from .config import client_options
from .connection import connected, with_brokers
from .event_loop import loop_here


def commit_offsets(config: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits these offsets, each that of the next record to read, so that lag tools can show the progress of a reader.

    Returns when the group's coordinator has stored them. Raises ReadError if no broker responded in time, or if the
    group has members: only these may commit then.
    """
    options = client_options(config)
    if not offsets:
        return

    async def work() -> None:
        async with connected(options) as cluster:
            try:
                # Newer versions of OffsetCommit need topic ids.
                await cluster.refresh({key.topic for key in offsets})
                committed = {(key.topic, key.partition): OffsetAndMetadata(offset) for key, offset in offsets.items()}
                patience_s = options.default_api_timeout_ms / 1000
                await GroupOffsets(cluster, group, stable_only=False).commit(committed, NOT_A_MEMBER, patience_s)
            except ClientError as error:
                raise ReadError(f"cannot commit offsets to group {group!r}: {with_brokers(error, cluster)}") from error

    loop = loop_here()
    try:
        loop.run(work())
    finally:
        loop.close()
