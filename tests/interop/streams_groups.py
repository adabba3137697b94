"""Streams groups (KIP-1071): the same requests to Apache Kafka and to Ottla, each response compared.

A life of groups with several members: topologies that lack topics, tasks that move, standbys, static members,
endpoints, offsets, errors, and groups that change their kind. Then a group in a data directory that passes between
both: its members continue in the same epoch, which also needs the same hash of the topics.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side_by_side import PATIENCE_SECONDS, Pair, RawClient, Side, both

from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.streams.parts import KeyValue, TaskOffset
from ottla.protocol.messages.streams.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.schema import fields_of
from ottla_testing.broker.streaming import GROUP, beating, endpoint, internal, joining, subtopology, tasks, topology
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.oracle.kafka_process import Kraft

RELEASES = ("4.3", "4.4")
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.assignment.interval.ms": "0",
    "group.streams.num.standby.replicas": "1",
}
DIRECTORY_SETTINGS = {
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
    "group_streams_num_standby_replicas": "1",
    "offsets_topic_num_partitions": "1",
}
SETTLING_CODES = (14, 15, 16)  # until the coordinator has loaded
Step = tuple[Any, int]
PARTS = (
    subtopology("0", "in", repartition_sink_topics=["rep"]),
    subtopology(
        "1",
        source_topics=[],
        repartition_source_topics=[internal("rep")],
        state_changelog_topics=[internal("log", policy="compact")],
    ),
)


def commit(member: str = "a", epoch: int = 2, version: int = 9, topic: str = "in", group: str = GROUP) -> Step:
    made = OffsetCommitRequest.OffsetCommitRequestTopic
    one = made.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [made(name=topic, partitions=[one])]
    return (
        OffsetCommitRequest(group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=topics),
        version,
    )


def fetch(**member: Any) -> Step:
    made = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [made.OffsetFetchRequestTopics(name="in", partition_indexes=[0, 1])]
    return OffsetFetchRequest(groups=[made(group_id=GROUP, topics=topics, **member)], require_stable=False), 9


def describe(*groups: str, version: int) -> Step:
    return StreamsGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True), version


def listed(states: list[str], types: list[str]) -> Step:
    return ListGroupsRequest(states_filter=states, types_filter=types), 5


def classic_join() -> Step:
    made = JoinGroupRequest.JoinGroupRequestProtocol
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[made(name="range", metadata=b"")],
    )
    return request, 9


def group_config(name: str, value: str) -> Step:
    made = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = made.AlterableConfig(name=name, config_operation=0, value=value)
    resource = made(resource_type=32, resource_name=GROUP, configs=[change])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1


def owning(**found: Any) -> dict[str, Any]:
    """The fields of a heartbeat that lists its active and its standby tasks."""
    return {"active_tasks": tasks(**found.get("active", {})), "standby_tasks": tasks(**found.get("standby", {}))} | {
        "warmup_tasks": []
    }


def bad(version: int) -> list[Step]:
    """Heartbeats that are refused, each for another reason."""
    found = [
        joining(""),
        joining(group_id=" "),
        joining(instance_id=""),
        joining(rack_id=" "),
        joining(rebalance_timeout_ms=-1),
        joining(active_tasks=None),
        joining(warmup_tasks=tasks(_0={0})),
        joining(topology=None),
        beating(epoch=-2),
        beating(epoch=-3),
        beating(epoch=-1),
        beating(epoch=5),
        beating(active_tasks=[]),
        beating(topology=topology()),
        joining("a", subtopology(source_topic_regex=["t.*"])),
        joining("a", subtopology(state_changelog_topics=[internal("log", 2)])),
        joining("a", subtopology(source_topics=["__consumer_offsets"])),
        joining("a", subtopology(changelog="a b")),
        joining("a", subtopology(source_topics=[])),
        joining("a", subtopology(), subtopology()),
        joining(topology=topology(epoch=-1)),
        joining(instance_id="i", group_id="other"),
        joining(task_offsets=[TaskOffset(subtopology_id="0", partition=0, offset=1)], group_id="third"),
    ]
    return [(request, version) for request in found]


def settled(value: Any) -> Any:
    """Returns a response in which the order of Java's hash maps does not count."""
    if isinstance(value, list):
        return sorted(map(settled, value), key=repr)
    if hasattr(value, "_fields"):
        return type(value).__name__, {name: settled(getattr(value, name)) for name in fields_of(value)}
    return value


class Comparison:
    """Sends requests to both brokers, and compares."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.count = 0

    def __call__(self, request: Any, version: int) -> Any:
        ours, theirs = (side.client.call(request, version) for side in (self._pair.ours, self._pair.theirs))
        if settled(ours) != settled(theirs):
            raise Failed(f"after {self.count} responses: {request!r} v{version}: Kafka {theirs}, Ottla {ours}")
        self.count += 1
        return ours

    def until(self, is_done: Callable[[Side], bool]) -> None:
        """Waits until something holds on both brokers."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (is_done(self._pair.ours) and is_done(self._pair.theirs)):
            if time.monotonic() > end:
                raise Failed("the brokers do not settle")
            time.sleep(0.05)


