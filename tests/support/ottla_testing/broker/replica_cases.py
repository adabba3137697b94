"""The cases of `test_apis.py` about replicas: their directories, leaders and reassignments."""

from __future__ import annotations

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.messages.cluster.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.cluster.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla_testing.broker.api_cases import World, case

KEYS = frozenset({34, 43, 45, 46})


def moving(*requested: tuple[str, str, int]) -> AlterReplicaLogDirsRequest:
    """A request for (directory, topic, partition)."""
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    return AlterReplicaLogDirsRequest(
        dirs=[
            directory(path=path, topics=[directory.AlterReplicaLogDirTopic(name=name, partitions=[index])])
            for path, name, index in requested
        ]
    )


def codes(response: Any) -> dict[tuple[str, int], int]:
    """The error of each (topic, partition)."""
    return {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in response.results
        for one in topic.partitions
    }


@case(AlterReplicaLogDirsRequest)
async def leaves_partitions_where_they_are(world: World, version: int) -> None:
    (own,) = world.broker.state.logs.all
    requested = moving((own.path, "t", 0), ("/nowhere", "t", 1), (own.path, "t", 9), (own.path, "x" * 249, 0))
    assert codes(await world.client.call(requested, version)) == {
        ("t", 0): 0,
        ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x" * 249, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@case(ElectLeadersRequest)
async def elects_leaders(world: World, version: int) -> None:
    requested = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        topic_partitions=[requested(topic="t", partitions=[0, 9]), requested(topic="no", partitions=[0])]
    )
    response = await world.client.call(request, version)
    t, no = response.replica_election_results
    assert (response.error_code, t.topic, no.topic) == (0, "t", "no")
    assert [
        (one.partition_id, one.error_code, one.error_message) for one in (*t.partition_result, *no.partition_result)
    ] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-9"),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as no"),
    ]
    everything = await world.client.call(ElectLeadersRequest(topic_partitions=None), version)
    (result,) = everything.replica_election_results
    assert (result.topic, result.partition_result) == ("t", [])
    if version >= 1:
        odd = await world.client.call(ElectLeadersRequest(election_type=7, topic_partitions=None), version)
        assert (odd.error_code, odd.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])
        nothing = await world.client.call(ElectLeadersRequest(election_type=7, topic_partitions=[]), version)
        assert (nothing.error_code, nothing.replica_election_results) == (0, [])


def reassigning(*requested: tuple[str, int, list[int] | None], **options: Any) -> AlterPartitionReassignmentsRequest:
    """A request for (topic, partition, replicas)."""
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    return AlterPartitionReassignmentsRequest(
        topics=[
            topic(name=name, partitions=[topic.ReassignablePartition(partition_index=index, replicas=replicas)])
            for name, index, replicas in requested
        ],
        **options,
    )


def outcomes(response: Any) -> list[tuple[int, str | None]]:
    assert (response.error_code, response.error_message) == (0, None)
    return [(one.error_code, one.error_message) for topic in response.responses for one in topic.partitions]


@case(AlterPartitionReassignmentsRequest)
async def reassigns(world: World, version: int) -> None:
    own = world.broker.state.node_id
    request = reassigning(
        ("t", 0, [own]), ("t", 1, None), ("t", 1, [own, 77]), ("t", 1, []), ("t", 1, [own, own]), ("t", 5, [own]),
        ("no", 0, [own]),
    )  # fmt: skip
    includes = "The manual partition assignment includes"
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert outcomes(await world.client.call(request, version)) == [
        (0, None),
        (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        (refused, f"{includes} broker 77, but no such broker is registered."),
        (refused, f"{includes} an empty replica list."),
        (refused, f"{includes} the broker {own} more than once."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:5."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named no."),
    ]


@case(ListPartitionReassignmentsRequest)
async def lists_no_reassignment(world: World, version: int) -> None:
    topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for topics in (None, [topic(name="t", partition_indexes=[0, 9]), topic(name="no", partition_indexes=[0])]):
        response = await world.client.call(ListPartitionReassignmentsRequest(topics=topics), version)
        assert (response.error_code, response.error_message, response.topics) == (0, None, [])
