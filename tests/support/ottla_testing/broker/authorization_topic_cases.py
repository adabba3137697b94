"""Cases of `authorization_cases.py` for topics and their records."""

from __future__ import annotations

from typing import Any

from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla.protocol.primitives import ZERO_UUID
from ottla_testing.broker.authorization_cases import (
    BOTH,
    CLUSTER,
    OF_T_AND_U,
    T0,
    T_AT_ITS_PLACE,
    T_LAST,
    TOPIC,
    TRANSACTIONAL_ID,
    U0,
    Case,
    World,
    cluster,
    topic,
    transaction,
)
from ottla_testing.broker.harness import fetch, new_topic, records


def producing(names: str, by_id: dict[str, bytes] | None = None, **more: Any) -> ProduceRequest:
    one = ProduceRequest.TopicProduceData
    numbered = {key: more.pop(key) for key in list(more) if key not in ("transactional_id",)}
    data = one.PartitionProduceData(index=0, records=bytes(records(b"d", **numbered)))
    topics = [
        one(name="" if by_id else name, topic_id=by_id[name] if by_id else ZERO_UUID, partition_data=[data])
        for name in names
    ]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics, **more)


def producing_in_transaction(world: World) -> ProduceRequest:
    producer_id, epoch = world.owner
    return producing(
        "t",
        transactional_id="x",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )


def listing_offsets(world: World) -> ListOffsetsRequest:
    one = ListOffsetsRequest.ListOffsetsTopic
    requested = one.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[one(name=name, partitions=[requested]) for name in "tu"])


def metadata(*names: str, ids: tuple[bytes, ...] = (), **more: Any) -> MetadataRequest:
    one = MetadataRequest.MetadataRequestTopic
    topics = [one(name=name) for name in names] + [one(name=None, topic_id=id) for id in ids]
    return MetadataRequest(topics=topics or None, **more)


def ending_epochs(world: World) -> OffsetForLeaderEpochRequest:
    one = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    requested = one.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(topics=[one(topic=name, partitions=[requested]) for name in "tu"])


def deleting_records(world: World) -> DeleteRecordsRequest:
    one = DeleteRecordsRequest.DeleteRecordsTopic
    requested = one.DeleteRecordsPartition(partition_index=0, offset=1)
    return DeleteRecordsRequest(topics=[one(name=name, partitions=[requested]) for name in "tu"], timeout_ms=1000)


def deleting_topics(*names: str, ids: tuple[bytes, ...] = ()) -> DeleteTopicsRequest:
    one = DeleteTopicsRequest.DeleteTopicState
    topics = [one(name=name, topic_id=ZERO_UUID) for name in names] + [one(name=None, topic_id=id) for id in ids]
    return DeleteTopicsRequest(topics=topics, timeout_ms=1000)


def adding_partitions(world: World) -> CreatePartitionsRequest:
    one = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [one(name=name, count=2, assignments=None) for name in "tu"]
    return CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False)


def describing_producers(world: World) -> DescribeProducersRequest:
    one = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[one(name=name, partition_indexes=[0]) for name in "tu"])


def paging(*names: str) -> DescribeTopicPartitionsRequest:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics)


def topics_of_users(response: Any) -> Any:
    """Returns the listed topics except internal ones."""
    return [one.name for one in response.topics if not one.name.startswith("__")]


def topics_with_ids(response: Any) -> Any:
    return [(one.name, one.topic_id != ZERO_UUID, one.error_code) for one in response.topics]