def prepare(pair: Pair, compare: Comparison) -> None:
    """Creates the source topic, and waits for the coordinator."""
    made = CreateTopicsRequest.CreatableTopic
    topic = made(name="in", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    for side in (pair.ours, pair.theirs):
        side.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False), 7)
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = side.client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4).coordinators[0]
            probe = side.client.call(beating(epoch=-1, member="probe"), 0)
            if not found.error_code and probe.error_code not in SETTLING_CODES:
                break
            if time.monotonic() > end:
                raise Failed(f"{side.name} has no coordinator: {found}, {probe}")
            time.sleep(0.1)
    compare.until(lambda side: exists(side, "in"))


def exists(side: Side, *names: str) -> bool:
    topics = side.client.call(MetadataRequest(topics=None), 1).topics
    return set(names) <= {topic.name for topic in topics}


def run(release: str) -> str:
    version = 1 if release == "4.4" else 0
    with both(release, authorizer=False, **SETTINGS) as pair:
        compare = Comparison(pair)
        prepare(pair, compare)
        for request, number in bad(version):
            compare(request, number)
        live(compare, version)
        return f"{compare.count} responses are the same"


def live(compare: Comparison, version: int) -> None:
    """A group from its first member to its end."""

    def beat(member: str, epoch: int, **more: Any) -> Any:
        return compare(beating(member, epoch, **more), version)

    first = compare(joining("a", *PARTS, user_endpoint=endpoint()), version)
    compare(*describe(GROUP, "none", "", version=version))
    compare.until(lambda side: exists(side, "rep", "log"))
    # The members have the epoch that the group has after the topics are there.
    epoch = first.member_epoch
    compare.until(lambda side: not side.client.call(beating("a", epoch), version).status)
    found = compare(joining("a", *PARTS, user_endpoint=endpoint()), version)
    held = {"a": found}
    compare(*describe(GROUP, version=version))
    held["b"] = compare(joining("b", *PARTS, process_id="q"), version)
    for _ in range(5):
        for member in "ab":
            known = held[member]
            owned = {
                "active_tasks": known.active_tasks or [],
                "standby_tasks": known.standby_tasks or [],
                "warmup_tasks": [],
            }
            response = beat(member, known.member_epoch, **owned)
            if response.active_tasks is None:
                response.active_tasks, response.standby_tasks = known.active_tasks, known.standby_tasks
            held[member] = response
    compare(*describe(GROUP, version=version))
    latest = held["a"].member_epoch
    others(compare, version, latest)
    for member in ("a", "b"):
        beat(member, latest + 1)
        beat(member, latest, shutdown_application=member == "b")
    beat("a", latest, endpoint_information_epoch=7)
    beat("a", latest, **owning(active={"_7": {0}}))
    beat("a", latest, **owning(active={"_0": {9}}))
    compare(joining("c", *PARTS[:1]), version)  # another topology
    compare(joining("c", *PARTS, topology=topology(*PARTS, epoch=1)), version)
    compare(*group_config("streams.num.standby.replicas", "0"))
    compare.until(lambda side: has_advanced(side, latest, version))
    compare(*describe(GROUP, version=version))
    if version >= 1:
        static(compare, version)
    for member in "ab":
        beat(member, -1)
        compare(*describe(GROUP, version=version))
    compare(*commit("", -1))
    compare(joining("d", *PARTS), version)
    beat("d", -1)
    for _ in range(2):
        compare(DeleteGroupsRequest(groups_names=[GROUP]), 2)
    compare(*describe(GROUP, version=version))


def has_advanced(side: Side, epoch: int, version: int) -> bool:
    """Whether a heartbeat has begun a new epoch of the group."""
    side.client.call(beating("a", epoch), version)
    return side.client.call(*describe(GROUP, version=version)).groups[0].group_epoch > epoch


def others(compare: Comparison, version: int, epoch: int) -> None:
    """Requests of other APIs about a group with the members a and b."""
    compare(*commit(epoch=epoch))
    compare(*commit(epoch=epoch, version=8))
    compare(*commit(epoch=epoch + 1))
    compare(*commit(epoch=1))
    compare(*commit(epoch=2))
    compare(*commit("x", epoch))
    compare(*commit("", -1))
    for member in ({}, {"member_id": "a", "member_epoch": epoch}, {"member_id": "a", "member_epoch": 1}):
        compare(*fetch(**member))
    compare(*fetch(member_id="x", member_epoch=1))
    for states, types in (([], []), (["Stable"], []), ([], ["streams"]), (["NotReady"], ["streams"]), ([], ["share"])):
        compare(*listed(states, types))
    compare(DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=False), 6)
    compare(HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="a", group_instance_id=None), 4)
    compare(*classic_join())
    compare(DeleteGroupsRequest(groups_names=[GROUP]), 2)


