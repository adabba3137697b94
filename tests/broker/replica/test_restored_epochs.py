"""Values that never go back, even if a broker's state is restored: producer ids, and leader epochs."""

from __future__ import annotations

import pytest

from ottla.broker import Embedded
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla_testing.broker.harness import Client
from ottla_testing.broker.transacting import Owner


async def client_of(broker: Embedded) -> Client:
    host, _, port = broker.bootstrap.split(",")[0].rpartition(":")
    return await Client.connect(int(port), host)


async def new_producer_id(broker: Embedded) -> int:
    client = await client_of(broker)
    try:
        requested = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        return (await client.call(requested, 4)).producer_id
    finally:
        client.close()


def epochs(broker: Embedded, topic: str) -> list[int]:
    return [one.leader_epoch for one in broker.topology.describe().partitions if one.topic == topic]


async def end_of_epoch(broker: Embedded, topic: str, epoch: int) -> tuple[int, int]:
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=epoch
    )
    client = await client_of(broker)
    try:
        requested = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
        (response,) = (await client.call(requested, 4)).topics
        return response.partitions[0].leader_epoch, response.partitions[0].end_offset
    finally:
        client.close()


async def test_producer_ids_stay_unique_over_restores():
    async with Embedded() as broker:
        start = broker.snapshot()
        ids = [await new_producer_id(broker)]
        later = broker.snapshot()
        for snapshot in (start, later, start, None):
            broker.reset() if snapshot is None else broker.restore(snapshot)
            ids += [await new_producer_id(broker), await new_producer_id(broker)]
        client = await client_of(broker)
        owner = Owner(client)
        assert await owner.init() == 0
        assert len({*ids, owner.identity[0]}) == len(ids) + 1
        client.close()


def test_leader_epochs_are_not_reused_after_restores():
    with Embedded(brokers=3) as broker:
        topic = broker.create_topic(partitions=2)
        snapshot = broker.snapshot()
        for node in (2, 3, 2):
            broker.topology.move_leader(topic, 0, node)
        assert epochs(broker, topic) == [3, 1] or broker.topology.leader(topic, 1) == 2
        reported = epochs(broker, topic)
        broker.restore(snapshot)
        assert broker.topology.leader(topic) == 1 and epochs(broker, topic)[0] == reported[0] + 1
        broker.restore(snapshot)
        assert epochs(broker, topic)[0] > reported[0] + 1
        # Nor those of a topic that was deleted meanwhile.
        broker.topology.move_leader(topic, 0, 3)
        reported = epochs(broker, topic)
        broker.delete_topic(topic)
        broker.restore(snapshot)
        assert epochs(broker, topic)[0] > reported[0]


@pytest.mark.parametrize("on_disk", [False, True])
async def test_truncated_log_gets_a_new_epoch_and_others_keep_theirs(tmp_path, on_disk: bool):
    folder = tmp_path / "data" if on_disk else None
    async with Embedded(data_dir=folder) as broker:
        cut, same = broker.create_topic(), broker.create_topic()
        broker.send_many(cut, "abc")
        broker.send(same, "a")
        snapshot = broker.snapshot()
        broker.send_many(cut, "defg")
        broker.restore(snapshot)
        assert (epochs(broker, cut), epochs(broker, same)) == ([1], [0])
        # Consumers that have read further find their position by this (KIP-320).
        assert await end_of_epoch(broker, cut, 0) == (0, 3)
        broker.send(cut, "other")
        assert await end_of_epoch(broker, cut, 0) == (0, 3)
        assert await end_of_epoch(broker, cut, 1) == (1, 4)
        later = broker.snapshot()
        broker.restore(snapshot)
        broker.restore(later)
        reported = epochs(broker, cut)
        assert reported[0] > 2
    if folder is not None:
        async with Embedded(data_dir=folder) as broker:
            assert epochs(broker, cut) == reported
