"""Our own admin against Apache Kafka: its changes are effective, and refusals have Kafka's codes.

Brokers apply changes of the controller a moment later, so reads are repeated until the change is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from apache_kafka import RELEASES, Kafka

from ottla.client import Admin, Consumer, Producer
from ottla.client.admin.admin import (
    ANY_NAME,
    EARLIEST,
    LATEST,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ElectionType,
    FeatureUpdate,
    GroupDescription,
    NewPartitions,
    NewTopic,
    PatternType,
    PermissionType,
    Replica,
    ResourceType,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    checked,
    quota_entity,
)
from ottla_testing.interop.checks import Check, Failed

PATIENCE_SECONDS = 20
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Report:
    """Counts what was compared. Raises Failed at the first difference."""

    def __init__(self) -> None:
        self.count = 0

    def same(self, what: str, found: Any, expected: Any) -> None:
        self.count += 1
        if found != expected:
            raise Failed(f"{what}: {found!r} instead of {expected!r}")

    async def soon(self, what: str, send_request: Callable[[], Awaitable[Any]], expected: Any) -> None:
        """Repeats a request until its result is as expected, then compares it."""
        for _ in range(PATIENCE_SECONDS * 10):
            if await send_request() == expected:
                break
            await asyncio.sleep(0.1)
        self.same(what, await send_request(), expected)


def codes(outcomes: dict[Any, Any]) -> list[int]:
    """Returns the code of each error, 0 of success."""
    return [getattr(outcome, "code", 0) for outcome in outcomes.values()]


async def topics_and_configs(admin: Admin, report: Report) -> None:
    configs = {"retention.ms": "100000"}
    made = await admin.create_topics(
        [NewTopic("t", 2, 1, configs=configs), NewTopic("x", 1, 1, configs={"a": "b"}), "d"]
    )
    report.same("topics made", codes(made), [0, 40, 0])
    report.same("made again", codes(await admin.create_topics([NewTopic("t", 2, 1)])), [36])
    await report.soon("topics", lambda: _names(admin), ["d", "t"])
    more = await admin.create_partitions({"t": 3, "d": NewPartitions(2, [[1]]), "absent": 4})
    report.same("partitions made", codes(more), [0, 0, 3])
    await report.soon("partitions", lambda: _partitions(admin, "t"), [(n, 1, (1,), (1,)) for n in range(3)])
    report.same("absent", codes(await admin.describe_topics(["t", "absent"])), [0, 3])
    topic = ConfigResource.topic("t")
    changed = await admin.alter_configs({topic: {"cleanup.policy": "compact", "retention.ms": None}})
    report.same("set", codes(changed), [0])
    grown = ConfigChange(ConfigOperation.APPEND, "delete")
    report.same("append", codes(await admin.alter_configs({topic: {"cleanup.policy": grown}})), [0])
    await report.soon("configs", lambda: _own_configs(admin, topic), {"cleanup.policy": "compact,delete"})


async def _names(admin: Admin) -> list[str]:
    return list(await admin.list_topics())


async def _partitions(admin: Admin, topic: str) -> list[Any]:
    described = checked(await admin.describe_topics([topic]))[topic]
    return [(p.index, p.leader, p.replicas, p.isr) for p in described.partitions]


async def _own_configs(admin: Admin, topic: ConfigResource) -> dict[str, str | None]:
    entries = checked(await admin.describe_configs([topic]))[topic]
    return {name: entry.value for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC}


async def logs(admin: Admin, address: str, report: Report) -> None:
    async with Producer(address, enable_idempotence="required") as producer:
        for n in range(5):
            await producer.send_and_wait("t", b"%d" % n, b"k", partition=0, timestamp_ms=1000 * (n + 1))
    for spec, expected in ((LATEST, (5, -1)), (EARLIEST, (0, -1)), (2500, (2, 3000)), (9999, (-1, -1))):
        found = checked(await admin.list_offsets({("t", 0): spec}))["t", 0]
        report.same(f"offset of {spec}", found[:2], expected)
    (state,) = checked(await admin.describe_producers([("t", 0)]))["t", 0]
    report.same("producer", (state.producer_epoch, state.last_sequence, state.last_timestamp_ms), (0, 4, 5000))
    deleted = await admin.delete_records({("t", 0): 2, ("t", 1): 7})
    report.same("records deleted", (deleted["t", 0], codes(deleted)[1]), (2, 1))
    (folder,) = checked(await admin.describe_log_dirs())[1]
    report.same(
        "sizes", [size > 0 for where, (_, _, size) in sorted(folder.partitions.items()) if where[0] == "t"], [1, 0, 0]
    )


async def groups(admin: Admin, address: str, report: Report) -> None:
    async with Consumer(address, topics=["t"], group="members", offset_reset="earliest") as consumer:
        report.same("first record", (await consumer.getone()).offset, 2)
        described = await admin.describe_groups(["members", "absent"])
        report.same("groups", codes(described), [0, 69])
        result = described["members"]
        assert isinstance(result, GroupDescription)
        report.same("group", (result.state, result.protocol, result.coordinator), ("Stable", "range", 1))
        report.same("assigned", [member.partitions for member in result.members], [tuple(("t", n) for n in range(3))])
        report.same("offsets of a live group", codes(await admin.alter_group_offsets("members", {("t", 0): 3})), [25])
        report.same("a live group deleted", codes(await admin.delete_groups(["members"])), [68])
    done = await admin.alter_group_offsets("g", {("t", 0): 5, ("t", 1): 2, ("absent", 1): 3})
    report.same("offsets set", codes(done), [0, 0, 3])
    found = {where: result and result.offset for where, result in checked(await admin.list_group_offsets("g")).items()}
    report.same("offsets", found, {("t", 0): 5, ("t", 1): 2})
    report.same("offset removed", await admin.delete_group_offsets("g", [("t", 0)]), {("t", 0): None})
    report.same("offsets left", list(await admin.list_group_offsets("g")), [("t", 1)])
    report.same("groups by state", [g.group for g in await admin.list_groups(states=["Empty"])], ["g", "members"])
    report.same("groups deleted", codes(await admin.delete_groups(["g", "absent"])), [0, 69])
    report.same("topics deleted", codes(await admin.delete_topics(["t", "absent", "d"])), [0, 3, 0])


async def access_lists(admin: Admin, report: Report) -> None:
    read = (AclOperation.READ, PermissionType.ALLOW)
    one = AclBinding(AclResourceType.TOPIC, "t", PatternType.LITERAL, "User:anna", "*", *read)
    two = AclBinding(AclResourceType.TOPIC, "te", PatternType.PREFIXED, "User:bob", "1.2.3.4", *read)
    made = await admin.create_acls([two, one._replace(resource_name=""), one])
    report.same("bindings made", codes(made), [0, 42, 0])
    await report.soon("bindings", lambda: admin.describe_acls(AclFilter(AclResourceType.TOPIC)), [one, two])
    for pattern, expected in ((PatternType.MATCH, [two]), (PatternType.ANY, [])):
        found = await admin.describe_acls(AclFilter(AclResourceType.TOPIC, "tea", pattern))
        report.same(f"bindings by {pattern.name}", found, expected)
    whose = AclFilter(principal="User:anna")
    report.same("bindings removed", await admin.delete_acls([whose]), {whose: [one]})
    await report.soon("bindings left", admin.describe_acls, [two])


async def quotas_and_users(admin: Admin, report: Report) -> None:
    anna, both = quota_entity({"user": "anna"}), quota_entity({"user": "anna", "client-id": None})
    limits = {anna: {"producer_byte_rate": 1024.0}, both: {"request_percentage": 12.5}}
    done = await admin.alter_client_quotas({**limits, quota_entity({"user": "bob"}): {"no.such": 1.0}})
    report.same("quotas set", codes(done), [0, 0, 42])
    await report.soon("quotas", admin.describe_client_quotas, limits)
    some = await admin.describe_client_quotas({"user": ANY_NAME, "client-id": None})
    report.same("quotas of a default client", some, {both: limits[both]})
    report.same("quota removed", await admin.alter_client_quotas({both: {"request_percentage": None}}), {both: None})
    await report.soon("quotas left", admin.describe_client_quotas, {anna: limits[anna]})
    small = ScramMechanism.SCRAM_SHA_256
    changes = [
        ScramUpsertion("anna", small, "a", 4096),
        ScramUpsertion("carl", small, "c", 1),
        ScramDeletion("x", small),
    ]
    stored = await admin.alter_user_scram_credentials(changes)
    report.same(
        "passwords stored",
        {user: codes({0: error}) for user, error in stored.items()},
        {
            "anna": [0],
            "carl": [93],
            "x": [91],
        },
    )
    await report.soon("passwords", admin.describe_user_scram_credentials, {"anna": ((small, 4096),)})
    report.same("users", codes(await admin.describe_user_scram_credentials(["x", "anna"])), [91, 0])


async def cluster(admin: Admin, report: Report) -> None:
    wanted = [("t", 0), ("t", 9)]
    elected = await admin.elect_leaders(ElectionType.PREFERRED, wanted)
    report.same("elected", codes(elected), [84, 3])
    report.same("elected of all", await admin.elect_leaders(ElectionType.UNCLEAN), {})
    moved = await admin.alter_partition_reassignments({("t", 0): [1], ("t", 1): [9], ("t", 2): None, ("t", 9): [1]})
    report.same("reassigned", codes(moved), [0, 39, 85, 3])
    report.same("reassignments", await admin.list_partition_reassignments(), {})
    there = Replica("t", 0, 1)
    report.same("no directory", codes(await admin.alter_replica_log_dirs({there: "/no/such"})), [57])
    (folder,) = checked(await admin.describe_log_dirs())[1]
    report.same("its directory", await admin.alter_replica_log_dirs({there: folder.path}), {there: None})
    features = await admin.describe_features()
    level = features.finalized["metadata.version"].most
    report.same("level", features.supported["metadata.version"].most >= level > 0, True)
    same = {"metadata.version": FeatureUpdate(level)}
    report.same("features", await admin.update_features(same, validate_only=True), {"metadata.version": None})
    report.same("no feature", codes(await admin.update_features({"no.such": FeatureUpdate(1)})), [95])
    quorum = await admin.describe_metadata_quorum()
    report.same("quorum", (quorum.leader, [one.node_id for one in quorum.voters], quorum.observers), (1, [1], ()))


async def transactions(admin: Admin, address: str, report: Report) -> None:
    async with Producer(address, transactional_id="one") as producer:
        await producer.begin()
        await producer.send_and_wait("t", b"v", b"k", partition=2)
        (listed,) = await admin.list_transactions(states=["Ongoing"])
        report.same("transaction", (listed.transactional_id, listed.state), ("one", "Ongoing"))
        report.same("of others", await admin.list_transactions(producer_ids=[listed.producer_id + 1]), [])
        report.same("that long", await admin.list_transactions(duration_ms=10**9), [])
        described = await admin.describe_transactions(["one", "two"])
        report.same("described", codes(described), [0, 105])
        result: Any = described["one"]
        report.same("partitions", (result.coordinator, result.partitions), (1, (("t", 2),)))
        await producer.abort()


async def resources(admin: Admin, report: Report) -> None:
    group = ConfigResource(ResourceType.GROUP, "g")
    report.same("group", await admin.alter_configs({group: {"consumer.session.timeout.ms": "50000"}}), {group: None})
    await report.soon("groups with configs", lambda: admin.list_config_resources([ResourceType.GROUP]), [group])
    listed = await admin.list_config_resources([ResourceType.BROKER, ResourceType.TOPIC])
    report.same("resources", [one for one in listed if not one.name.startswith("__")][-1], ConfigResource.broker(1))


async def calls(address: str, release: str, report: Report) -> None:
    async with Admin(address) as admin:
        await topics_and_configs(admin, report)
        await logs(admin, address, report)
        await access_lists(admin, report)
        await quotas_and_users(admin, report)
        await cluster(admin, report)
        await transactions(admin, address, report)
        if release == "4.3":
            await resources(admin, report)
        await groups(admin, address, report)


def run_admin(release: str) -> str:
    report = Report()
    kafka = Kafka(release, None, 1, **AUTHORIZED)
    try:
        asyncio.run(asyncio.wait_for(calls(kafka.address, release, report), 120))
    finally:
        kafka.stop()
    return f"{report.count} responses to all of its requests are as expected"


CHECKS = [
    Check(f"our admin's calls with Kafka {version}", lambda release=release: run_admin(release))
    for release, version in RELEASES.items()
]
