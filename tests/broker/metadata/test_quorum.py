"""The controller as seen by clients: the quorum, unregistered nodes, voters and delegation tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.topology import TopologyNote
from ottla.broker.network.router import apis_of
from ottla.broker.releases.profiles import RELEASES, profile
from ottla.protocol.acls import AclOperation
from ottla.protocol.messages.cluster.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.cluster.unregister_controller import UnregisterControllerRequest
from ottla.protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest
from ottla_testing.broker.denying import OnlyAllowed
from ottla_testing.broker.harness import Client, running
from ottla_testing.each import each

METADATA = "__cluster_metadata"
UNKNOWN = "This server does not host this topic-partition."
DIRECTORY = bytes(range(16))
FORBIDDEN = (31, "Cluster authorization failed.")


def asking(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    kind = DescribeQuorumRequest.TopicData
    return DescribeQuorumRequest(
        topics=[
            kind(topic_name=name, partitions=[kind.PartitionData(partition_index=index) for index in indexes])
            for name, indexes in topics
        ]
    )


@each("version", [0, 1, 2])
@each(
    "requested",
    [
        [("t", [0])],
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0, 0])],
        [(METADATA, [0]), ("x", [1])],
        [(METADATA, [0]), ("x", [])],
        [],
    ],
)
async def test_other_topics_are_unknown(requested: list[tuple[str, list[int]]], version: int, tmp_path: Path) -> None:
    """As in Apache Kafka 3.9.1 and 4.3.1: with an error for all, even for existing partitions."""
    async with running(tmp_path) as broker:
        response = await (await broker.client()).call(asking(*requested), version)
        assert (response.error_code, response.error_message, response.nodes) == (0, "", [])
        reported = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in response.topics]
        assert reported == requested
        for one in (one for topic in response.topics for one in topic.partitions):
            assert (one.error_code, one.error_message) == (3, UNKNOWN if version >= 2 else "")
            assert (one.leader_id, one.leader_epoch, one.high_watermark) == (0, 0, 0)
            assert one.current_voters == one.observers == []


async def test_high_watermark_follows_the_metadata_log(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()

        async def watermark() -> int:
            ((one,),) = [topic.partitions for topic in (await client.call(asking((METADATA, [0])), 2)).topics]
            assert {state.log_end_offset for state in one.current_voters} == {one.high_watermark}
            return one.high_watermark

        before = await watermark()
        await broker.topic("t", 3)
        assert await watermark() == before + 4  # the topic and its partitions


async def test_running_nodes_are_observers(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        clients = {node: await broker.client(node - 1) for node in (1, 2, 3)}

        async def seen(node: int) -> tuple[list[int], list[int], list[int]]:
            response = await clients[node].call(asking((METADATA, [0])), 2)
            ((one,),) = [topic.partitions for topic in response.topics]
            voters = [state.replica_id for state in one.current_voters]
            assert voters == [one.leader_id]
            return voters, [state.replica_id for state in one.observers], [known.node_id for known in response.nodes]

        for node in (1, 2, 3):
            assert await seen(node) == ([1], [2, 3], [1])
        broker.state.topology.stop_node(1)
        assert await seen(3) == ([2], [3], [2])


async def unregister(client: Client, node: int) -> tuple[int, str | None]:
    response = await client.call(UnregisterBrokerRequest(broker_id=node), 0)
    return response.error_code, response.error_message


async def cluster(client: Client) -> dict[int, bool]:
    """Returns whether each node is fenced."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    return {one.broker_id: one.is_fenced for one in (await client.call(request, 2)).brokers}


