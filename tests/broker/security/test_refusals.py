"""What a client without a right learns: not more than from Apache Kafka, whose responses these are (4.3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.security.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla_testing.broker.configuring import LOGGER, SET, change
from ottla_testing.broker.denying_authorizer import Denying
from ottla_testing.broker.harness import Broker, running
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
