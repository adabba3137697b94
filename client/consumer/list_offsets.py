"""Where a log begins, ends, or has its first record of a time: ListOffsets, asked of the leaders.

Owns the request in all its versions, and the tries until all partitions are answered. Knows no positions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.records.list_offsets import ListOffsetsRequest
from ..net.cluster import NO_NODE, Cluster
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError, UnsupportedVersion
from ..net.retry import retry

__all__ = ["EARLIEST", "LATEST", "FoundOffset", "OffsetLookup", "TopicPartition"]

LATEST, EARLIEST = -1, -2  # timestamps that mean the log's end and start
CONSUMER = -1  # the replica id of who is none
TopicPartition = tuple[str, int]


class FoundOffset(NamedTuple):
    """`offset` is -1 where the log has no record of that time or later; `timestamp_ms` is the record's."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class OffsetLookup:
    """Looks up offsets for one consumer. `committed_only`: the end is the last stable offset (read_committed)."""

    def __init__(self, cluster: Cluster, committed_only: bool) -> None:
        self._cluster = cluster
        self._committed_only = committed_only

    async def ask(
        self, connection: Connection, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        """One request to the leader of these partitions; `wanted` are timestamps. Raises ClientError."""
        version = connection.version_of(ListOffsetsRequest)
        if version == 0 and any(timestamp >= 0 for timestamp in wanted.values()):
            raise UnsupportedVersion("the broker cannot look up offsets by time: it is older than 0.10.1")
        asked = ListOffsetsRequest.ListOffsetsTopic
        by_topic: dict[str, list[ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition]] = {}
        for (topic, partition), timestamp in wanted.items():
            one = asked.ListOffsetsPartition(
                partition_index=partition, timestamp=timestamp, current_leader_epoch=self.epoch(topic, partition)
            )
            by_topic.setdefault(topic, []).append(one)
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(self._committed_only and version >= 2),
            topics=[asked(name=name, partitions=partitions) for name, partitions in by_topic.items()],
            timeout_ms=self._cluster.options.request_timeout_ms,
        )
        response = await connection.request(request, version)
        answers: dict[TopicPartition, FoundOffset | KafkaError] = {}
        for topic in response.topics:
            for found in topic.partitions:
                where = topic.name, found.partition_index
                if found.error_code:
                    answers[where] = KafkaError(found.error_code, f"{where[0]}-{where[1]}")
                elif version == 0:
                    offset = found.old_style_offsets[0] if found.old_style_offsets else -1
                    answers[where] = FoundOffset(offset)
                else:
                    answers[where] = FoundOffset(found.offset, found.timestamp, found.leader_epoch)
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "an answer to ListOffsets without the partition")
        return {where: answers.get(where, missing) for where in wanted}

    def epoch(self, topic: str, partition: int) -> int:
        """The leader epoch of a partition as known, or -1."""
        known = self._cluster.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        return found.leader_epoch if found is not None else -1

    async def all(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, FoundOffset]:
        """All of them, tried again as long as that may help. Raises NoSuchTopic, KafkaError, ConnectionLost."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        left = dict(wanted)
        found: dict[TopicPartition, FoundOffset] = {}

        async def attempt() -> None:
            failure = await self._round(left, found, deadline)
            if failure is not None:
                raise failure

        await retry(attempt, self._cluster.retry_backoff_s, timeout_s)
        return found

    async def _round(
        self, left: dict[TopicPartition, int], found: dict[TopicPartition, FoundOffset], deadline: float
    ) -> ClientError | None:
        """Asks once for what is left, moves what is answered to `found`; why something is left, or None."""
        loop = asyncio.get_running_loop()
        failure: ClientError | None = None
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for topic in {topic for topic, _ in left}:
            await self._cluster.topic(topic, max(0.0, deadline - loop.time()))
        for where, timestamp in left.items():
            by_node.setdefault(self._cluster.leader(*where), {})[where] = timestamp
        for node_id, part in by_node.items():
            if node_id == NO_NODE:
                failure = self._leaderless(part)
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    answers = await self.ask(await self._cluster.connection(node_id, "control"), part)
            except TimeoutError:
                return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer to ListOffsets in time")
            except ClientError as error:
                failure = error
                self._expire(part)
                continue
            for where, answer in answers.items():
                if isinstance(answer, KafkaError):
                    failure = answer
                    if answer.stale_metadata:
                        self._expire([where])
                else:
                    found[where] = answer
                    del left[where]
        return failure

    def _leaderless(self, part: Iterable[TopicPartition]) -> KafkaError:
        self._expire(part)
        for topic, partition in part:
            known = self._cluster.topics.get(topic)
            if known is not None and known.partitions and partition not in known.partitions:
                count = len(known.partitions)
                return KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has {count} partitions, no {partition}"
                )
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)

    def _expire(self, part: Iterable[TopicPartition]) -> None:
        for topic in {topic for topic, _ in part}:
            self._cluster.expire(topic)
