"""Responses that differ below 3.0, as observed with Apache Kafka 2.4.1, 2.5.1, 2.6.3, 2.7.2 and 2.8.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Client, running

RELEASES = ["2.4", "2.5", "2.6", "2.7", "2.8", "3.9", "4.3", "ottla"]
AUTHORIZERS = {
    **dict.fromkeys(["2.4", "2.5", "2.6", "2.7", "2.8"], "kafka.security.authorizer.AclAuthorizer"),
    **dict.fromkeys(["3.9", "4.3", "ottla"], "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
}
TOPIC, BROKER = 2, 4
ENTRY = {"resource_type": TOPIC, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
FILTER = {
    "resource_type_filter": TOPIC, "resource_name_filter": "t", "principal_filter": None, "host_filter": None,
    "operation": 1, "permission_type": 1,
}  # fmt: skip


async def texts_of_configs(client: Client, kind: int, name: str) -> list[tuple[int, str | None]]:
    requested = DescribeConfigsRequest.DescribeConfigsResource
    resource = requested(resource_type=kind, resource_name=name, configuration_keys=["x"])
    reported = await client.call(DescribeConfigsRequest(resources=[resource]), 2)
    return [(one.error_code, one.error_message) for one in reported.results]


@pytest.mark.parametrize("release", RELEASES)
async def test_message_without_error_is_null_or_empty(release: str, tmp_path: Path) -> None:
    overrides = {"authorizer.class.name": AUTHORIZERS[release], "super.users": "User:ANONYMOUS"}
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        client = await broker.client()
        await broker.topic("t")
        text = None if release in ("2.4", "2.5", "2.6") else ""
        for kind, name, code in ((TOPIC, "t", 0), (BROKER, "1", 0), (BROKER, "", 0), (TOPIC, "nope", 3)):
            assert await texts_of_configs(client, kind, name) == [(code, text)], (kind, name)
        text = None if release == "2.4" else ""
        creations = [
            CreateAclsRequest.AclCreation(**ENTRY, resource_pattern_type=3, permission_type=3),
            CreateAclsRequest.AclCreation(**{**ENTRY, "resource_name": ""}, resource_pattern_type=3, permission_type=3),
        ]
        reported = (await client.call(CreateAclsRequest(creations=creations), 1)).results
        assert [(one.error_code, one.error_message) for one in reported] == [
            (0, text),
            (42, "Invalid empty resource name"),
        ]
        for name in ("t", "nope"):
            requested = DescribeAclsRequest(**{**FILTER, "resource_name_filter": name}, pattern_type_filter=3)
            reported = await client.call(requested, 1)
            assert (reported.error_code, reported.error_message) == (0, text)
        filters = [DeleteAclsRequest.DeleteAclsFilter(**FILTER, pattern_type_filter=3)]
        (reported,) = (await client.call(DeleteAclsRequest(filters=filters), 1)).filter_results
        assert (reported.error_code, reported.error_message, len(reported.matching_acls)) == (0, None, 1)


def creating(name: str, *replicas: list[int], dry: bool = False) -> CreateTopicsRequest:
    requested = CreateTopicsRequest.CreatableTopic
    assigned = [
        requested.CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(replicas)
    ]
    topic = requested(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned, configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=dry)


async def outcome(client: Client, request: CreateTopicsRequest) -> tuple[int, str | None]:
    (reported,) = (await client.call(request, 3)).topics
    return reported.error_code, reported.error_message


async def partitions(client: Client, name: str) -> list[tuple[Any, ...]]:
    requested = [MetadataRequest.MetadataRequestTopic(name=name)]
    (topic,) = (await client.call(MetadataRequest(topics=requested, allow_auto_topic_creation=False), 5)).topics
    return [
        (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes, one.offline_replicas)
        for one in topic.partitions
    ]


@pytest.mark.parametrize("release", ["2.0", "2.4", "2.8"])
async def test_replicas_on_absent_brokers_are_accepted_in_zookeeper_releases(release: str, tmp_path: Path) -> None:
    """Kafka hides partitions that no broker can lead; here they have no leader."""
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        assert await outcome(client, creating("dry", [1, 9], dry=True)) == (0, None)
        assert broker.state.topics.get("dry") is None
        assert await outcome(client, creating("one", [1, 9])) == (0, None)
        assert await partitions(client, "one") == [(0, 1, [1, 9], [1], [9])]
        assert await outcome(client, creating("absent", [9])) == (7, None)
        assert (await partitions(client, "absent"))[0][:3] == (5, -1, [9])
        assert await outcome(client, creating("absent", [1])) == (36, "Topic 'absent' already exists.")
        assert await outcome(client, creating("some", [1], [9])) == (7, None)
        assert [one[:2] for one in await partitions(client, "some")] == [(0, 1), (5, -1)]
        for replicas in ([], [-1]):
            assert (await outcome(client, creating("wrong", replicas)))[0] == 39
        more = CreatePartitionsRequest.CreatePartitionsTopic
        assigned = [more.CreatePartitionsAssignment(broker_ids=[1, 9])]
        request = CreatePartitionsRequest(
            topics=[more(name="one", count=2, assignments=assigned)], timeout_ms=5000, validate_only=False
        )
        (reported,) = (await client.call(request, 0)).results
        assert (reported.error_code, reported.error_message) == (39, "Unknown broker(s) in replica assignment: 9.")


@pytest.mark.parametrize("release", ["3.9", "4.3", "ottla"])
async def test_replicas_on_absent_brokers_are_refused_in_kraft_releases(release: str, tmp_path: Path) -> None:
    text = "The manual partition assignment includes broker 9, but no such broker is registered."
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for replicas in ([1, 9], [9]):
            assert await outcome(client, creating("t", replicas)) == (39, text)
        assert broker.state.topics.get("t") is None