async def test_unregistered_node_returns_when_it_starts(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        client, topology = await broker.client(), broker.state.topology
        topology.stop_node(3)
        assert await cluster(client) == {1: False, 2: False, 3: True}
        assert await unregister(client, 3) == (0, "")
        assert await cluster(client) == {1: False, 2: False}
        assert await unregister(client, 3) == (102, "Broker ID 3 is not currently registered")
        note = topology.note()
        topology.start_node(3)
        assert await cluster(client) == {1: False, 2: False, 3: False}
        topology.stop_node(3)
        assert await cluster(client) == {1: False, 2: False, 3: True}
    assert note == TopologyNote(stopped=frozenset({3}), unregistered=frozenset({3}))
    async with running(tmp_path, brokers=3, note=note) as broker:
        client = await broker.client()
        assert await cluster(client) == {1: False, 2: False}
        assert await unregister(client, 3) == (102, "Broker ID 3 is not currently registered")


async def test_running_node_registers_again_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        for _ in range(2):
            assert await unregister(client, 1) == (0, "")
            assert await cluster(client) == {1: False}
        for node in (2, 0, -1, 2**31 - 1):
            assert await unregister(client, node) == (102, f"Broker ID {node} is not currently registered")


@pytest.mark.parametrize(
    ("release", "text"), [("3.9", ""), ("4.0", ""), ("4.1", "Broker ID 7 is not currently registered")]
)
async def test_unregister_broker_message_depends_on_the_release(release: str, text: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        assert await unregister(await broker.client(), 7) == (102, text)


LISTENER = AddRaftVoterRequest.Listener(name="CONTROLLER", host="localhost", port=99)
NO_ENDPOINT = "Add voter request didn't include the endpoint (Endpoints(endpoints={{{}}})) for the default listener "
VOTER: dict[str, Any] = {"cluster_id": None, "voter_id": 2, "voter_directory_id": DIRECTORY}
VOTERS = [
    ({}, 35, "Cluster doesn't support {}ing voter because the kraft.version feature is 0"),
    ({"voter_directory_id": bytes(16)}, 42, "{} voter request didn't include a valid voter"),
    ({"voter_id": -1}, 42, "{} voter request didn't include a valid voter"),
    ({"cluster_id": "wrong", "voter_id": -1}, 104, 'The given id "wrong" doesn\'t match the cluster id "{}"'),
]


@pytest.mark.parametrize(("fields", "code", "text"), VOTERS)
async def test_voter_changes_are_refused(fields: dict[str, Any], code: int, text: str, tmp_path: Path) -> None:
    """Results of Apache Kafka 3.9.1, in its order of checks."""
    async with running(tmp_path) as broker:
        client, cluster_id = await broker.client(), broker.state.cluster_id
        adding = AddRaftVoterRequest(timeout_ms=1, listeners=[LISTENER], **{**VOTER, **fields})
        word = {35: "add", 42: "Add", 104: cluster_id}[code]
        for version in (0, 1):
            response = await client.call(adding, version)
            assert (response.error_code, response.error_message) == (code, text.format(word))
        removing = RemoveRaftVoterRequest(**{**VOTER, **fields})
        response = await client.call(removing, 0)
        word = {35: "remov", 42: "Remove", 104: cluster_id}[code]
        assert (response.error_code, response.error_message) == (code, text.format(word))


async def test_voter_has_its_listener(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        own = {**VOTER, "cluster_id": broker.state.cluster_id}
        other = AddRaftVoterRequest.Listener(name="X", host="localhost", port=99)
        for listeners, reported in ([], ""), ([other], "ListenerName(X)=localhost/<unresolved>:99"):
            response = await client.call(AddRaftVoterRequest(timeout_ms=1, listeners=listeners, **own), 0)
            text = NO_ENDPOINT.format(reported) + "ListenerName(CONTROLLER)"
            assert (response.error_code, response.error_message) == (42, text)


async def test_delegation_token_refusal_has_its_owner(tmp_path: Path) -> None:
    """With or without a secret key, and regardless of other errors: the connection is checked first."""
    renewer = CreateDelegationTokenRequest.CreatableRenewers(principal_type="Group", principal_name="g")
    async with running(tmp_path, overrides={"delegation.token.secret.key": "secret"}) as broker:
        client = await broker.client()
        for owner, reported in (
            (("Role", "joe"), (64, "Role:joe")),
            (("", "joe"), (64, ":joe")),
            (("Role", ""), (64, "User:ANONYMOUS")),
            ((None, None), (64, "User:ANONYMOUS")),
            ((None, "joe"), (67, "User:ANONYMOUS")),  # Kafka returns -1
        ):
            request = CreateDelegationTokenRequest(
                owner_principal_type=owner[0], owner_principal_name=owner[1], renewers=[renewer], max_lifetime_ms=-1
            )
            response = await client.call(request, 3)
            assert (response.error_code, f"{response.principal_type}:{response.principal_name}") == reported
            requested = response.token_requester_principal_type, response.token_requester_principal_name
            assert requested == ("User", "ANONYMOUS")


async def test_quorum_apis_require_authorization(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        changes = [
            (AddRaftVoterRequest(timeout_ms=1, listeners=[LISTENER], **VOTER), 0),
            (RemoveRaftVoterRequest(**VOTER), 0),
            (UnregisterBrokerRequest(broker_id=7), 0),
            (UnregisterControllerRequest(controller_id=7), 0),
        ]
        question = (asking((METADATA, [0])), 2)
        for operation, refused in ((AclOperation.DESCRIBE, changes), (AclOperation.ALTER, [question])):
            broker.state.authorizer = OnlyAllowed(operation)
            for request, version in (*changes, question):
                response = await client.call(request, version)
                is_refused = (response.error_code, response.error_message) == FORBIDDEN
                assert is_refused == ((request, version) in refused), (operation, request)


def test_inter_broker_apis_are_not_advertised() -> None:
    never = {*range(52, 55), 56, 58, 59, 62, 63, 67, 70, 73, 82}
    for release in RELEASES:
        for telemetry in (False, True):
            assert not never & set(apis_of(profile(release), telemetry=telemetry).served), release
