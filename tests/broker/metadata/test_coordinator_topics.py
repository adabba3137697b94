"""Requests to a coordinator while its internal topic does not exist.

Expected results are those of Apache Kafka 2.4.1, 2.5.1, 2.7.2, 2.8.2, 3.9.1 and 4.3.1, each with one node.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from ottla_testing.broker.coordinator_requests import FETCHED, GROUP, REQUESTS, TRANSACTION
from ottla_testing.broker.harness import Broker, Client, running

SWITCH = "ottla.behaviour.coordinator_awaits_topic"
AS_KAFKA = {SWITCH: "true"}  # the default of the releases; the test brokers turn it off
NOT_AVAILABLE, NOT_COORDINATOR = 15, 16


async def named(client: Client, key_type: int) -> tuple[int, str, int, str, int]:
    """FindCoordinator v1: error, message, node, host, port."""
    reported = await client.call(FindCoordinatorRequest(key_type=key_type, key="g"), 1)
    return reported.error_code, reported.error_message, reported.node_id, reported.host, reported.port


def internal(broker: Broker) -> set[str]:
    return {topic.name for topic in broker.state.topics} - {"t"}


@pytest.mark.parametrize("release", ["2.4", "2.8", "3.9", "4.3", "ottla"])
@pytest.mark.parametrize("brokers", [1, 3])
async def test_coordinator_is_unavailable_before_its_topic_exists(release: str, brokers: int, tmp_path: Path) -> None:
    async with running(tmp_path, release=release, overrides=AS_KAFKA, brokers=brokers) as broker:
        client = await broker.client()
        await broker.topic("t")
        for _ in range(2):
            for request, version, error in REQUESTS:
                assert error(await client.call(request, version)) == NOT_COORDINATOR, request
            assert internal(broker) == set()
        listed = await client.call(ListGroupsRequest(states_filter=[], types_filter=[]), 2)
        assert (listed.error_code, listed.groups) == (0, [])
        reported = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1)
        assert reported.error_code == 0

        empty = (NOT_AVAILABLE, "The coordinator is not available.", -1, "", -1)
        for key_type, topic in ((GROUP, GROUP_OFFSETS_TOPIC), (TRANSACTION, TRANSACTION_STATE_TOPIC)):
            assert await named(client, key_type) == empty
            assert topic in internal(broker)
            found = await named(client, key_type)
            assert found[:2] == (0, "NONE") and found[4] == broker.ports[found[2] - 1]
        if brokers == 1:
            for request, version, error in REQUESTS:
                assert error(await client.call(request, version)) != NOT_COORDINATOR, request


async def test_newer_request_versions_respond_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3", overrides=AS_KAFKA) as broker:
        client = await broker.client()
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [group.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        (reported,) = (await client.call(OffsetFetchRequest(groups=[group(group_id="g", topics=topics)]), 8)).groups
        assert (reported.error_code, reported.topics) == (NOT_COORDINATOR, [])
        assert (await client.call(OffsetFetchRequest(group_id="g", topics=[FETCHED]), 5)).topics == []
        (reported,) = (await client.call(DescribeTransactionsRequest(transactional_ids=["x"]), 0)).transaction_states
        assert reported.error_code == NOT_COORDINATOR
        reported = await client.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
        assert (reported.error_code, reported.transaction_states) == (0, [])
        for key_type in (GROUP, TRANSACTION):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g", "h"])
            reported = (await client.call(request, 4)).coordinators
            assert [(one.error_code, one.error_message, one.node_id) for one in reported] == [
                (NOT_AVAILABLE, "", -1)
            ] * 2
            assert [one.error_code for one in (await client.call(request, 4)).coordinators] == [0, 0]


async def test_topic_creation_makes_the_coordinator_available(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3", overrides=AS_KAFKA) as broker:
        client = await broker.client()
        requested = [MetadataRequest.MetadataRequestTopic(name=GROUP_OFFSETS_TOPIC)]
        await client.call(MetadataRequest(topics=requested, allow_auto_topic_creation=True), 4)
        assert (await client.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 2)).error_code == 25
        assert (await named(client, GROUP))[0] == 0
    async with running(tmp_path, release="4.3", overrides=AS_KAFKA) as broker:  # it exists after a restart
        assert (await named(await broker.client(), GROUP))[0] == 0


async def test_own_profile_has_a_coordinator_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={SWITCH: "false"}) as broker:
        client = await broker.client()
        for key_type in (GROUP, TRANSACTION):
            assert (await named(client, key_type))[::2] == (0, 1, broker.ports[0])


def test_embedded_broker_has_a_coordinator_at_once_by_default() -> None:
    assert Embedded().options.config.profile.behaviour.coordinator_awaits_topic is False
    assert Embedded(configs={SWITCH: "true"}).options.config.profile.behaviour.coordinator_awaits_topic is True
    assert Embedded(release="0.8.2").options.config.profile.behaviour.coordinator_awaits_topic is False