def static(compare: Comparison, version: int) -> None:
    """A static member that leaves for a while and returns, and its tags and offsets."""
    tags = [KeyValue(key="zone", value="z")]
    joined = compare(joining("s", *PARTS, instance_id="i", client_tags=tags, process_id="r"), version)
    compare(joining("t", *PARTS, instance_id="i"), version)
    compare(beating("s", joined.member_epoch, instance_id="other"), version)
    offset = TaskOffset(subtopology_id="1", partition=0, offset=5)
    compare(beating("s", joined.member_epoch, instance_id="i", task_offsets=[offset], task_end_offsets=[]), version)
    compare(*describe(GROUP, version=version))
    compare(beating("s", -2, instance_id="i"), version)
    compare(*describe(GROUP, version=version))
    back = compare(joining("s2", *PARTS, instance_id="i", client_tags=tags, process_id="r"), version)
    compare(beating("s", joined.member_epoch, instance_id="i"), version)
    compare(*describe(GROUP, version=version))
    compare(beating("s2", back.member_epoch, instance_id="i"), version)
    compare(*group_config("streams.rack.aware.assignment.tags", "zone,row"))
    compare.until(
        lambda side: bool(side.client.call(beating("s2", back.member_epoch, instance_id="i"), version).status)
    )
    compare(beating("s2", -1, instance_id="i"), version)


# --- data directories ------------------------------------------------------------------------------------------------


def begin(client: RawClient) -> tuple[int, Any]:
    """Makes a group with two members; returns their epoch, and how it is described."""
    made = CreateTopicsRequest.CreatableTopic
    topic = made(name="in", num_partitions=3, replication_factor=1, assignments=[], configs=[])
    client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False), 7)
    await_coordinator(client)
    end = time.monotonic() + PATIENCE_SECONDS
    for member, process in (("a", "p"), ("b", "q")):
        while client.call(joining(member, *PARTS, process_id=process), 0).status and time.monotonic() < end:
            time.sleep(0.2)  # until the internal topics are there
    epochs: dict[str, int] = {}
    while time.monotonic() < end:
        for member in "ab":
            response = client.call(joining(member, *PARTS, process_id="pq"["ab".index(member)]), 0)
            owned = {"active_tasks": response.active_tasks, "standby_tasks": response.standby_tasks}
            more = client.call(beating(member, response.member_epoch, **owned, warmup_tasks=[]), 0)
            epochs[member] = more.member_epoch
        found = client.call(*describe(GROUP, version=0)).groups[0]
        if found.group_state == "Stable":
            return epochs["a"], described(found)
    raise Failed(f"the group does not become stable: {found}")


def described(found: Any) -> Any:
    """What has records of a described group: Kafka shows no numbers of partitions before it writes again."""
    return found.group_state, found.group_epoch, found.assignment_epoch, settled(found.members)


def await_coordinator(client: RawClient) -> None:
    """Waits until the group's coordinator has loaded."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        found = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4).coordinators[0]
        if not found.error_code:
            probe = client.call(beating(epoch=-1, member="probe"), 0)
            if probe.error_code not in SETTLING_CODES:
                return
        time.sleep(0.1)
    raise Failed("there is no coordinator")


def continued(client: RawClient, epoch: int, before: Any) -> str:
    """Sends heartbeats to the next broker, and compares how it describes the group."""
    await_coordinator(client)
    for member in "ab":
        response = client.call(beating(member, epoch), 0)
        if (response.error_code, response.member_epoch, response.status) != (0, epoch, []):
            raise Failed(f"member {member} in epoch {epoch}: {response}")
    after = described(client.call(*describe(GROUP, version=0)).groups[0])
    if after != before:
        raise Failed(f"before {before}, after {after}")
    return f"two members continue in epoch {epoch}"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def to_ours() -> str:
    with tempfile.TemporaryDirectory(prefix="streams-") as text:
        place = Path(text)
        (place / "kafka").mkdir()
        kafka = Kraft("4.3.1", place / "kafka", **DIRECTORY_SETTINGS)
        try:
            epoch, before = begin(RawClient(port_of(kafka.address)))
        finally:
            kafka.kill()
        (place / "ours").mkdir()
        kafka.logs.rename(place / "ours" / "data")
        broker = RunningBroker(place / "ours", "4.3", **DIRECTORY_SETTINGS)
        try:
            return continued(RawClient(broker.port), epoch, before)
        finally:
            broker.close()


def to_kafka() -> str:
    with tempfile.TemporaryDirectory(prefix="streams-") as text:
        place = Path(text)
        (place / "ours").mkdir()
        features = {"ottla_features": "group.version=1,streams.version=1"}  # recorded, so that Kafka has them too
        broker = RunningBroker(place / "ours", "4.3", **DIRECTORY_SETTINGS, **features)
        try:
            epoch, before = begin(RawClient(broker.port))
        finally:
            broker.kill()
        (place / "kafka").mkdir()
        broker.data_dir.rename(place / "kafka" / "logs")
        kafka = Kraft("4.3.1", place / "kafka", **DIRECTORY_SETTINGS)
        try:
            return continued(RawClient(port_of(kafka.address)), epoch, before)
        finally:
            kafka.stop()


CHECKS = [
    *(Check(f"streams groups as {release}", lambda release=release: run(release)) for release in RELEASES),
    Check("streams groups from Kafka 4.3.1 to Ottla", to_ours),
    Check("streams groups from Ottla to Kafka 4.3.1", to_kafka),
]
