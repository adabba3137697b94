"""The admin's calls about logs: offsets, deleted records, producers, and the directories of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from ...protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ...protocol.messages.records.delete_records import DeleteRecordsRequest
from ...protocol.messages.records.list_offsets import ListOffsetsRequest
from ...protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ..consumer.list_offsets import EARLIEST, LATEST, FoundOffset, OffsetLookup
from ..net.connection import Connection
from ..net.errors import ClientError, ConfigError, UnsupportedVersion
from .calls import Calls, failure
from .types import LogDir, LogDirPartition, ProducerState, TopicPartition

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "HIGH_WATERMARK",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "LogCalls",
]

MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -3, -4, -5  # KIP-734, KIP-405, KIP-1005
HIGH_WATERMARK = -1  # as an offset to delete records before
_NEEDS_VERSION = {MAX_TIMESTAMP: (7, "3.0"), EARLIEST_LOCAL: (8, "3.4"), LATEST_TIERED: (9, "3.9")}
_ISOLATIONS = ("read_uncommitted", "read_committed")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics with the numbers of their partitions."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


class LogCalls:
    """A part of `Admin`."""

    _calls: Calls

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, FoundOffset | ClientError]:
        """The first offset whose record is of a time (milliseconds) or later, -1 if there is none; or one of the
        constants: EARLIEST, LATEST, MAX_TIMESTAMP (3.0 and later), EARLIEST_LOCAL, LATEST_TIERED.

        Times can be looked up from Kafka 0.10.1 on. Raises ConfigError for another isolation.
        """
        if isolation not in _ISOLATIONS:
            raise ConfigError(f"isolation is one of {', '.join(_ISOLATIONS)}, not {isolation!r}")
        lookup = OffsetLookup(self._calls.cluster, isolation == "read_committed")

        async def ask(
            connection: Connection, left: list[TopicPartition]
        ) -> dict[TopicPartition, FoundOffset | ClientError]:
            version = connection.version_of(ListOffsetsRequest)
            answers: dict[TopicPartition, FoundOffset | ClientError] = {}
            for where in left:
                needed, since = _NEEDS_VERSION.get(wanted[where], (1 if wanted[where] >= 0 else 0, "0.10.1"))
                if version < needed:
                    answers[where] = UnsupportedVersion(f"the broker cannot look that up: it is older than {since}")
            served = {where: wanted[where] for where in left if where not in answers}
            return answers | (await lookup.ask(connection, served) if served else {})

        return await self._calls.at_leaders(wanted, ask, timeout_s)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int | ClientError]:
        """Deletes the records below offsets, or all for HIGH_WATERMARK; the new log start offsets (0.11 and later)."""
        timeout_ms = self._calls.cluster.options.request_timeout_ms

        async def ask(connection: Connection, left: list[TopicPartition]) -> dict[TopicPartition, int | ClientError]:
            cls = DeleteRecordsRequest.DeleteRecordsTopic
            asked = [
                cls(
                    name=name,
                    partitions=[
                        cls.DeleteRecordsPartition(partition_index=number, offset=before[name, number])
                        for number in numbers
                    ],
                )
                for name, numbers in by_topic(left).items()
            ]
            response = await connection.request(DeleteRecordsRequest(topics=asked, timeout_ms=timeout_ms))
            return {
                (topic.name, told.partition_index): failure(told.error_code) or told.low_watermark
                for topic in response.topics
                for told in topic.partitions
            }

        return await self._calls.at_leaders(before, ask, timeout_s)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...] | ClientError]:
        """What the leaders know of idempotent producers, by producer id (Kafka 2.8 and later)."""

        async def ask(
            connection: Connection, left: list[TopicPartition]
        ) -> dict[TopicPartition, tuple[ProducerState, ...] | ClientError]:
            asked = [
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(left).items()
            ]
            response = await connection.request(DescribeProducersRequest(topics=asked))
            answers: dict[TopicPartition, tuple[ProducerState, ...] | ClientError] = {}
            for topic in response.topics:
                for told in topic.partitions:
                    states = sorted(
                        ProducerState(
                            p.producer_id,
                            p.producer_epoch,
                            p.last_sequence,
                            p.coordinator_epoch,
                            p.current_txn_start_offset,
                            p.last_timestamp,
                        )
                        for p in told.active_producers
                    )
                    where = topic.name, told.partition_index
                    answers[where] = failure(told.error_code, told.error_message) or tuple(states)
            return answers

        return await self._calls.at_leaders(partitions, ask, timeout_s)

    async def describe_log_dirs(
        self, node_ids: Iterable[int] | None = None, *, timeout_s: float | None = None
    ) -> dict[int, tuple[LogDir, ...] | ClientError]:
        """The directories of brokers, of all by default, with the partitions in them (Kafka 1.0 and later)."""

        async def ask(connection: Connection, left: list[int]) -> dict[int, tuple[LogDir, ...] | ClientError]:
            response = await connection.request(DescribeLogDirsRequest(topics=None))
            outcome = failure(response.error_code) or tuple(_log_dir(told) for told in response.results)
            return dict.fromkeys(left, outcome)

        wanted = await self._calls.nodes(timeout_s) if node_ids is None else node_ids
        return await self._calls.at_any(wanted, ask, timeout_s, int)


def _log_dir(told: DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDir:
    partitions = {
        (topic.name, p.partition_index): LogDirPartition(p.offset_lag, p.is_future_key, p.partition_size)
        for topic in told.topics
        for p in topic.partitions
    }
    return LogDir(
        told.log_dir,
        partitions,
        failure(told.error_code),
        told.is_cordoned,
        told.total_bytes,
        told.usable_bytes,
    )
