"""Releases that require other permissions or respond differently without one; authorized operations by release."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.records import batch, legacy
from ottla_testing.broker.authorization_cases import CLUSTER, GROUP, TOPIC, Right, cluster, group, shown, topic
from ottla_testing.broker.authorization_group_cases import fetching_offsets
from ottla_testing.broker.authorization_topic_cases import deleting_topics, metadata, paging, producing
from ottla_testing.broker.denying_authorizer import Denying
from ottla_testing.broker.harness import Broker, Closed, create_topics, fetch, frame, only, records, running

UNKNOWN = 3
NOT_REQUESTED = -(2**31)
# By the codes of operations: responses of Kafka's brokers without an authorizer.
OF_TOPIC, OF_CLUSTER = 0b110111111000, 0b1111110100000
OF_GROUP, OF_GROUP_WITHOUT_CONFIGS = 0b110101001000, 0b101001000


async def codes(broker: Broker, request: Any, version: int, *denied: Right) -> list[int]:
    """Returns the error codes of a response, in order."""
    broker.state.authorizer = Denying(denied)
    return [code for _, code in shown(await (await broker.client()).call(request, version), version)]


def produce_old(name: str) -> ProduceRequest:
    request = producing(name)
    old = legacy.build([batch.Record(0, 1_700_000_000_000, None, b"d")], magic=1)
    request.topic_data[0].partition_data[0].records = bytes(old)
    return request


def offset_of(name: str) -> ListOffsetsRequest:
    one = ListOffsetsRequest.ListOffsetsTopic
    requested = one.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[one(name=name, partitions=[requested])])


def commit(name: str) -> OffsetCommitRequest:
    requested = OffsetCommitRequest.OffsetCommitRequestTopic
    one = requested.OffsetCommitRequestPartition(partition_index=0, committed_offset=2, committed_metadata="m")
    return OffsetCommitRequest(group_id="g", topics=[requested(name=name, partitions=[one])])


@pytest.mark.parametrize(("release", "hidden"), [("0.10.0", TOPIC), ("0.10.1", UNKNOWN), ("1.0", TOPIC)])
async def test_hidden_topics_are_unknown_in_some_releases(release: str, hidden: int, tmp_path: Path) -> None:
    """From 0.10.1 to 0.11; in these a topic without WRITE must also exist to be reported (KAFKA-5547)."""
    requests = [
        (lambda name: produce_old(name), 2, Op.WRITE),
        (lambda name: fetch((name, 0, 0)), 2, Op.READ),
        (commit, 2, Op.READ),
    ]
    overrides = {"auto.create.topics.enable": "false"}
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        await broker.topic("t")
        for make, version, operation in requests:
            # Later releases do not require DESCRIBE in addition to other permissions.
            unseen = await codes(broker, make("t"), version, topic(Op.DESCRIBE), topic(operation))
            assert unseen == [hidden]
            assert await codes(broker, make("t"), version, topic(operation)) == [TOPIC]
            absent = UNKNOWN if hidden == UNKNOWN else TOPIC
            assert await codes(broker, make("n"), version, topic(operation, "n")) == [absent]
        for request, version in ((offset_of("t"), 0), (metadata("t"), 1), (fetching_offsets("t", flat=True), 1)):
            assert await codes(broker, request, version, topic(Op.DESCRIBE)) == [hidden]


@pytest.mark.parametrize(("release", "by_topic"), [("2.7", False), ("2.8", True), ("ottla", True)])
async def test_idempotent_produce_authorization(release: str, by_topic: bool, tmp_path: Path) -> None:
    """Up to 2.7 idempotent batches require a permission on the cluster, and so does InitProducerId (KIP-679)."""
    numbered: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        right = cluster(Op.IDEMPOTENT_WRITE)
        assert await codes(broker, producing("t", **numbered), 7, right) == [0 if by_topic else CLUSTER]
        assert await codes(broker, producing("t"), 7, right) == [0]
        assert await codes(broker, init, 1, right) == [0 if by_topic else CLUSTER]
        assert await codes(broker, init, 1, topic(Op.WRITE, "")) == [0]
        assert await codes(broker, init, 1, right, topic(Op.WRITE, "")) == [CLUSTER]


@pytest.mark.parametrize(
    ("release", "by_topic", "text"),
    [
        ("1.1", False, None),
        ("2.0", True, None),
        ("2.3", True, "Authorization failed."),
        ("ottla", True, "Authorization failed."),
    ],
)
async def test_topic_creation_authorization(release: str, by_topic: bool, text: str | None, tmp_path: Path) -> None:
    """CREATE on the cluster, and since 2.0 also CREATE on the topic name (KIP-277)."""
    denied = TOPIC if by_topic else CLUSTER
    async with running(tmp_path, release=release) as broker:
        broker.state.authorizer = Denying([cluster(Op.CREATE), topic(Op.CREATE, "b")])
        client = await broker.client()
        created = (await client.call(create_topics("a", "b"), 2)).topics
        found = {one.name: (one.error_code, one.error_message) for one in created}
        assert found == {"a": (0, None) if by_topic else (denied, text), "b": (denied, text)}
        named = {one.name: one.error_code for one in (await client.call(metadata("c", "b"), 4)).topics}
        assert named == {"c": 0 if by_topic else TOPIC, "b": TOPIC}


@pytest.mark.parametrize(("release", "suffices"), [("2.0", False), ("2.1", True), ("ottla", True)])
async def test_describe_suffices_for_list_groups_and_epochs(release: str, suffices: bool, tmp_path: Path) -> None:
    """Since 2.1; before, both require a permission on the cluster (KIP-231, KIP-320)."""
    one = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    requested = one.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    epochs = OffsetForLeaderEpochRequest(topics=[one(topic="t", partitions=[requested])])
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        assert await codes(broker, ListGroupsRequest(), 1, cluster(Op.DESCRIBE)) == [0 if suffices else CLUSTER]
        assert await codes(broker, ListGroupsRequest(), 1) == [0]
        found = await codes(broker, epochs, 0, cluster(Op.CLUSTER_ACTION))
        assert found == [0 if suffices else CLUSTER]


@pytest.mark.parametrize(("release", "operation"), [("0.11", Op.READ), ("1.0", Op.DESCRIBE), ("ottla", Op.DESCRIBE)])
async def test_offset_fetch_authorization_on_the_group(release: str, operation: Op, tmp_path: Path) -> None:
    other = Op.READ if operation is Op.DESCRIBE else Op.DESCRIBE
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        request = fetching_offsets("t", flat=True)
        assert await codes(broker, request, 2, group(operation)) == [GROUP]
        assert await codes(broker, request, 2, group(other)) == [0, 0]


@pytest.mark.parametrize(("release", "is_kraft"), [("3.2", False), ("3.3", True), ("ottla", True)])
async def test_topic_deletion_and_extension_authorization(release: str, is_kraft: bool, tmp_path: Path) -> None:
    """KRaft's controller accepts DELETE on the cluster, does not delete topics without DESCRIBE, and
    returns messages.
    """
    one = CreatePartitionsRequest.CreatePartitionsTopic
    growing = CreatePartitionsRequest(
        topics=[one(name="t", count=2, assignments=None)], timeout_ms=1000, validate_only=False
    )
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()

        async def denied_call(request: Any, version: int, *denied: Right) -> Any:
            broker.state.authorizer = Denying(denied)
            return await client.call(request, version)

        (response,) = (await denied_call(growing, 2, topic(Op.ALTER))).results
        assert (response.error_code, response.error_message) == (
            TOPIC,
            None if is_kraft else "The topic authorization is failed.",
        )
        ids = {name: await broker.topic(name) for name in "tuvw"}
        both = topic(Op.DELETE), cluster(Op.DELETE)
        for request in (deleting_topics("t"), deleting_topics(ids=(ids["t"],))):
            (response,) = (await denied_call(request, 6, *both)).responses
            text = "Topic authorization failed." if is_kraft else None
            assert (response.name, response.error_code, response.error_message) == ("t", TOPIC, text)
        request = deleting_topics(ids=(ids["t"],))
        (response,) = (
            await denied_call(request, 6, topic(Op.DESCRIBE), cluster(Op.DELETE), topic(Op.DELETE))
        ).responses
        assert (response.name, response.topic_id, response.error_code) == (None, ids["t"], TOPIC)
        (response,) = (await denied_call(deleting_topics("u"), 6, topic(Op.DELETE, "u"))).responses
        assert response.error_code == (0 if is_kraft else TOPIC)
        denied = topic(Op.DESCRIBE, "v"), cluster(Op.DELETE)
        (response,) = (await denied_call(deleting_topics("v"), 6, *denied)).responses
        assert response.error_code == (TOPIC if is_kraft else 0)
        denied = topic(Op.DESCRIBE, "w"), cluster(Op.DELETE)
        (response,) = (await denied_call(deleting_topics(ids=(ids["w"],)), 6, *denied)).responses
        assert response.error_code == (0 if is_kraft else TOPIC)


@pytest.mark.parametrize("denied", [(), (topic(Op.ALTER), topic(Op.READ), group(Op.DELETE), cluster(Op.ALTER))])
@pytest.mark.parametrize("release", ["2.3", "3.9", "4.0", "ottla"])
async def test_authorized_operations_of_a_client(release: str, denied: Collection[Right], tmp_path: Path) -> None:
    """All operations without an authorizer, the allowed ones with it; none unless requested."""
    less = {right[1]: sum(1 << op for op, kind, _ in denied if kind is right[1]) for right in denied}
    topics, groups, clusters = (less.get(right[1], 0) for right in (topic(Op.READ), group(Op.READ), cluster(Op.READ)))
    of_group = OF_GROUP if release in ("4.0", "ottla") else OF_GROUP_WITHOUT_CONFIGS
    requested: dict[str, Any] = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        client = await broker.client()
        broker.state.authorizer = Denying(denied) if denied else None
        response = await client.call(metadata("t", **requested), 8)
        assert response.topics[0].topic_authorized_operations == OF_TOPIC & ~topics
        assert response.cluster_authorized_operations == OF_CLUSTER & ~clusters
        response = await client.call(metadata("t"), 8)
        assert response.topics[0].topic_authorized_operations == response.cluster_authorized_operations == NOT_REQUESTED
        for wanted, operations in ((True, of_group & ~groups), (False, NOT_REQUESTED)):
            request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=wanted)
            assert (await client.call(request, 3)).groups[0].authorized_operations == operations
        if release == "2.3":
            return
        for wanted, operations in ((True, OF_CLUSTER & ~clusters), (False, NOT_REQUESTED)):
            request = DescribeClusterRequest(include_cluster_authorized_operations=wanted)
            assert (await client.call(request, 0)).cluster_authorized_operations == operations
        (paged,) = (await client.call(paging("t"), 0)).topics
        assert paged.topic_authorized_operations == OF_TOPIC & ~topics


async def test_client_without_describe_gets_no_authorized_operations(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        broker.state.authorizer = Denying([cluster(Op.DESCRIBE), topic(Op.DESCRIBE), group(Op.DESCRIBE)])
        requested: dict[str, Any] = {
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        }
        response = await client.call(metadata("t", **requested), 9)
        assert (response.cluster_authorized_operations, response.topics[0].topic_authorized_operations) == (
            0,
            NOT_REQUESTED,
        )
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        assert (await client.call(request, 5)).groups[0].authorized_operations == NOT_REQUESTED
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await client.call(request, 0)).cluster_authorized_operations == 0


# --- delayed requests and requests without response


async def test_unauthorized_partition_does_not_complete_a_delayed_fetch(tmp_path: Path) -> None:
    """A consumer of an authorized and an unauthorized topic does not poll in a busy loop."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        await broker.topic("u")
        broker.state.authorizer = Denying([topic(Op.READ)])
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), ("u", 0, 0), max_wait_ms=500), 12)
        await broker.settle()
        broker.log("u").append(records(b"a"), now_ms=broker.clock.now_ms())
        broker.clock.advance(500)
        response = (await client.receive())[1]
        assert [(one.topic, one.partitions[0].error_code) for one in response.responses] == [("u", 0), ("t", TOPIC)]
        assert response.responses[0].partitions[0].records
        # Without an authorized partition the response is immediate.
        response = await client.call(fetch(("t", 0, 0), max_wait_ms=500), 12)
        assert only(response).error_code == TOPIC


