"""Lookup of offsets at the leaders with ListOffsets: log start, log end, or by timestamp.

Owns the request in all its versions, and the retries until all partitions have a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode
from ...protocol.messages.records.list_offsets import ListOffsetsRequest
from ...protocol.named import NamedTuple
from ..net.cluster import NO_NODE, Cluster
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError, UnsupportedVersion
from ..net.metadata import TopicPartition, by_topic, partitions_in
from ..net.retry import retry

LATEST, EARLIEST = -1, -2  # timestamps that mean the end and the start of the log
CONSUMER = -1  # the replica id of a consumer


class FoundOffset(NamedTuple):
    """The result of a lookup. `offset` is -1 without a record of that time or later; `timestamp_ms` is the record's."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class OffsetLookup:
    """Lookups of one consumer. `committed_only`: the end is the last stable offset (read_committed)."""

    def __init__(self, cluster: Cluster, committed_only: bool) -> None:
        self._cluster = cluster
        self._committed_only = committed_only

    async def send(
        self, connection: Connection, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        """Sends one request to the leader of partitions; `wanted` are timestamps. Raises ClientError."""
        version = connection.version_of(ListOffsetsRequest)
        if version == 0 and any(timestamp >= 0 for timestamp in wanted.values()):
            raise UnsupportedVersion("the broker (before Kafka 0.10.1) cannot look up offsets by timestamp")
        topic_class = ListOffsetsRequest.ListOffsetsTopic
        make = topic_class.ListOffsetsPartition
        parts = by_topic(
            (topic, make(partition_index=n, timestamp=timestamp, current_leader_epoch=self.epoch(topic, n)))
            for (topic, n), timestamp in wanted.items()
        )
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(self._committed_only and version >= 2),
            topics=[topic_class(name=name, partitions=some) for name, some in parts.items()],
            timeout_ms=self._cluster.options.request_timeout_ms,
        )
        response = await connection.request(request, version)
        results: dict[TopicPartition, FoundOffset | KafkaError] = {}
        for where, found in partitions_in(response.topics):
            if found.error_code:
                results[where] = KafkaError(found.error_code, f"{where[0]}-{where[1]}")
            elif version == 0:
                results[where] = FoundOffset(found.old_style_offsets[0] if found.old_style_offsets else -1)
            else:
                results[where] = FoundOffset(found.offset, found.timestamp, found.leader_epoch)
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response to ListOffsets does not have the partition")
        return {where: results.get(where, missing) for where in wanted}

    def epoch(self, topic: str, partition: int) -> int:
        """Returns the known leader epoch of a partition, or -1."""
        known = self._cluster.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        return found.leader_epoch if found is not None else -1

    async def all(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, FoundOffset]:
        """Looks up all partitions, with retries. Raises NoSuchTopic, KafkaError, ConnectionLost."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        left = dict(wanted)
        found: dict[TopicPartition, FoundOffset] = {}
        await retry(lambda: self._round(left, found, deadline), self._cluster.retry_backoff_s, timeout_s)
        return found

    async def _round(
        self, left: dict[TopicPartition, int], found: dict[TopicPartition, FoundOffset], deadline: float
    ) -> None:
        """Sends one request to each leader and moves results from `left` to `found`. Raises the last error."""
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
                    results = await self.send(await self._cluster.connection(node_id, "control"), part)
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no response to ListOffsets within the timeout") from None
            except ClientError as error:
                failure = error
                self._expire(part)
                continue
            for where, result in results.items():
                if isinstance(result, KafkaError):
                    failure = result
                    if result.stale_metadata:
                        self._expire([where])
                else:
                    found[where] = result
                    del left[where]
        if failure is not None:
            raise failure

    def _leaderless(self, part: Iterable[TopicPartition]) -> KafkaError:
        self._expire(part)
        for topic, partition in part:
            known = self._cluster.topics.get(topic)
            if known is not None and known.partitions and partition not in known.partitions:
                count = len(known.partitions)
                return KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has no partition {partition}: it has {count} partitions",
                )
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)

    def _expire(self, part: Iterable[TopicPartition]) -> None:
        for topic in {topic for topic, _ in part}:
            self._cluster.expire(topic)
