"""The calls of confluent-kafka's admin client."""

# What this client exports, and which of its arguments may be None, its types do not declare.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from admin_clients import Call
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ElectionType, TopicPartition
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

NAME = "confluent-kafka"
CLASS = AdminClient
NOT_CALLED = {"poll": "serves callbacks", "set_sasl_credentials": "speaks to no broker"}
LONG = {"request_timeout": 15}


@contextmanager
def opened(address: str) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": address, "log_level": 0})


def call(method: str, what: str, *arguments: Any, reads: bool = False, **more: Any) -> Call:
    options = {**LONG, **more}
    if method in ("list_topics", "list_groups"):
        options = {"timeout": 10, **more}
    elif method == "cluster_id":
        options = more
    return Call(method, what, _made(method, arguments, options), reads)


def _made(method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[[AdminClient], Any]:
    return lambda admin: getattr(admin, method)(*arguments, **options)


def topic(name: str, *configs: tuple[str, str]) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name, set_config=dict(configs))


def changed(name: str, *entries: tuple[str, str | None, AlterConfigOpType]) -> ConfigResource:
    made = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in entries]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=made)


def acl(name: str, principal: str = "User:alice") -> AclBinding:
    parts = ResourcePatternType.LITERAL, principal, "*", AclOperation.READ, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, name, *parts)


def acls(name: str | None, kind: ResourcePatternType = ResourcePatternType.ANY) -> AclBindingFilter:
    return AclBindingFilter(ResourceType.ANY, name, kind, None, None, AclOperation.ANY, AclPermissionType.ANY)


def offsets(group: str, *given: tuple[str, int, int]) -> list[ConsumerGroupTopicPartitions]:
    return [ConsumerGroupTopicPartitions(group, [TopicPartition(*one) for one in given] or None)]


SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND
SHA_256 = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
CALLS = [
    call("create_topics", "good", [NewTopic("t", 2, 1), NewTopic("u", 1, config={"cleanup.policy": "compact"})]),
    call("create_topics", "there already", [NewTopic("t", 2, 1)]),
    call("create_topics", "a bad name", [NewTopic("a b", 1, 1)]),
    call("create_topics", "too many replicas", [NewTopic("v", 1, 3)]),
    call("create_topics", "no partitions", [NewTopic("v", 0, 1)]),
    call("create_topics", "an unknown config", [NewTopic("v", 1, 1, config={"no.such": "1"})]),
    call("create_topics", "a bad config", [NewTopic("v", 1, 1, config={"retention.ms": "x"})]),
    # A Kafka with ZooKeeper waits for them as long as it may, and does not hear the connection's next requests before.
    call(
        "create_topics",
        "replicas that are not there",
        [NewTopic("v", 1, replica_assignment=[[7]])],
        operation_timeout=2,
    ),
    call("create_topics", "validated only", [NewTopic("v", 1, 1)], validate_only=True),
    call("create_topics", "none", []),
    call("create_partitions", "good", [NewPartitions("t", 3)]),
    call("create_partitions", "fewer", [NewPartitions("t", 1)]),
    call("create_partitions", "as many", [NewPartitions("t", 3)]),
    call("create_partitions", "of none", [NewPartitions("nope", 3)]),
    call("list_topics", "all", reads=True),
    call("list_topics", "one", "t", reads=True),
    call("list_topics", "none", "nope", reads=True),
    call("describe_topics", "some", Topics(["t", "nope"]), reads=True),
    call("describe_topics", "with operations", Topics(["t"]), include_authorized_operations=True, reads=True),
    call("describe_topics", "a bad name", Topics(["a b"]), reads=True),
    call("describe_cluster", "plain", reads=True),
    call("describe_cluster", "with operations", include_authorized_operations=True, reads=True),
    call("cluster_id", "plain", reads=True),
    call("describe_configs", "a topic", [topic("u")], reads=True),
    call("describe_configs", "no topic", [topic("nope")], reads=True),
    call("describe_configs", "no broker", [ConfigResource(ResourceType.BROKER, "7")], reads=True),
    call("describe_configs", "a bad broker", [ConfigResource(ResourceType.BROKER, "x")], reads=True),
    call("alter_configs", "good", [topic("t", ("retention.ms", "9000000000000"))]),
    call("alter_configs", "a bad value", [topic("t", ("retention.ms", "x"))]),
    call("alter_configs", "an unknown name", [topic("t", ("no.such", "1"))]),
    call("alter_configs", "no topic", [topic("nope", ("retention.ms", "1"))]),
    call("alter_configs", "validated only", [topic("t", ("flush.ms", "5"))], validate_only=True),
    call(
        "incremental_alter_configs", "good", [changed("t", ("flush.ms", "1000", SET), ("retention.ms", None, DELETE))]
    ),
    call("incremental_alter_configs", "appended", [changed("u", ("cleanup.policy", "delete", APPEND))]),
    call("incremental_alter_configs", "appended to no list", [changed("u", ("flush.ms", "1", APPEND))]),
    call("incremental_alter_configs", "a bad value", [changed("u", ("flush.ms", "x", SET))]),
    call("incremental_alter_configs", "no topic", [changed("nope", ("flush.ms", "1", SET))]),
    call("describe_configs", "what was changed", [topic("t"), topic("u")], reads=True),
    call("create_acls", "good", [acl("t"), acl("u")]),
    call("create_acls", "a bad principal", [acl("t", "nobody")]),
    call("create_acls", "no name", [acl("")]),
    call("describe_acls", "all", acls(None), reads=True),
    call("describe_acls", "that match", acls("t", ResourcePatternType.MATCH), reads=True),
    call("describe_acls", "none", acls("nope"), reads=True),
    call("delete_acls", "one", [acls("t")]),
    call("delete_acls", "none", [acls("nope")]),
    call("delete_acls", "all that are left of a name", [acls("u")]),
    call("alter_consumer_group_offsets", "good", offsets("g", ("t", 0, 5), ("t", 1, 2))),
    call("alter_consumer_group_offsets", "no topic", offsets("g", ("nope", 0, 5))),
    call("alter_consumer_group_offsets", "no partition", offsets("g", ("t", 9, 5))),
    call("list_consumer_group_offsets", "all", offsets("g"), reads=True),
    call("list_consumer_group_offsets", "some", offsets("g", ("t", 0, -1001), ("nope", 0, -1001)), reads=True),
    call("list_consumer_group_offsets", "no group", offsets("nope"), reads=True),
    call("list_consumer_group_offsets", "stable", offsets("g"), require_stable=True, reads=True),
    call("list_consumer_groups", "all", reads=True),
    call("list_consumer_groups", "in a state", states={ConsumerGroupState.STABLE}, reads=True),
    call("list_groups", "all", reads=True),
    call("list_groups", "none", "nope", reads=True),
    call("describe_consumer_groups", "some", ["g", "nope"], reads=True),
    call("describe_consumer_groups", "with operations", ["g"], include_authorized_operations=True, reads=True),
    call("list_offsets", "ends", {TopicPartition("t", 0): OffsetSpec.latest()}, reads=True),
    call("list_offsets", "beginnings", {TopicPartition("t", 0): OffsetSpec.earliest()}, reads=True),
    call("list_offsets", "by time", {TopicPartition("t", 0): OffsetSpec.for_timestamp(1)}, reads=True),
    call("list_offsets", "the newest", {TopicPartition("t", 0): OffsetSpec.max_timestamp()}, reads=True),
    call("list_offsets", "no topic", {TopicPartition("nope", 0): OffsetSpec.latest()}, request_timeout=3, reads=True),
    call("delete_records", "good", [TopicPartition("t", 0, 0)]),
    call("delete_records", "beyond the end", [TopicPartition("t", 0, 7)]),
    call("delete_records", "no topic", [TopicPartition("nope", 0, 7)], request_timeout=3),
    call("elect_leaders", "preferred", ElectionType.PREFERRED, [TopicPartition("t", 0)]),
    call("elect_leaders", "unclean", ElectionType.UNCLEAN, [TopicPartition("t", 0)]),
    call("elect_leaders", "no topic", ElectionType.PREFERRED, [TopicPartition("nope", 0)]),
    call("elect_leaders", "of all", ElectionType.PREFERRED, None),
    call("alter_user_scram_credentials", "set", [UserScramCredentialUpsertion("alice", SHA_256, b"secret", b"salt")]),
    call("alter_user_scram_credentials", "none to delete", [UserScramCredentialDeletion("bob", SHA_256.mechanism)]),
    call(
        "alter_user_scram_credentials",
        "too few iterations",
        [UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 1), b"secret", b"salt")],
    ),
    call("describe_user_scram_credentials", "all", reads=True),
    call("describe_user_scram_credentials", "some", ["alice", "bob"], reads=True),
    call("alter_user_scram_credentials", "delete", [UserScramCredentialDeletion("alice", SHA_256.mechanism)]),
    call("delete_consumer_groups", "some", ["g", "nope"]),
    call("delete_topics", "some", ["t", "nope", "u"]),
    call("delete_topics", "a bad name", ["a b"]),
]