async def test_fetch_session_reports_authorization_errors_each_time(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        broker.state.authorizer = Denying([topic(Op.READ)])
        begun = await client.call(fetch(("t", 0, 0), session_epoch=0), 12)
        assert only(begun).error_code == TOPIC and begun.session_id
        reported = await client.call(fetch(session_id=begun.session_id, session_epoch=1), 12)
        assert only(reported).error_code == TOPIC
        broker.state.authorizer = Denying()
        reported = await client.call(fetch(session_id=begun.session_id, session_epoch=2), 12)
        assert only(reported).error_code == 0


async def test_unknown_topic_id_is_reported_without_authorization(tmp_path: Path) -> None:
    """The result is error 100 regardless of permissions."""
    async with running(tmp_path) as broker:
        authorizer = broker.state.authorizer = Denying()
        client = await broker.client()
        unknown = {"t": b"?" * 16}
        assert only(await client.call(producing("t", unknown), 13)).error_code == 100
        assert only(await client.call(fetch((b"?" * 16, 0, 0)), 13)).error_code == 100
        assert authorizer.checked == set()


async def test_unauthorized_produce_without_acks_closes_the_connection(tmp_path: Path) -> None:
    """A producer with acks=0 learns of the error this way; its authorized records are written."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        await broker.topic("u")
        broker.state.authorizer = Denying([topic(Op.WRITE)])
        client = await broker.client()
        request = producing("ut")
        request.acks = 0
        await client.send_bytes(frame(request, 9, 1))
        with pytest.raises(Closed):
            await client.receive_bytes()
        assert (broker.log("u").log_end_offset, broker.log("t").log_end_offset) == (1, 0)


async def test_unauthorized_write_starts_no_transaction(tmp_path: Path) -> None:
    """From v12 on Produce adds the partition to the transaction, unless it is refused."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        owner = await client.call(init, 4)
        numbered: dict[str, Any] = {
            "producer_id": owner.producer_id,
            "producer_epoch": owner.producer_epoch,
            "base_sequence": 0,
        }
        request = producing("t", transactional_id="x", transactional=True, **numbered)
        assert await codes(broker, request, 12, topic(Op.WRITE)) == [TOPIC]
        _, found = broker.state.transactions.describe("x")
        assert found is not None and found.partitions == ()
        assert await codes(broker, request, 12) == [0]
        _, found = broker.state.transactions.describe("x")
        assert found is not None and found.partitions == (("t", 0),)
