"""A transactional producer of raw requests: each method is one request in one version, and hands back what came."""

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
from ottla.protocol.records import formats
from ottla_testing.broker.harness import Client, fetch, only, produce, records

TIMEOUT_MS = 5_000
READ_COMMITTED = 1
IMPLICIT_PRODUCE, PRODUCE = 12, 9  # versions that add their partitions by themselves, and that do not
Partition = tuple[str, int]
Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


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
    """A producer that owns a transactional id, or believes so."""

    def __init__(self, client: Client, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.id, self.epoch = -1, -1
        self._sequences: dict[Partition, int] = {}

    @property
    def said(self) -> tuple[int, int]:
        return self.id, self.epoch

    async def init(self, version: int = 4, *, keep: bool = False, timeout_ms: int = TIMEOUT_MS) -> int:
        """InitProducerId; `keep` with the present producer id and epoch (KIP-360). The error."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        if keep:
            request.producer_id, request.producer_epoch = self.id, self.epoch
        answer = await self.client.call(request, version)
        if answer.error_code == 0:
            self.take(answer.producer_id, answer.producer_epoch)
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return answer.error_code

    def take(self, producer_id: int, epoch: int) -> None:
        """Goes on with these."""
        if (producer_id, epoch) != self.said:
            self._sequences.clear()
        self.id, self.epoch = producer_id, epoch

    async def add(self, *partitions: Partition, version: int = 3, verify_only: bool = False) -> dict[Partition, int]:
        """AddPartitionsToTxn: the error of each partition."""
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics_of(partitions),
            )
            return errors_of((await self.client.call(request, version)).results_by_topic_v3_and_below)
        request = AddPartitionsToTxnRequest(transactions=[self.asked(*partitions, verify_only=verify_only)])
        answer = await self.client.call(request, version)
        assert answer.error_code == 0
        ((name, results),) = [(one.transactional_id, one.topic_results) for one in answer.results_by_transaction]
        assert name == self.name
        return errors_of(results)

    def asked(self, *partitions: Partition, verify_only: bool = False) -> Asked:
        """One transaction of a request v4."""
        return Asked(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=topics_of(partitions),
        )

    async def add_offsets(self, group: str = "g", version: int = 3) -> int:
        """AddOffsetsToTxn: the error."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return (await self.client.call(request, version)).error_code

    async def send(self, *values: bytes, topic: str = "t", partition: int = 0, version: int = PRODUCE) -> int:
        """Produce of one transactional batch: the error."""
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
        partition: Partition = ("t", 0),
        metadata: str | None = None,
        **more: Any,
    ) -> int:
        """TxnOffsetCommit of one offset: the error."""
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = kind.TxnOffsetCommitRequestPartition(
            partition_index=partition[1], committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[kind(name=partition[0], partitions=[one])],
            **more,
        )
        return only(await self.client.call(request, version)).error_code

    async def end(self, committed: bool, version: int = 4) -> int:
        """EndTxn: the error. With v5 the producer goes on with what it is told."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=committed
        )
        answer = await self.client.call(request, version)
        if version >= 5 and answer.error_code == 0:
            self.take(answer.producer_id, answer.producer_epoch)
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return answer.error_code


def marking(
    producer_id: int,
    epoch: int,
    *partitions: Partition,
    committed: bool = False,
    coordinator_epoch: int = 0,
    **more: Any,
) -> WriteTxnMarkersRequest:
    """WriteTxnMarkers with one marker for these partitions."""
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


def marked(answer: WriteTxnMarkersResponse) -> dict[int, dict[Partition, int]]:
    """Of each producer the error of each partition."""
    return {
        one.producer_id: {(t.name, p.partition_index): p.error_code for t in one.topics for p in t.partitions}
        for one in answer.markers
    }


async def described(client: Client, name: str = "x") -> tuple[int, str, dict[str, list[int]]]:
    """Error, state, and the partitions in the transaction."""
    answer = await client.call(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    (found,) = answer.transaction_states
    assert found.transactional_id == name
    topics = {topic.topic: sorted(topic.partitions) for topic in found.topics}
    return found.error_code, found.transaction_state, topics


async def committed(
    client: Client, group: str = "g", *, stable: bool = False, partition: Partition = ("t", 0)
) -> tuple[int, int]:
    """(error, offset) of what a group has committed."""
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    asked = kind(name=partition[0], partition_indexes=[partition[1]])
    answer = await client.call(OffsetFetchRequest(group_id=group, topics=[asked], require_stable=stable), 7)
    assert answer.error_code == 0
    one = only(answer)
    return one.error_code, one.committed_offset


async def read_committed(client: Client, topic: str = "t", partition: int = 0, version: int = 11) -> list[bytes | None]:
    """What a consumer of committed records sees of a partition: it leaves out what the answer calls aborted."""
    answer = only(await client.call(fetch((topic, partition, 0), isolation_level=READ_COMMITTED), version))
    assert answer.error_code == 0
    begins = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
    aborted: set[int] = set()
    found: list[bytes | None] = []
    for position, header in formats.headers(answer.records):
        while begins and begins[0][0] <= header.last_offset:
            aborted.add(begins.pop(0)[1])
        if header.is_control:
            (marker,) = formats.records(answer.records, position)
            if struct.unpack(">hh", marker.key or b"")[1] == 0:
                aborted.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborted:
            found += [record.value for record in formats.records(answer.records, position)]
    return found
