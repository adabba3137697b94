"""What a client without a right learns: not more than from Apache Kafka, whose responses these are (4.3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.security.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla_testing.broker.configuring import LOGGER, SET, change
from ottla_testing.broker.denying_authorizer import Denying
from ottla_testing.broker.harness import Broker, only, produce, records, running
from ottla_testing.each import each

CLUSTER = "kafka-cluster"
ALTER = (AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER)
REFUSED = 31


def deny(broker: Broker, *rights: tuple[AclOperation, ResourceType, str]) -> None:
    broker.state.authorizer = Denying(rights)


@each("is_described", [True, False])
async def test_a_name_beside_an_id_does_not_show_that_they_are_one_topic(is_described: bool, tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        topic_id = await broker.topic("t")
        client = await broker.client()
        operations = [AclOperation.DELETE, *([] if is_described else [AclOperation.DESCRIBE])]
        of_topic = [(operation, ResourceType.TOPIC, "t") for operation in operations]
        deny(broker, (AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER), *of_topic)
        states = [
            DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=bytes(16)),
        ]
        response = await client.call(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
        found = {(one.name, one.topic_id, one.error_code) for one in response.responses}
        shown = "t" if is_described else None
        assert found == {(shown, topic_id, 29), ("t", bytes(16), 29)}
        assert broker.state.topics.get("t") is not None


async def test_refused_credentials_have_a_result_without_a_name_for_each_user(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        deny(broker, (AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER))
        users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in ("a", "b", "a")]
        response = await client.call(DescribeUserScramCredentialsRequest(users=users), 0)
        found: list[Any] = [(one.user, one.error_code, one.credential_infos) for one in response.results]
        assert (response.error_code, found) == (REFUSED, [("", REFUSED, [])] * 3)


async def test_refused_moves_are_listed_as_they_were_requested(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        deny(broker, ALTER)
        topic = AlterReplicaLogDirsRequest.AlterReplicaLogDir.AlterReplicaLogDirTopic
        dirs = [
            AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                path=path, topics=[topic(name="t", partitions=[0, 1]), topic(name="u", partitions=[])]
            )
            for path in ("/a", "relative")
        ]
        response = await client.call(AlterReplicaLogDirsRequest(dirs=dirs), 2)
        found = [
            (one.topic_name, [(part.partition_index, part.error_code) for part in one.partitions])
            for one in response.results
        ]
        assert found == [("t", [(0, REFUSED), (1, REFUSED)]), ("u", [])] * 2


async def test_a_refused_change_of_a_logger_has_no_message(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        deny(broker, (AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER))
        assert await change(client, LOGGER, "1", ("root", SET, "DEBUG")) == (REFUSED, None)


async def test_refused_topics_without_partitions_are_listed(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        await broker.topic("a")
        await broker.topic("b")
        deny(broker, (AclOperation.DESCRIBE, ResourceType.TOPIC, "a"))
        topic = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g", topics=[topic(name=name, partition_indexes=[]) for name in ("a", "b")]
        )
        response = await client.call(OffsetFetchRequest(groups=[group], require_stable=False), 9)
        found = [(one.name, one.partitions) for one in response.groups[0].topics]
        assert found == [("b", []), ("a", [])]


async def test_topics_of_a_refused_group_are_listed_in_the_order_of_the_request(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        await broker.topic("b")
        deny(broker, (AclOperation.DESCRIBE, ResourceType.GROUP, "g"), (AclOperation.DESCRIBE, ResourceType.TOPIC, "a"))
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [topic(name=name, partition_indexes=indexes) for name, indexes in (("a", []), ("b", [0]), ("c", []))]
        response = await client.call(OffsetFetchRequest(group_id="g", topics=topics), 1)
        found = [(one.name, [part.error_code for part in one.partitions]) for one in response.topics]
        assert found == [("a", []), ("b", [ErrorCode.GROUP_AUTHORIZATION_FAILED]), ("c", [])]
        assert (await client.call(OffsetFetchRequest(group_id="g", topics=topics), 2)).topics == []


async def test_topic_without_a_name_is_refused_before_it_is_unknown(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        deny(broker, (AclOperation.WRITE, ResourceType.TOPIC, ""))
        client = await broker.client()
        response = only(await client.call(produce(records(b"x"), ""), 9))
        assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_key_of_a_share_partition_is_read_for_brokers_only(tmp_path: Path) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["no key"])
    async with running(tmp_path) as broker:
        client = await broker.client()
        action = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER)
        for denied, expected in ([], ErrorCode.INVALID_REQUEST), ([action], REFUSED):
            deny(broker, *denied)
            (found,) = (await client.call(request, 6)).coordinators
            assert found.error_code == expected
            assert found.error_message


async def test_refused_topics_are_listed_beyond_the_limit_of_partitions(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=1)
    async with running(tmp_path) as broker:
        for name in names:
            await broker.topic(name, 2)
        deny(broker, (AclOperation.DESCRIBE, ResourceType.TOPIC, "c"))
        response = await (await broker.client()).call(request, 0)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", 0),
            ("c", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ]
        assert response.next_cursor is not None and response.next_cursor.topic_name == "a"
