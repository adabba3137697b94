"""Cases of `test_authorization.py`: for every API the required permissions, and the response without one.

From the table of Apache Kafka's checks (KafkaApis, ControllerApis, AclApis and ConfigHelper of 4.3.1), not from the
handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.protocol.acls import CLUSTER_NAME
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Kind
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla_testing.broker.harness import Broker, Client, records

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 29, 30, 31, 53
NAMES = ("name", "topic", "topic_name", "group_id", "key", "resource_name", "transactional_id")
CODES = ("error_code", "partition_error_code", "topic_config_error_code")

T0, U0 = ("t", 0), ("u", 0)
BOTH = [T0, U0]
T_LAST = [U0, ("t", TOPIC)]
T_AT_ITS_PLACE = [("t", TOPIC), U0]
OF_T_AND_U = "tu"

Right = tuple[Op, Kind, str]
Shown = list[tuple[str | None, int]]


class World:
    """Topics t and u of one partition with three records each, group g with a commit for both, and the transaction of
    id x, which includes t.
    """

    def __init__(self, broker: Broker, client: Client, ids: dict[str, bytes], owner: tuple[int, int]) -> None:
        self.broker = broker
        self.client = client
        self.ids = ids
        self.owner = owner


class Case(NamedTuple):
    """A request. `allowed` is its result with all permissions, `denied` the result without one or several; it requires
    no other permission. `alone` marks a request that changes the world for its repetition, `reports_operations` one
    that requests authorized operations.
    """

    version: int
    request: Callable[[World], Any]
    allowed: Any
    denied: Mapping[Right | tuple[Right, ...], Any] = MappingProxyType({})
    show: Callable[[Any], Any] | None = None
    alone: bool = False
    reports_operations: bool = False


def shown(value: Any, version: int, name: str | None = None) -> Shown:
    """Returns every error code of a response in the order of fields, with the name of its subject."""
    if isinstance(value, list):
        return [pair for one in value for pair in shown(one, version, name)]
    declared = getattr(type(value), "_fields", {})
    fields = {key: getattr(value, key) for key, field in declared.items() if version in field.versions}
    name = next((fields[key] for key in NAMES if fields.get(key)), name)
    found: Shown = []
    for key, inner in fields.items():
        found += [(name, int(inner))] if key in CODES else shown(inner, version, name)
    return found


def topic(operation: Op, name: str = "t") -> Right:
    return operation, Kind.TOPIC, name


def group(operation: Op, name: str = "g") -> Right:
    return operation, Kind.GROUP, name


def cluster(operation: Op) -> Right:
    return operation, Kind.CLUSTER, CLUSTER_NAME


def transaction(operation: Op) -> Right:
    return operation, Kind.TRANSACTIONAL_ID, "x"


async def world_of(broker: Broker) -> World:
    client = await broker.client()
    ids = {name: await broker.topic(name) for name in ("t", "u")}
    for name in ids:
        broker.log(name).append(records(b"a", b"b", b"c"), now_ms=broker.clock.now_ms())
    assert {code for _, code in shown(await client.call(committing(), 6), 6)} == {0}
    response = await client.call(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 2)
    owner = response.producer_id, response.producer_epoch
    added = await client.call(adding(owner, "t"), 3)
    assert shown(added, 3) == [("t", 0)]
    return World(broker, client, ids, owner)


def committing(by_id: dict[str, bytes] | None = None) -> OffsetCommitRequest:
    requested = OffsetCommitRequest.OffsetCommitRequestTopic
    one = requested.OffsetCommitRequestPartition(partition_index=0, committed_offset=2, committed_metadata="m")
    topics = [requested(topic_id=id, partitions=[one]) for id in by_id.values()] if by_id else []
    return OffsetCommitRequest(group_id="g", topics=topics or [requested(name=name, partitions=[one]) for name in "tu"])


def adding(owner: tuple[int, int], names: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=owner[0],
        v3_and_below_producer_epoch=owner[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names],
    )
