"""Calls of `Admin` on logs: offsets, deletion of records, producers, and log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from ...protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ...protocol.messages.records.delete_records import DeleteRecordsRequest
from ...protocol.messages.records.list_offsets import ListOffsetsRequest
from ...protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ..consumer.list_offsets import FoundOffset, OffsetLookup
from ..net.connection import Connection
from ..net.errors import ClientError, ConfigError, UnsupportedVersion
from ..net.metadata import by_topic, partitions_in
from .calls import Caller, Results, failure
from .types import LogDir, LogDirPartition, ProducerState, TopicPartition

MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -3, -4, -5  # KIP-734, KIP-405, KIP-1005
HIGH_WATERMARK = -1  # an offset of `delete_records`
_NEEDS_VERSION = {MAX_TIMESTAMP: (7, "3.0"), EARLIEST_LOCAL: (8, "3.4"), LATEST_TIERED: (9, "3.9")}
_ISOLATIONS = ("read_uncommitted", "read_committed")


class LogCalls(Caller):
    """The log calls of `Admin`."""

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, FoundOffset | ClientError]:
        """Returns the first offset whose timestamp (ms) is at least the wanted one, -1 if there is none.

        A wanted timestamp may be one of the constants EARLIEST, LATEST, MAX_TIMESTAMP (3.0 and later), EARLIEST_LOCAL
        (3.5), LATEST_TIERED (3.9); other timestamps need Kafka 0.10.1. Raises ConfigError for an unknown isolation.
        """
        if isolation not in _ISOLATIONS:
            raise ConfigError(f"isolation must be one of {', '.join(_ISOLATIONS)}, not {isolation!r}")
        lookup = OffsetLookup(self._calls.cluster, isolation == "read_committed")

        async def send(connection: Connection, left: list[TopicPartition]) -> Results[TopicPartition, FoundOffset]:
            version = connection.version_of(ListOffsetsRequest)
            outcomes: dict[TopicPartition, FoundOffset | ClientError] = {}
            for where in left:
                needed, since = _NEEDS_VERSION.get(wanted[where], (1 if wanted[where] >= 0 else 0, "0.10.1"))
                if version < needed:
                    outcomes[where] = UnsupportedVersion(
                        f"the broker cannot look up this timestamp: new in Kafka {since}"
                    )
            served = {where: wanted[where] for where in left if where not in outcomes}
            return outcomes | (await lookup.send(connection, served) if served else {})

        return await self._calls.at_leaders(wanted, send, timeout_s)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int | ClientError]:
        """Deletes records below offsets, all for HIGH_WATERMARK; returns the log start offsets (0.11 and later)."""

        async def send(connection: Connection, left: list[TopicPartition]) -> dict[TopicPartition, int | ClientError]:
            cls = DeleteRecordsRequest.DeleteRecordsTopic
            make = cls.DeleteRecordsPartition
            parts = by_topic((name, make(partition_index=n, offset=before[name, n])) for name, n in left)
            topics = [cls(name=name, partitions=some) for name, some in parts.items()]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=self._calls.timeout_ms)
            response = await connection.request(request)
            return {where: failure(result) or result.low_watermark for where, result in partitions_in(response.topics)}

        return await self._calls.at_leaders(before, send, timeout_s)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...] | ClientError]:
        """Returns the producer state of partitions, sorted by producer id (Kafka 2.8 and later)."""

        async def send(
            connection: Connection, left: list[TopicPartition]
        ) -> dict[TopicPartition, tuple[ProducerState, ...] | ClientError]:
            topics = [
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(left).items()
            ]
            response = await connection.request(DescribeProducersRequest(topics=topics))
            outcomes: dict[TopicPartition, tuple[ProducerState, ...] | ClientError] = {}
            for where, result in partitions_in(response.topics):
                states = sorted(
                    ProducerState(
                        p.producer_id,
                        p.producer_epoch,
                        p.last_sequence,
                        p.coordinator_epoch,
                        p.current_txn_start_offset,
                        p.last_timestamp,
                    )
                    for p in result.active_producers
                )
                outcomes[where] = failure(result) or tuple(states)
            return outcomes

        return await self._calls.at_leaders(partitions, send, timeout_s)

    async def describe_log_dirs(
        self, node_ids: Iterable[int] | None = None, *, timeout_s: float | None = None
    ) -> dict[int, tuple[LogDir, ...] | ClientError]:
        """Returns the log directories of brokers, by default of all, with their partitions (Kafka 1.0 and later)."""

        async def send(connection: Connection, left: list[int]) -> dict[int, tuple[LogDir, ...] | ClientError]:
            response = await connection.request(DescribeLogDirsRequest(topics=None))
            outcome = failure(response) or tuple(_log_dir(result) for result in response.results)
            return dict.fromkeys(left, outcome)

        wanted = await self._calls.nodes(timeout_s) if node_ids is None else node_ids
        return await self._calls.at_any(wanted, send, timeout_s, int)


def _log_dir(result: DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDir:
    partitions = {
        where: LogDirPartition(p.offset_lag, p.is_future_key, p.partition_size)
        for where, p in partitions_in(result.topics)
    }
    return LogDir(
        result.log_dir,
        partitions,
        failure(result),
        result.is_cordoned,
        result.total_bytes,
        result.usable_bytes,
    )
