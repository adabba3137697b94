"""Offsets committed to a consumer group by one who is no member of it."""

from __future__ import annotations

from collections.abc import Mapping

from ....client.consumer.group_offsets import NOT_A_MEMBER, GroupOffsets, OffsetAndMetadata
from ....client.net.errors import ClientError
from ...backend import ReadError, TopicPartition
from .config import client_options
from .connection import connected, told
from .event_loop import loop_here


def commit_offsets(config: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits these offsets, each that of the next record to read, so that tools see how far a reader is.

    Returns when the group's coordinator has them. Raises ReadError: no broker could be asked in time, or the group has
    members, who alone may commit then.
    """
    options = client_options(config)
    if not offsets:
        return

    async def work() -> None:
        async with connected(options) as cluster:
            try:
                # The ids of the topics: newer versions commit by these.
                await cluster.refresh({key.topic for key in offsets})
                committed = {(key.topic, key.partition): OffsetAndMetadata(offset) for key, offset in offsets.items()}
                patience_s = options.default_api_timeout_ms / 1000
                await GroupOffsets(cluster, group, stable_only=False).commit(committed, NOT_A_MEMBER, patience_s)
            except ClientError as error:
                raise ReadError(f"offsets cannot be committed to group {group!r}: {told(error, cluster)}") from error

    loop = loop_here()
    try:
        loop.run(work())
    finally:
        loop.close()
