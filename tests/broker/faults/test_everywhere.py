"""Injected errors in the responses of every served API, in every version, over the wire.

Requests are made from the declarations, so a new API is tested as soon as it is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import message_parts
from ottla.broker.faults.rule_set import Faults
from ottla.broker.message_parts import Place
from ottla.broker.network.router import apis_of
from ottla.broker.releases.profiles import own_profile
from ottla.broker.testing.faults import FaultsView
from ottla.protocol.primitives import ZERO_UUID, Array, Blob
from ottla.protocol.schema import Group, Value, empty_value, group_of
from ottla_testing.broker.harness import Broker, Client, running
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import each

SERVED = apis_of(own_profile(), telemetry=True, unstable=True).served
EVERY_API = {"ottla.client.telemetry": "true", "unstable.api.versions.enable": "true"}
CASES = [(key, version) for key, versions in SERVED.items() for version in versions.range()]
TIMED_OUT, NOT_LEADER, NOT_COORDINATOR, UNKNOWN_MEMBER = 7, 6, 16, 25
TEXTS = {
    "name": "t",
    "topic": "t",
    "topic_name": "t",
    "resource_name": "t",
    "group_id": "g",
    "transactional_id": "x",
    "key": "g",
}
TEXTS |= dict.fromkeys(
    ("topic_names", "groups", "group_ids", "groups_names", "coordinator_keys", "transactional_ids"), "t"
)
NUMBERS = {"num_partitions": 1, "replication_factor": 1, "count": 3, "resource_type": 2, "acks": -1}
NUMBERS |= {"resource_type_filter": 2, "operation": 3, "permission_type": 3}
ONLY_AT_THE_TOP = {"AddOffsetsToTxn", "ApiVersions", "DescribeCluster", "EndTxn", "Heartbeat", "InitProducerId"}
ONLY_AT_THE_TOP |= {"DescribeAcls", "DescribeClientQuotas", "ListConfigResources"}
ONLY_AT_THE_TOP |= {"CreateDelegationToken", "DescribeDelegationToken", "ExpireDelegationToken", "RenewDelegationToken"}
ONLY_AT_THE_TOP |= {
    "AddRaftVoter",
    "RemoveRaftVoter",
    "UnregisterBroker",
    "UnregisterController",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
}
ONLY_AT_THE_TOP |= {"ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"}
ONLY_AT_THE_TOP |= {"StreamsGroupTopologyDescriptionUpdate", "SaslHandshake", "SaslAuthenticate"}
ONLY_AT_THE_TOP |= {"JoinGroup", "ListGroups", "ListPartitionReassignments", "ListTransactions", "SyncGroup"}

NAME_TOPICS = {"Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "CreateTopics"}
NAME_TOPICS |= {"DeleteTopics", "DeleteRecords", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "TxnOffsetCommit"}
NAME_TOPICS |= {"DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "DescribeLogDirs", "CreatePartitions"}
NAME_TOPICS |= {"AlterPartitionReassignments", "AlterReplicaLogDirs", "ElectLeaders", "ListPartitionReassignments"}
NAME_TOPICS |= {"ConsumerGroupHeartbeat", "ShareAcknowledge", "ShareFetch"}
NAME_TOPICS |= {"AlterShareGroupOffsets", "DeleteShareGroupOffsets", "DescribeShareGroupOffsets"}
NAME_TOPICS |= {"DeleteShareGroupState", "InitializeShareGroupState", "ReadShareGroupState"}
NAME_TOPICS |= {"ReadShareGroupStateSummary", "WriteShareGroupState"}
NAME_TOPICS |= {"OffsetDelete", "DescribeProducers", "DescribeTopicPartitions", "WriteTxnMarkers", "DescribeQuorum"}


def asking(layout: Group, topics: dict[str, bytes]) -> Any:
    """A request for partition 0 of topics, by name and by id, for group g, and so on."""
    return filled(empty_value(layout.cls), layout, topics, None)  # type: ignore[arg-type]


def filled(value: Any, layout: Group, topics: dict[str, bytes], topic: str | None) -> Any:
    for name, codec in layout.plan:
        if isinstance(codec, Array):
            setattr(value, name, listed(name, codec, topics, topic))
        elif name == "topic_id":
            setattr(value, name, topics[topic or ""])
        elif isinstance(codec, Blob) and codec.text and name in TEXTS:
            setattr(value, name, topic if TEXTS[name] == "t" and topic else TEXTS[name])
        elif name in NUMBERS:
            setattr(value, name, NUMBERS[name])
    if "topic_id" in value._fields and "name" in value._fields and layout.cls.__name__ == "DeleteTopicState":
        value.topic_id = ZERO_UUID  # a topic is requested by name or by id
    return value


def listed(name: str, codec: Array, topics: dict[str, bytes], topic: str | None) -> list[Any]:
    if isinstance(codec.item, Blob):
        return list(topics) if name == "topic_names" else [TEXTS[name]] if name in TEXTS else []
    if not isinstance(codec.item, Group):
        return [0] if name.startswith("partition") else []
    if name in ("assignments", "forgotten_topics_data"):
        return []
    plan = dict(codec.item.plan)
    several = topic is None and ({"name", "topic", "topic_name", "topic_id", "resource_name"} & plan.keys())
    return [
        filled(empty_value(codec.item.cls), codec.item, topics, one)  # type: ignore[arg-type]
        for one in (topics if several else [topic])
    ]


def codes(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int]]:
    """(subject, code) of every error code in a response."""
    fields = value._fields
    named = [getattr(value, n) for n in ("name", "topic", "topic_name", "topic_id", "resource_name") if n in fields]
    numbers = [getattr(value, n) for n in ("partition_index", "partition_id", "index", "partition") if n in fields]
    here = (*above, *[one for one in named if one not in ("", ZERO_UUID)][:1], *numbers)
    for name in value._fields:
        found = getattr(value, name)
        if name in ("error_code", "partition_error_code"):
            yield here, found
        elif isinstance(found, list):
            for one in found:
                if isinstance(one, Value):
                    yield from codes(one, here)


async def world(broker: Broker) -> tuple[Client, FaultsView, dict[str, bytes]]:
    faults = broker.running.faults
    assert faults is not None
    topics = {name: await broker.topic(name) for name in ("t", "u")}
    return await broker.client(), FaultsView(faults), topics


def title(key: int, version: int) -> str:
    return f"{ROUTES[key].name} v{version}"


async def test_every_response_has_a_place_for_an_error(tmp_path: Path) -> None:
    wrong: list[str] = []
    async with running(tmp_path / "data", faults=Faults(), overrides=EVERY_API) as broker:
        client, faults, topics = await world(broker)
        for key, version in CASES:
            route = ROUTES[key]
            request = asking(group_of(route.request_class, version), topics)
            with faults.error(route.name, TIMED_OUT) as fault:
                response = await client.call(request, version)
            found = list(codes(response))
            reported = [code for _, code in found if code]
            if (fault.matched, fault.fired) != (1, 1) or not reported or set(reported) != {TIMED_OUT}:
                wrong.append(f"{title(key, version)}: {found}")
            if message_parts.place_of_error(message_parts.shape_of(route.request_class, version), TIMED_OUT) == ():
                assert response.error_code == TIMED_OUT
        assert sorted(topic.name for topic in broker.state.topics) == ["t", "u"]  # no topic was created or deleted
        assert broker.log("t").log_end_offset == 0
    assert not wrong, "\n".join(wrong)


async def test_error_of_one_topic_leaves_the_other_intact(tmp_path: Path) -> None:
    """If a request names topics, only the topic of the rule has an error, and the rest is complete."""
    wrong: list[str] = []
    seen = set()
    async with running(tmp_path / "data", faults=Faults(), overrides=EVERY_API) as broker:
        client, faults, topics = await world(broker)
        for key, version in CASES:
            route = ROUTES[key]
            request = asking(group_of(route.request_class, version), topics)
            with faults.error(route.name, NOT_LEADER, topic="u") as fault:
                found = dict(codes(await client.call(request, version)))
                name = topics["u"] if ("u",) not in found and ("u", 0) not in found else "u"
                if fault.fired == 0:
                    continue
            seen.add(route.name)
            of_u = [code for about, code in found.items() if name in about and code]
            others = [code for about, code in found.items() if name not in about]
            if route.name in (
                "ConsumerGroupHeartbeat",
                "DescribeLogDirs",
                "ListPartitionReassignments",
            ):  # errors of other things
                assert list(found.values()) == [NOT_LEADER], title(key, version)
            elif not (set(of_u) == {NOT_LEADER} and NOT_LEADER not in others and others):
                wrong.append(f"{title(key, version)}: {found}")
            if broker.state.topics.get("t") is None:  # DeleteTopics has deleted the other one
                topics["t"] = await broker.topic("t")
            assert broker.state.topics.get("u") is not None
    assert not wrong, "\n".join(wrong)
    assert seen == NAME_TOPICS


@pytest.mark.parametrize("code", [NOT_COORDINATOR, UNKNOWN_MEMBER, TIMED_OUT])
def test_place_of_an_error_is_in_the_response(code: int) -> None:
    for key, version in CASES:
        shape = message_parts.shape_of(ROUTES[key].request_class, version)
        path = message_parts.place_of_error(shape, code)
        assert path is not None and path in shape.paths, title(key, version)


@each(
    ("api", "version", "code", "path"),
    [
        ("Produce", 9, NOT_COORDINATOR, ["responses", "partition_responses"]),
        ("Fetch", 6, 70, ["responses", "partitions"]),
        ("Fetch", 7, 70, []),
        ("Fetch", 7, NOT_LEADER, ["responses", "partitions"]),
        ("Metadata", 12, 5, ["topics"]),
        ("Metadata", 13, 129, []),
        ("OffsetFetch", 1, NOT_COORDINATOR, ["topics", "partitions"]),
        ("OffsetFetch", 2, NOT_COORDINATOR, []),
        ("OffsetFetch", 8, NOT_COORDINATOR, ["groups"]),
        ("OffsetFetch", 8, 88, ["groups", "topics", "partitions"]),
        ("LeaveGroup", 3, NOT_COORDINATOR, []),
        ("LeaveGroup", 3, UNKNOWN_MEMBER, ["members"]),
        ("DescribeLogDirs", 2, 56, ["results"]),
        ("DescribeLogDirs", 3, 56, []),
        ("FindCoordinator", 3, 15, []),
        ("FindCoordinator", 4, 15, ["coordinators"]),
    ],
)
def test_errors_are_placed_as_by_brokers(api: str, version: int, code: int, path: list[str]) -> None:
    (request_class,) = [route.request_class for route in ROUTES.values() if route.name == api]
    found = message_parts.place_of_error(message_parts.shape_of(request_class, version), code)
    assert found is not None and [level.field for level in found] == path


class Known:
    """Topics t (2 partitions) and u (1)."""

    def topic_name(self, id: bytes) -> str | None:
        return {b"t" * 16: "t"}.get(id)

    def topic_names(self) -> list[str]:
        return ["t", "u"]

    def partition_count(self, topic: str) -> int:
        return {"t": 2, "u": 1}.get(topic, 0)


def places(api: str, version: int, **values: Any) -> list[Place]:
    (request_class,) = [route.request_class for route in ROUTES.values() if route.name == api]
    request = asking(group_of(request_class, version), {"t": b"t" * 16})
    for name, value in values.items():
        setattr(request, name, value)
    return message_parts.places(request, message_parts.shape_of(request_class, version), Known())


def test_places_of_a_request_are_its_topics_and_partitions() -> None:
    t0, every = Place("t", 0), [Place("t", None), Place("t", 0), Place("t", 1)]
    everything = [*every, Place("u", None), Place("u", 0)]
    assert places("Produce", 9) == places("Produce", 13) == places("ListOffsets", 5) == [t0]
    assert places("OffsetCommit", 10) == places("OffsetFetch", 8) == places("AddPartitionsToTxn", 4) == [t0]
    assert places("TxnOffsetCommit", 3) == places("DescribeProducers", 0) == places("DescribeLogDirs", 1) == [t0]
    assert places("CreateTopics", 7) == places("DeleteTopics", 5) == places("DescribeConfigs", 4) == [Place("t", None)]
    assert places("Metadata", 9) == places("Metadata", 12) == places("DescribeTopicPartitions", 0) == every
    assert places("Metadata", 9, topics=None) == places("Metadata", 0, topics=[]) == everything
    assert places("OffsetFetch", 7, topics=None) == everything
    assert places("DescribeTopicPartitions", 0, topics=[]) == everything
    assert places("Metadata", 1, topics=[]) == []
    assert places("ListPartitionReassignments", 0) == [t0]  # its responses still have an error of the whole
    assert places("ConsumerGroupHeartbeat", 0) == [t0]
    assert places("ShareGroupHeartbeat", 1) == []
    for name in ONLY_AT_THE_TOP - {"ListPartitionReassignments", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"}:
        assert places(name, 0) == [], name


def test_responses_without_lists_have_one_error() -> None:
    found = set()
    for route in ROUTES.values():
        if all(message_parts.shape_of(route.request_class, v).paths == ((),) for v in SERVED[route.api_key].range()):
            found.add(route.name)
    assert found == ONLY_AT_THE_TOP