EVERY_TOPIC: dict[type, list[Case]] = {
    SaslHandshakeRequest: [
        Case(1, lambda world: SaslHandshakeRequest(mechanism="PLAIN"), [(None, 34)]),
    ],
    SaslAuthenticateRequest: [
        Case(2, lambda world: SaslAuthenticateRequest(auth_bytes=b""), [(None, 34)]),
    ],
    ApiVersionsRequest: [
        Case(0, lambda world: ApiVersionsRequest(), [(None, 0)]),
    ],
    ProduceRequest: [
        Case(
            9,
            lambda world: producing(OF_T_AND_U),
            BOTH,
            {topic(Op.WRITE): T_AT_ITS_PLACE, topic(Op.WRITE, "u"): [T0, ("u", TOPIC)]},
        ),
        Case(
            13,
            lambda world: producing(OF_T_AND_U, world.ids),
            [(None, 0)] * 2,
            {topic(Op.WRITE): [(None, TOPIC), (None, 0)], topic(Op.WRITE, "u"): [(None, 0), (None, TOPIC)]},
        ),
        Case(
            9,
            producing_in_transaction,
            [T0],
            {transaction(Op.WRITE): [("t", TRANSACTIONAL_ID)], topic(Op.WRITE): [("t", TOPIC)]},
        ),
        Case(9, lambda world: producing("n"), [("n", 3)], {topic(Op.WRITE, "n"): [("n", TOPIC)]}),
    ],
    FetchRequest: [
        Case(
            12,
            lambda world: fetch(("t", 0, 0), ("u", 0, 0)),
            [(None, 0), T0, U0],
            {topic(Op.READ): [(None, 0), *T_LAST], topic(Op.READ, "u"): [(None, 0), T0, ("u", TOPIC)]},
        ),
        Case(
            13,
            lambda world: fetch((world.ids["t"], 0, 0)),
            [(None, 0), (None, 0)],
            {topic(Op.READ): [(None, 0), (None, TOPIC)]},
        ),
        Case(
            12,
            lambda world: fetch(("t", 0, 0), replica_id=1),
            [(None, 0), T0],
            {cluster(Op.CLUSTER_ACTION): [(None, 0), ("t", TOPIC)]},
        ),
        Case(
            12,
            lambda world: fetch(("n", 0, 0)),
            [(None, 0), ("n", 3)],
            {
                topic(Op.READ, "n"): [(None, 0), ("n", TOPIC)],
            },
        ),
    ],
    ListOffsetsRequest: [
        Case(5, listing_offsets, BOTH, {topic(Op.DESCRIBE): T_LAST, topic(Op.DESCRIBE, "u"): [T0, ("u", TOPIC)]}),
        Case(0, listing_offsets, BOTH, {topic(Op.DESCRIBE): T_LAST, topic(Op.DESCRIBE, "u"): [T0, ("u", TOPIC)]}),
    ],
    MetadataRequest: [
        Case(
            9,
            lambda world: metadata("t", "u"),
            [T0, T0, U0, U0],
            {topic(Op.DESCRIBE): [U0, U0, ("t", TOPIC)], topic(Op.DESCRIBE, "u"): [T0, T0, ("u", TOPIC)]},
        ),
        Case(
            12,
            lambda world: metadata("t"),
            [("t", True, 0)],
            {topic(Op.DESCRIBE): [("t", False, TOPIC)]},
            topics_with_ids,
        ),
        Case(
            12,
            lambda world: metadata(ids=(world.ids["t"], b"?" * 16)),
            [("t", True, 0), (None, True, 100)],
            {topic(Op.DESCRIBE): [(None, True, 100), (None, True, TOPIC)]},
            topics_with_ids,
        ),
        Case(
            9,
            lambda world: metadata(),
            ["t", "u"],
            {topic(Op.DESCRIBE): ["u"], topic(Op.DESCRIBE, "u"): ["t"]},
            topics_of_users,
        ),
        Case(
            9,
            lambda world: metadata("n", allow_auto_topic_creation=False),
            [("n", 3)],
            {topic(Op.DESCRIBE, "n"): [("n", TOPIC)]},
        ),
        Case(
            9,
            lambda world: metadata("made"),
            [("made", 0), ("made", 0)],
            {
                topic(Op.DESCRIBE, "made"): [("made", TOPIC)],
                (cluster(Op.CREATE), topic(Op.CREATE, "made")): [("made", TOPIC)],
            },
        ),
    ],
    OffsetForLeaderEpochRequest: [
        Case(
            3,
            ending_epochs,
            BOTH,
            {
                topic(Op.DESCRIBE): BOTH,
                cluster(Op.CLUSTER_ACTION): BOTH,
                (cluster(Op.CLUSTER_ACTION), topic(Op.DESCRIBE)): T_LAST,
                (cluster(Op.CLUSTER_ACTION), topic(Op.DESCRIBE, "u")): [T0, ("u", TOPIC)],
            },
        ),
    ],
    DescribeProducersRequest: [
        Case(
            0,
            describing_producers,
            BOTH,
            {
                topic(Op.READ): T_AT_ITS_PLACE,
                topic(Op.READ, "u"): [T0, ("u", TOPIC)],
            },
        ),
    ],
    DeleteRecordsRequest: [
        Case(
            2,
            deleting_records,
            BOTH,
            {
                topic(Op.DELETE): T_AT_ITS_PLACE,
                topic(Op.DELETE, "u"): [T0, ("u", TOPIC)],
            },
        ),
    ],
    CreateTopicsRequest: [
        Case(
            7,
            lambda world: CreateTopicsRequest(topics=[new_topic("new"), new_topic("t")]),
            [("new", 0, 0, True), ("t", 36, 0, False)],
            {
                topic(Op.DESCRIBE_CONFIGS, "new"): [("new", 0, TOPIC, False), ("t", 36, 0, False)],
                (cluster(Op.CREATE), topic(Op.CREATE, "new")): [("t", 36, 0, False), ("new", TOPIC, 0, False)],
                (cluster(Op.CREATE), topic(Op.CREATE)): [("new", 0, 0, True), ("t", TOPIC, 0, False)],
            },
            lambda response: [
                (one.name, one.error_code, one.topic_config_error_code, bool(one.configs)) for one in response.topics
            ],
            alone=True,
        ),
    ],
    DeleteTopicsRequest: [
        Case(
            6,
            lambda world: deleting_topics("t", "n"),
            [T0, ("n", 3)],
            {
                cluster(Op.DELETE): [T0, ("n", 3)],
                (cluster(Op.DELETE), topic(Op.DELETE)): [("t", TOPIC), ("n", 3)],
                (cluster(Op.DELETE), topic(Op.DESCRIBE)): [("t", TOPIC), ("n", 3)],
                (cluster(Op.DELETE), topic(Op.DESCRIBE, "n")): [T0, ("n", TOPIC)],
                (cluster(Op.DELETE), topic(Op.DELETE, "n")): [T0, ("n", 3)],
            },
            alone=True,
        ),
        Case(
            6,
            lambda world: deleting_topics(ids=(world.ids["t"], b"?" * 16)),
            [T0, (None, 100)],
            {
                (cluster(Op.DELETE), topic(Op.DELETE)): [("t", TOPIC), (None, 100)],
                (cluster(Op.DELETE), topic(Op.DELETE), topic(Op.DESCRIBE)): [(None, TOPIC), (None, 100)],
            },
        ),
    ],
    CreatePartitionsRequest: [
        Case(
            3,
            adding_partitions,
            BOTH,
            {topic(Op.ALTER): T_AT_ITS_PLACE, topic(Op.ALTER, "u"): [("u", TOPIC), T0]},
            alone=True,
        ),
    ],
    DescribeLogDirsRequest: [
        Case(
            4,
            lambda world: DescribeLogDirsRequest(topics=[]),
            [(None, 0), (None, 0)],
            {
                cluster(Op.DESCRIBE): [(None, CLUSTER)],
            },
        ),
        Case(
            1,
            lambda world: DescribeLogDirsRequest(topics=[]),
            1,
            {
                cluster(Op.DESCRIBE): 0,
            },
            lambda response: len(response.results),
        ),
    ],
    DescribeClusterRequest: [
        Case(0, lambda world: DescribeClusterRequest(include_cluster_authorized_operations=False), [(None, 0)]),
    ],
    DescribeTopicPartitionsRequest: [
        Case(
            0,
            lambda world: paging("t", "u"),
            [T0, T0, U0, U0],
            {
                topic(Op.DESCRIBE): [U0, U0, ("t", TOPIC)],
                topic(Op.DESCRIBE, "u"): [T0, T0, ("u", TOPIC)],
            },
            reports_operations=True,
        ),
        Case(
            0,
            lambda world: paging("n"),
            [("n", 3)],
            {topic(Op.DESCRIBE, "n"): [("n", TOPIC)]},
            reports_operations=True,
        ),
        Case(
            0,
            lambda world: paging(),
            ["t", "u"],
            {topic(Op.DESCRIBE): ["u"], topic(Op.DESCRIBE, "u"): ["t"]},
            topics_of_users,
            reports_operations=True,
        ),
    ],
}
