"""A member of a share group on a connection of its own, with the requests of its share session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.share.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.messages.share.parts import AcknowledgementBatch
from ottla.protocol.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share.share_fetch import ShareFetchRequest
from ottla.protocol.records import formats
from ottla_testing.broker.harness import Broker, Client, produce, records

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP = "g"
# Acknowledgements by (topic id, partition): (first offset, last offset, types).
Given = Mapping[tuple[bytes, int], Sequence[tuple[int, int, Sequence[int]]]]


class Delivery(NamedTuple):
    """Acquired records of one partition: ranges with delivery counts, and the values by offset."""

    ranges: list[tuple[int, int, int]]
    values: dict[int, bytes | None]


def initializing(*partitions: tuple[bytes, int], group: str = GROUP, state_epoch: int = 0, start: int = 0) -> Any:
    """A request that begins the state of share partitions."""
    made = InitializeShareGroupStateRequest.InitializeStateData
    return InitializeShareGroupStateRequest(
        group_id=group,
        topics=[
            made(
                topic_id=topic_id,
                partitions=[made.PartitionData(partition=index, state_epoch=state_epoch, start_offset=start)],
            )
            for topic_id, index in partitions
        ],
    )


async def initialize(client: Client, *partitions: tuple[bytes, int], **more: Any) -> None:
    """Begins the state of share partitions, which the group coordinator does for a member."""
    response = await client.call(initializing(*partitions, **more), 0)
    codes = [one.error_code for topic in response.results for one in topic.partitions]
    assert codes == [0] * len(partitions), codes


async def written(broker: Broker, *values: bytes, partition: int = 0, client: Client | None = None) -> None:
    """Appends records to a partition of the topic `t`."""
    client = client or await broker.client()
    response = await client.call(produce(records(*values), partition=partition), 9)
    assert response.responses[0].partition_responses[0].error_code == 0


async def shared(broker: Broker, *values: bytes, start: int = 0, partitions: int = 1) -> tuple[bytes, int]:
    """Makes a topic with records, shared by the group from the start offset on. Returns its partition 0."""
    topic_id = await broker.topic("t", partitions)
    if values:
        await written(broker, *values)
    client = await broker.client()
    for index in range(partitions):
        await initialize(client, (topic_id, index), start=start)
    return topic_id, 0


async def configure(broker: Broker, **configs: str) -> None:
    """Sets configs of the group; a name has underscores for dots."""
    made = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            made(
                resource_type=32,
                resource_name=GROUP,
                configs=[
                    made.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
                    for name, value in configs.items()
                ],
            )
        ],
        validate_only=False,
    )
    response = await (await broker.client()).call(request, 1)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


class Member:
    """A member with its session epoch, and its last response."""

    def __init__(self, client: Client, name: str = "a", group: str = GROUP) -> None:
        self.client = client
        self.name = name
        self.group = group
        self.epoch = 0
        self.response: Any = None

    @classmethod
    async def join(cls, broker: Broker, name: str = "a", group: str = GROUP, node: int = 0) -> Member:
        return cls(await broker.client(node), name, group)

    def fetching(
        self,
        *partitions: tuple[bytes, int],
        acks: Given = MappingProxyType({}),
        forget: Iterable[tuple[bytes, int]] = (),
        epoch: int | None = None,
        **more: Any,
    ) -> ShareFetchRequest:
        made, batch = ShareFetchRequest.FetchTopic, AcknowledgementBatch
        fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500} | more
        topics: dict[bytes, list[Any]] = {}
        for topic_id, index in dict.fromkeys((*partitions, *acks)):
            given = [
                batch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                for first, last, types in acks.get((topic_id, index), ())
            ]
            topics.setdefault(topic_id, []).append(
                made.FetchPartition(partition_index=index, acknowledgement_batches=given)
            )
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[made(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in forget
            ],
            **fields,
        )

    async def fetch(
        self, *partitions: tuple[bytes, int], version: int = 2, **more: Any
    ) -> dict[tuple[bytes, int], Delivery]:
        """Fetches with the next epoch of the session; returns the records by partition."""
        request = self.fetching(*partitions, **more)
        self.response = await self.client.call(request, version)
        return self.received(request)

    def received(self, request: ShareFetchRequest) -> dict[tuple[bytes, int], Delivery]:
        if self.response.error_code == 0 and request.share_session_epoch >= 0:
            self.epoch = request.share_session_epoch + 1
        return {
            (topic.topic_id, data.partition_index): delivery_of(data)
            for topic in self.response.responses
            for data in topic.partitions
            if data.acquired_records
        }

    async def acknowledge(
        self, acks: Given, *, epoch: int | None = None, version: int = 2, renews: bool = False
    ) -> dict[tuple[bytes, int], int]:
        """Acknowledges with the next epoch of the session; returns the error codes by partition."""
        made = ShareAcknowledgeRequest.AcknowledgeTopic
        batch = AcknowledgementBatch
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=[
                made(
                    topic_id=topic_id,
                    partitions=[
                        made.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                batch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                                for first, last, types in given
                            ],
                        )
                    ],
                )
                for (topic_id, index), given in acks.items()
            ],
        )
        self.response = await self.client.call(request, version)
        if self.response.error_code == 0 and request.share_session_epoch >= 0:
            self.epoch = request.share_session_epoch + 1
        return {
            (topic.topic_id, data.partition_index): data.error_code
            for topic in self.response.responses
            for data in topic.partitions
        }

    @property
    def codes(self) -> dict[tuple[bytes, int], tuple[int, int]]:
        """The error and acknowledge error codes of the last response by partition."""
        return {
            (topic.topic_id, data.partition_index): (data.error_code, data.acknowledge_error_code)
            for topic in self.response.responses
            for data in topic.partitions
        }


def delivery_of(data: Any) -> Delivery:
    """The acquired records in the response of a partition; other records are left out, as clients do."""
    ranges = [(one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records]
    values: dict[int, bytes | None] = {}
    for position, header in formats.headers(data.records):
        for record in formats.records(data.records, position) if not header.is_control else ():
            if any(first <= record.offset <= last for first, last, _ in ranges):
                values[record.offset] = record.value
    return Delivery(ranges, values)
