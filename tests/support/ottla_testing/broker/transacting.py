"""A transactional producer of raw requests: each method sends one request in one version, and returns the result."""

from __future__ import annotations

import struct
from typing import Any

from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.transactions.end_txn import EndTxnRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records import formats
from ottla_testing.broker.harness import Client, fetch, only, produce, records

TIMEOUT_MS = 5_000
READ_COMMITTED = 1
IMPLICIT_PRODUCE, PRODUCE = 12, 9  # versions that add their partitions implicitly, and versions that do not
Partition = tuple[str, int]
RequestedTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


def topics_of(partitions: tuple[Partition, ...]) -> list[AddPartitionsToTxnTopic]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in found.items()]


def errors_of(results: list[Any]) -> dict[Partition, int]:
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in results
        for one in topic.results_by_partition
    }


class Owner:
    """A producer that owns a transactional id, or did."""

    def __init__(self, client: Client, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.id, self.epoch = -1, -1
        self._sequences: dict[Partition, int] = {}

    @property
    def identity(self) -> tuple[int, int]:
        return self.id, self.epoch

    async def init(self, version: int = 4, *, keep: bool = False, timeout_ms: int = TIMEOUT_MS) -> int:
        """InitProducerId; `keep` sends the current producer id and epoch (KIP-360). Returns the error."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        if keep:
            request.producer_id, request.producer_epoch = self.id, self.epoch
        response = await self.client.call(request, version)
        if response.error_code == 0:
            self.take(response.producer_id, response.producer_epoch)
        else:
            assert (response.producer_id, response.producer_epoch) == (-1, -1)
        return response.error_code

    def take(self, producer_id: int, epoch: int) -> None:
        """Continues with this producer id and epoch."""
        if (producer_id, epoch) != self.identity:
            self._sequences.clear()
        self.id, self.epoch = producer_id, epoch

    async def add(self, *partitions: Partition, version: int = 3, verify_only: bool = False) -> dict[Partition, int]:
        """AddPartitionsToTxn: returns the error of each partition."""
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics_of(partitions),
            )
            return errors_of((await self.client.call(request, version)).results_by_topic_v3_and_below)
        request = AddPartitionsToTxnRequest(transactions=[self.entry(*partitions, verify_only=verify_only)])
        response = await self.client.call(request, version)
        assert response.error_code == 0
        ((name, results),) = [(one.transactional_id, one.topic_results) for one in response.results_by_transaction]
        assert name == self.name
        return errors_of(results)

    def entry(self, *partitions: Partition, verify_only: bool = False) -> RequestedTransaction:
        """Returns one transaction of an AddPartitionsToTxn v4 request."""
        return RequestedTransaction(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=topics_of(partitions),
        )

    async def add_offsets(self, group: str = "g", version: int = 3) -> int:
        """AddOffsetsToTxn: returns the error."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return (await self.client.call(request, version)).error_code

    async def send(self, *values: bytes, topic: str = "t", partition: int = 0, version: int = PRODUCE) -> int:
        """Produce of one transactional batch: returns the error."""
        sequence = self._sequences.get((topic, partition), 0)
        data = records(
            *values, producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
        )
        request = produce(data, topic, partition, transactional_id=self.name)
        error = only(await self.client.call(request, version)).error_code
        if error == 0:
            self._sequences[topic, partition] = sequence + len(values)
        return error

    async def commit_offset(
        self,
        offset: int,
        *,
        version: int = 3,
        group: str = "g",
        partition: tuple[str | bytes, int] = ("t", 0),
        metadata: str | None = None,
        **more: Any,
    ) -> int:
        """TxnOffsetCommit of one offset: returns the error. v6 takes a topic id in place of a name."""
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = kind.TxnOffsetCommitRequestPartition(
            partition_index=partition[1], committed_offset=offset, committed_metadata=metadata
        )
        topic = partition[0]
        name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[kind(name=name, topic_id=topic_id, partitions=[one])],
            **more,
        )
        return only(await self.client.call(request, version)).error_code

    async def end(self, committed: bool, version: int = 4) -> int:
        """EndTxn: returns the error. With v5 the producer continues with the returned id and epoch."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        response = await self.client.call(request, version)
        if version >= 5 and response.error_code == 0:
            self.take(response.producer_id, response.producer_epoch)
        else:
            assert (response.producer_id, response.producer_epoch) == (-1, -1)
        return response.error_code


def marking(
    producer_id: int,
    epoch: int,
    *partitions: Partition,
    committed: bool = False,
    coordinator_epoch: int = 0,
    **more: Any,
) -> WriteTxnMarkersRequest:
    """Returns a WriteTxnMarkers request with one marker for these partitions."""
    one = WriteTxnMarkersRequest.WritableTxnMarker
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    marker = one(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[one.WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=coordinator_epoch,
        **more,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def marked(response: WriteTxnMarkersResponse) -> dict[int, dict[Partition, int]]:
    """Returns the error of each partition, by producer."""
    return {
        one.producer_id: {(t.name, p.partition_index): p.error_code for t in one.topics for p in t.partitions}
        for one in response.markers
    }


async def described(client: Client, name: str = "x") -> tuple[int, str, dict[str, list[int]]]:
    """Returns the error, the state, and the partitions of the transaction."""
    response = await client.call(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    (found,) = response.transaction_states
    assert found.transactional_id == name
    topics = {topic.topic: sorted(topic.partitions) for topic in found.topics}
    return found.error_code, found.transaction_state, topics


async def committed(
    client: Client, group: str = "g", *, stable: bool = False, partition: Partition = ("t", 0)
) -> tuple[int, int]:
    """Returns (error, offset) of a group's commit."""
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    entry = kind(name=partition[0], partition_indexes=[partition[1]])
    response = await client.call(OffsetFetchRequest(group_id=group, topics=[entry], require_stable=stable), 7)
    assert response.error_code == 0
    one = only(response)
    return one.error_code, one.committed_offset


async def read_committed(client: Client, topic: str = "t", partition: int = 0, version: int = 11) -> list[bytes | None]:
    """Returns the records of a partition for a read_committed consumer, without the aborted transactions in the
    response.
    """
    response = only(await client.call(fetch((topic, partition, 0), isolation_level=READ_COMMITTED), version))
    assert response.error_code == 0
    begins = sorted((one.first_offset, one.producer_id) for one in response.aborted_transactions or ())
    aborted: set[int] = set()
    found: list[bytes | None] = []
    for position, header in formats.headers(response.records):
        while begins and begins[0][0] <= header.last_offset:
            aborted.add(begins.pop(0)[1])
        if header.is_control:
            (marker,) = formats.records(response.records, position)
            if struct.unpack(">hh", marker.key or b"")[1] == 0:
                aborted.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborted:
            found += [record.value for record in formats.records(response.records, position)]
    return found
