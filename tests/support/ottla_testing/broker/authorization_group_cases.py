"""Cases of `authorization_cases.py` for groups and transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Kind
from ottla.protocol.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.leave_group import LeaveGroupRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.transactions.end_txn import EndTxnRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest
from ottla_testing.broker.authorization_cases import (
    BOTH,
    CLUSTER,
    GROUP,
    NAMES,
    OF_T_AND_U,
    T0,
    T_AT_ITS_PLACE,
    T_LAST,
    TOPIC,
    TRANSACTIONAL_ID,
    U0,
    Case,
    World,
    adding,
    cluster,
    committing,
    group,
    topic,
    transaction,
)
from ottla_testing.broker.transacting import marked, marking


def fetching_offsets(names: str | None, *, flat: bool = False, by_id: dict[str, bytes] | None = None) -> Any:
    if flat:
        old = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if names is None else [old(name=name, partition_indexes=[0]) for name in names]
        return OffsetFetchRequest(group_id="g", topics=topics)
    one = OffsetFetchRequest.OffsetFetchRequestGroup
    requested = None
    if names is not None:
        listed: list[dict[str, Any]] = [{"topic_id": by_id[name]} if by_id else {"name": name} for name in names]
        requested = [one.OffsetFetchRequestTopics(partition_indexes=[0], **named) for named in listed]
    return OffsetFetchRequest(groups=[one(group_id="g", topics=requested)])


def adding_several(world: World) -> AddPartitionsToTxnRequest:
    one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    requested = one(transactional_id="x", producer_id=world.owner[0], producer_epoch=world.owner[1], topics=topics)
    return AddPartitionsToTxnRequest(transactions=[requested])


def committing_in_transaction(world: World) -> TxnOffsetCommitRequest:
    requested = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = requested.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=2, committed_metadata="m")
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=world.owner[0],
        producer_epoch=world.owner[1],
        topics=[requested(name=name, partitions=[one]) for name in "tu"],
    )


def deleting_offsets(world: World) -> OffsetDeleteRequest:
    one = OffsetDeleteRequest.OffsetDeleteRequestTopic
    requested = one.OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(group_id="g", topics=[one(name=name, partitions=[requested]) for name in "tu"])


def joining(world: World) -> JoinGroupRequest:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")]
    return JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip


def member_joins(world: World) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="n", member_id="m", member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t", "u"], topic_partitions=[],
    )  # fmt: skip


def leaving(world: World) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id="m")])


def ending(world: World) -> EndTxnRequest:
    producer_id, epoch = world.owner
    return EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True)


def adding_offsets(world: World) -> AddOffsetsToTxnRequest:
    producer_id, epoch = world.owner
    return AddOffsetsToTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g")


def names_of(key: str) -> Callable[[Any], Any]:
    """Returns only the names of listed resources."""
    return lambda response: [next(getattr(one, n) for n in NAMES if n in one._fields) for one in getattr(response, key)]


EVERY_GROUP: dict[type, list[Case]] = {
    OffsetCommitRequest: [
        Case(
            6,
            lambda world: committing(),
            BOTH,
            {
                group(Op.READ): [("t", GROUP), ("u", GROUP)],
                topic(Op.READ): T_AT_ITS_PLACE,
                topic(Op.READ, "u"): [("u", TOPIC), T0],
            },
        ),
        Case(
            10,
            lambda world: committing(world.ids),
            [(None, 0)] * 2,
            {
                group(Op.READ): [(None, GROUP)] * 2,
                topic(Op.READ): [(None, TOPIC), (None, 0)],
                topic(Op.READ, "u"): [(None, TOPIC), (None, 0)],
            },
        ),
    ],
    OffsetFetchRequest: [
        Case(
            8,
            lambda world: fetching_offsets(OF_T_AND_U),
            [T0, U0, ("g", 0)],
            {
                group(Op.DESCRIBE): [("g", GROUP)],
                topic(Op.DESCRIBE): [*T_LAST, ("g", 0)],
                topic(Op.DESCRIBE, "u"): [T0, ("u", TOPIC), ("g", 0)],
            },
        ),
        Case(
            10,
            lambda world: fetching_offsets("t", by_id=world.ids),
            [("g", 0), ("g", 0)],
            {group(Op.DESCRIBE): [("g", GROUP)], topic(Op.DESCRIBE): [("g", TOPIC), ("g", 0)]},
        ),
        Case(
            8,
            lambda world: fetching_offsets(None),
            [T0, U0, ("g", 0)],
            {
                group(Op.DESCRIBE): [("g", GROUP)],
                topic(Op.DESCRIBE): [U0, ("g", 0)],
                topic(Op.DESCRIBE, "u"): [T0, ("g", 0)],
            },
        ),
        Case(
            5,
            lambda world: fetching_offsets(OF_T_AND_U, flat=True),
            [T0, U0, (None, 0)],
            {
                group(Op.DESCRIBE): [(None, GROUP)],
                topic(Op.DESCRIBE): [*T_LAST, (None, 0)],
                topic(Op.DESCRIBE, "u"): [T0, ("u", TOPIC), (None, 0)],
            },
        ),
        Case(
            5,
            lambda world: fetching_offsets(None, flat=True),
            [T0, U0, (None, 0)],
            {
                group(Op.DESCRIBE): [(None, GROUP)],
                topic(Op.DESCRIBE): [U0, (None, 0)],
                topic(Op.DESCRIBE, "u"): [T0, (None, 0)],
            },
        ),
        Case(
            1,
            lambda world: fetching_offsets(OF_T_AND_U, flat=True),
            BOTH,
            {
                group(Op.DESCRIBE): [("t", GROUP), ("u", GROUP)],
                topic(Op.DESCRIBE): T_LAST,
                topic(Op.DESCRIBE, "u"): [T0, ("u", TOPIC)],
            },
        ),
        Case(
            0,
            lambda world: fetching_offsets("t", flat=True),
            [T0],
            {group(Op.DESCRIBE): [("t", GROUP)], topic(Op.DESCRIBE): [("t", TOPIC)]},
        ),
    ],
    FindCoordinatorRequest: [
        Case(
            3,
            lambda world: FindCoordinatorRequest(key="g"),
            (0, 1),
            {group(Op.DESCRIBE): (GROUP, -1)},
            lambda response: (response.error_code, response.node_id),
        ),
        Case(
            4,
            lambda world: FindCoordinatorRequest(coordinator_keys=["g", "h"]),
            [("g", 0), ("h", 0)],
            {group(Op.DESCRIBE): [("g", GROUP), ("h", 0)], group(Op.DESCRIBE, "h"): [("g", 0), ("h", GROUP)]},
        ),
        Case(
            3,
            lambda world: FindCoordinatorRequest(key="x", key_type=1),
            [(None, 0)],
            {transaction(Op.DESCRIBE): [(None, TRANSACTIONAL_ID)]},
        ),
        Case(
            4,
            lambda world: FindCoordinatorRequest(coordinator_keys=["x"], key_type=1),
            [("x", 0)],
            {transaction(Op.DESCRIBE): [("x", TRANSACTIONAL_ID)]},
        ),
    ],
    JoinGroupRequest: [Case(version, joining, [(None, 79)], {group(Op.READ): [(None, GROUP)]}) for version in (5, 7)],
    SyncGroupRequest: [
        Case(
            3,
            lambda world: SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
            [(None, 25)],
            {group(Op.READ): [(None, GROUP)]},
        ),
    ],
    HeartbeatRequest: [
        Case(
            3,
            lambda world: HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
            [(None, 25)],
            {group(Op.READ): [(None, GROUP)]},
        ),
    ],
    ConsumerGroupHeartbeatRequest: [
        Case(
            1,
            member_joins,
            [(None, 0)],
            {
                group(Op.READ, "n"): [(None, GROUP)],
                topic(Op.DESCRIBE): [(None, TOPIC)],
                topic(Op.DESCRIBE, "u"): [(None, TOPIC)],
            },
        ),
    ],
    ConsumerGroupDescribeRequest: [
        Case(
            1,
            lambda world: ConsumerGroupDescribeRequest(group_ids=["x", "y"], include_authorized_operations=False),
            [("x", 69), ("y", 69)],
            {
                group(Op.DESCRIBE, "x"): [("x", GROUP), ("y", 69)],
                group(Op.DESCRIBE, "y"): [("y", GROUP), ("x", 69)],
            },
        ),
    ],
    LeaveGroupRequest: [
        Case(3, leaving, [(None, 0), (None, 25)], {group(Op.READ): [(None, GROUP)]}),
        Case(
            2,
            lambda world: LeaveGroupRequest(group_id="g", member_id="m"),
            [(None, 25)],
            {group(Op.READ): [(None, GROUP)]},
        ),
    ],
    DescribeGroupsRequest: [
        Case(
            5,
            lambda world: DescribeGroupsRequest(groups=["h", "g"]),
            [("h", 0), ("g", 0)],
            {group(Op.DESCRIBE): [("g", GROUP), ("h", 0)], group(Op.DESCRIBE, "h"): [("h", GROUP), ("g", 0)]},
        ),
    ],
    ListGroupsRequest: [
        Case(
            4,
            lambda world: ListGroupsRequest(),
            (0, ["g"]),
            {cluster(Op.DESCRIBE): (0, ["g"]), (cluster(Op.DESCRIBE), group(Op.DESCRIBE)): (0, [])},
            lambda response: (response.error_code, [one.group_id for one in response.groups]),
        ),
    ],
    DeleteGroupsRequest: [
        Case(
            1,
            lambda world: DeleteGroupsRequest(groups_names=["g", "h"]),
            [("g", 0), ("h", 69)],
            {group(Op.DELETE): [("h", 69), ("g", GROUP)], group(Op.DELETE, "h"): [("g", 0), ("h", GROUP)]},
            alone=True,
        ),
    ],
    OffsetDeleteRequest: [
        Case(
            0,
            deleting_offsets,
            [(None, 0), T0, U0],
            {
                group(Op.DELETE): [(None, GROUP)],
                topic(Op.READ): [(None, 0), *T_AT_ITS_PLACE],
                topic(Op.READ, "u"): [(None, 0), ("u", TOPIC), T0],
            },
        ),
    ],
    InitProducerIdRequest: [
        Case(
            3,
            lambda world: InitProducerIdRequest(transactional_id="y", transaction_timeout_ms=1000),
            [(None, 0)],
            {(Op.WRITE, Kind.TRANSACTIONAL_ID, "y"): [(None, TRANSACTIONAL_ID)]},
        ),
        Case(
            6,
            lambda world: InitProducerIdRequest(transactional_id="y", transaction_timeout_ms=1000, enable2_pc=True),
            [(None, 0)],
            {
                (Op.WRITE, Kind.TRANSACTIONAL_ID, "y"): [(None, TRANSACTIONAL_ID)],
                (Op.TWO_PHASE_COMMIT, Kind.TRANSACTIONAL_ID, "y"): [(None, TRANSACTIONAL_ID)],
            },
        ),
        Case(
            3,
            lambda world: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
            [(None, 0)],
            {
                cluster(Op.IDEMPOTENT_WRITE): [(None, 0)],
                topic(Op.WRITE, ""): [(None, 0)],
                (cluster(Op.IDEMPOTENT_WRITE), topic(Op.WRITE, "")): [(None, CLUSTER)],
            },
        ),
    ],
    AddPartitionsToTxnRequest: [
        Case(
            3,
            lambda world: adding(world.owner, OF_T_AND_U),
            BOTH,
            {
                transaction(Op.WRITE): [("t", TRANSACTIONAL_ID), ("u", TRANSACTIONAL_ID)],
                topic(Op.WRITE): [("t", TOPIC), ("u", 55)],
                topic(Op.WRITE, "u"): [("t", 55), ("u", TOPIC)],
            },
        ),
        Case(4, adding_several, [(None, 0), T0], {cluster(Op.CLUSTER_ACTION): [(None, CLUSTER)]}),
    ],
    AddOffsetsToTxnRequest: [
        Case(
            3,
            adding_offsets,
            [(None, 0)],
            {transaction(Op.WRITE): [(None, TRANSACTIONAL_ID)], group(Op.READ): [(None, GROUP)]},
        ),
    ],
    TxnOffsetCommitRequest: [
        Case(
            5,
            committing_in_transaction,
            BOTH,
            {
                transaction(Op.WRITE): [("t", TRANSACTIONAL_ID), ("u", TRANSACTIONAL_ID)],
                group(Op.READ): [("t", GROUP), ("u", GROUP)],
                topic(Op.READ): T_AT_ITS_PLACE,
                topic(Op.READ, "u"): [("u", TOPIC), T0],
            },
        ),
    ],
    EndTxnRequest: [
        Case(3, ending, [(None, 0)], {transaction(Op.WRITE): [(None, TRANSACTIONAL_ID)]}),
    ],
    WriteTxnMarkersRequest: [
        Case(
            1,
            lambda world: marking(*world.owner, T0, U0),
            [{T0: 0, U0: 0}],
            {
                (cluster(Op.CLUSTER_ACTION), cluster(Op.ALTER)): [{T0: CLUSTER, U0: CLUSTER}],
                cluster(Op.CLUSTER_ACTION): [{T0: 0, U0: 0}],
                cluster(Op.ALTER): [{T0: 0, U0: 0}],
            },
            lambda response: list(marked(response).values()),
        ),
    ],
    DescribeTransactionsRequest: [
        Case(
            0,
            lambda world: DescribeTransactionsRequest(transactional_ids=["x"]),
            [("x", 0, ["t"])],
            {transaction(Op.DESCRIBE): [("x", TRANSACTIONAL_ID, [])], topic(Op.DESCRIBE): [("x", 0, [])]},
            lambda response: [
                (one.transactional_id, one.error_code, [listed.topic for listed in one.topics])
                for one in response.transaction_states
            ],
        ),
    ],
    ListTransactionsRequest: [
        Case(
            0,
            lambda world: ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
            ["x"],
            {transaction(Op.DESCRIBE): []},
            names_of("transaction_states"),
        ),
    ],
}
