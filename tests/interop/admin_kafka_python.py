"""The calls of kafka-python's admin client."""

# What this client exports, and which of its arguments may be None, its types do not declare.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from admin_clients import Call
from kafka import TopicPartition
from kafka.admin import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.structs import OffsetAndMetadata

NAME = "kafka-python"
CLASS = KafkaAdminClient
NOT_CALLED = {"close": "every call comes before it", "DEFAULT_CONFIG": "a table"}
NODE = 1


@contextmanager
def opened(address: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=address, request_timeout_ms=15000)
    try:
        yield client
    finally:
        client.close()


def call(method: str, what: str, *arguments: Any, reads: bool = False, **options: Any) -> Call:
    return Call(method, what, _made(method, arguments, options), reads)


def _made(method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[[KafkaAdminClient], Any]:
    return lambda admin: _plain(getattr(admin, method)(*copy.deepcopy(arguments), **options))


def _plain(response: Any) -> Any:
    """Returns the fields of responses of the protocol in plain values, and classes of errors by name."""
    if isinstance(response, dict):
        return {key: _plain(value) for key, value in response.items()}
    if isinstance(response, list):
        return [_plain(one) for one in response]
    if isinstance(response, type):
        return response.__name__
    return response.to_dict() if hasattr(response, "to_dict") else response


def topic(name: str, configs: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, configs)


def broker(name: str, configs: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, name, configs)


def acl(name: str, principal: str = "User:alice") -> ACL:
    parts = principal, "*", ACLOperation.READ, ACLPermissionType.ALLOW
    return ACL(*parts, ResourcePattern(ResourceType.TOPIC, name))


def acls(name: str | None) -> ACLFilter:
    pattern = ResourcePatternFilter(ResourceType.TOPIC, name, ACLResourcePatternType.ANY)
    return ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)


T0, T1, NOPE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("nope", 0)
SET_SCRAM = UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "secret", 4096, b"salt")
FEW = UserScramCredentialUpsertion("bob", "SCRAM-SHA-256", "secret", 1, b"salt")
UNCLEAN, PREFERRED = 1, 0
ALL = ConfigFilterType.ALL
CALLS = [
    call("api_versions", "of the cluster", reads=True),
    call("get_broker_version_data", "of the node", NODE, reads=True),
    call("get_broker_version_data", "of no node", 7, reads=True),
    call("create_topics", "good", [NewTopic("t", 2, 1), NewTopic("u", 1, 1, topic_configs={"flush.ms": "7"})]),
    call("wait_for_topics", "good", ["t", "u"], reads=True),
    call("wait_for_topics", "none", ["nope"], timeout_ms=300, reads=True),
    call("create_topics", "there already", [NewTopic("t", 2, 1)]),
    call("create_topics", "there already, reported", [NewTopic("t", 2, 1)], raise_errors=False),
    call("create_topics", "a bad name", [NewTopic("a b", 1, 1)]),
    call("create_topics", "too many replicas", [NewTopic("v", 1, 3)]),
    call("create_topics", "no partitions", [NewTopic("v", 0, 1)]),
    call("create_topics", "an unknown config", [NewTopic("v", 1, 1, topic_configs={"no.such": "1"})]),
    call("create_topics", "a bad config", [NewTopic("v", 1, 1, topic_configs={"retention.ms": "x"})]),
    # A Kafka with ZooKeeper waits for them as long as it may.
    call(
        "create_topics",
        "replicas that are not there",
        [NewTopic("v", -1, -1, replica_assignments={0: [7]})],
        timeout_ms=2000,
    ),
    call("create_topics", "twice", [NewTopic("w", 1, 1), NewTopic("w", 1, 1)], raise_errors=False),
    call("create_topics", "validated only", [NewTopic("v", 1, 1)], validate_only=True),
    call("create_topics", "none", []),
    call("create_partitions", "good", {"t": NewPartitions(3)}),
    call("create_partitions", "fewer", {"t": NewPartitions(1)}),
    call("create_partitions", "as many, reported", {"t": NewPartitions(3)}, raise_errors=False),
    call("create_partitions", "of none", {"nope": NewPartitions(3)}),
    call("create_partitions", "replicas that are not there", {"t": NewPartitions(4, [[7]])}),
    call("list_topics", "all", reads=True),
    call("describe_topics", "all", reads=True),
    call("describe_topics", "some", ["t", "nope", "a b"], reads=True),
    call("describe_topic_partitions", "some", ["t", "nope"], reads=True),
    call("describe_topic_partitions", "a page", ["t", "u"], response_partition_limit=2, reads=True),
    call(
        "describe_topic_partitions",
        "a bad cursor",
        ["t"],
        cursor={"topic_name": "t", "partition_index": -1},
        reads=True,
    ),
    call("describe_cluster", "plain", reads=True),
    call("describe_features", "plain", reads=True),
    call("describe_features", "of the controller", send_request_to_controller=True, reads=True),
    call("describe_metadata_quorum", "plain", reads=True),
    call("describe_configs", "some", [topic("u"), topic("nope")], reads=True),
    call("describe_configs", "all of a topic", [topic("u")], include_synonyms=True, config_filter=ALL, reads=True),
    call("describe_configs", "a bad broker", [broker("x")], reads=True),
    call(
        "alter_configs", "good", [topic("t", {"flush.ms": "1000", "cleanup.policy": (AlterConfigOp.APPEND, "compact")})]
    ),
    call("alter_configs", "a bad value", [topic("t", {"flush.ms": "x"})]),
    call("alter_configs", "an unknown name", [topic("t", {"no.such": "1"})]),
    call("alter_configs", "an unknown name all the same", [topic("t", {"no.such": "1"})], raise_on_unknown=False),
    call("alter_configs", "no topic", [topic("nope", {"flush.ms": "1"})]),
    call("alter_configs", "not incremental", [topic("t", {"flush.ms": "2000"})], incremental=False),
    call("alter_configs", "a broker's", [broker("1", {"log.cleaner.backoff.ms": "1000"})]),
    call("alter_configs", "one that cannot change", [broker("1", {"log.dirs": "/x"})]),
    call("describe_configs", "what was changed", [topic("t")], include_synonyms=True, reads=True),
    call("reset_configs", "good", [topic("t", ["flush.ms"]), broker("1", ["log.cleaner.backoff.ms"])]),
    call("reset_configs", "not set", [topic("t", ["segment.ms"])]),
    call("reset_configs", "an unknown name", [topic("t", ["no.such"])]),
    call("list_config_resources", "all", reads=True),
    call("list_config_resources", "of topics", ["TOPIC"], reads=True),
    call("create_acls", "good", [acl("t"), acl("u")]),
    call("create_acls", "a bad principal", [acl("t", "nobody")]),
    call("create_acls", "no name", [acl("")]),
    call("describe_acls", "all", acls(None), reads=True),
    call("describe_acls", "none", acls("nope"), reads=True),
    call("delete_acls", "some", [acls("t"), acls("nope"), acls("u")]),
    call("alter_group_offsets", "good", "g", {T0: OffsetAndMetadata(5, "m", -1), T1: OffsetAndMetadata(2, "", -1)}),
    call("alter_group_offsets", "no topic", "g", {NOPE: OffsetAndMetadata(5, "", -1)}),
    call("list_group_offsets", "all", "g", reads=True),
    call("list_group_offsets", "some", {"g": [T0, NOPE]}, reads=True),
    call("list_group_offsets", "no group", "none", reads=True),
    call("reset_group_offsets", "to the beginning", "g", {T0: OffsetSpec.EARLIEST}),
    call("reset_group_offsets", "too far", "g", {T1: 99}),
    call("reset_group_offsets", "no topic", "g", {NOPE: OffsetSpec.LATEST}),
    call("delete_group_offsets", "good", "g", [T1]),
    call("delete_group_offsets", "no topic", "g", [NOPE]),
    call("delete_group_offsets", "no group", "none", [T0]),
    call("list_groups", "all", reads=True),
    call("list_groups", "in a state", states_filter=["Stable"], reads=True),
    call("list_groups", "of a type", types_filter=["classic"], reads=True),
    call("describe_groups", "some", ["g", "none"], reads=True),
    call("describe_groups", "with operations", ["g"], include_authorized_operations=True, reads=True),
    call("remove_group_members", "one that is not there", "g", [MemberToRemove(member_id="m")]),
    call("remove_group_members", "of no group", "none", [MemberToRemove(group_instance_id="i")]),
    call("list_partition_offsets", "some", {T0: OffsetSpec.LATEST, T1: OffsetSpec.EARLIEST}, reads=True),
    call("list_partition_offsets", "by time", {T0: 1}, reads=True),
    call("list_partition_offsets", "the newest", {T0: OffsetSpec.MAX_TIMESTAMP}, reads=True),
    call("list_partition_offsets", "no topic", {NOPE: OffsetSpec.LATEST}, timeout_ms=1000, reads=True),
    call("delete_records", "good", {T0: 0}),
    call("delete_records", "beyond the end", {T0: 7}),
    call("delete_records", "no topic", {NOPE: 7}, timeout_ms=1000),
    call("describe_log_dirs", "all of a topic", ["t"], reads=True),
    call("describe_log_dirs", "of no topic", ["nope"], reads=True),
    call("alter_replica_log_dirs", "nowhere", {("t", 0, NODE): "/nowhere"}),
    call("alter_replica_log_dirs", "no partition", {("nope", 0, NODE): "/nowhere"}),
    call("elect_leaders", "preferred", PREFERRED, {"t": [0]}, raise_errors=False),
    call("elect_leaders", "unclean", UNCLEAN, {"t": [0]}),
    call("elect_leaders", "no topic", PREFERRED, {"nope": [0]}, raise_errors=False),
    call("elect_leaders", "of all", PREFERRED, raise_errors=False),
    call("alter_partition_reassignments", "where they are", {T0: [NODE]}),
    call("alter_partition_reassignments", "no node", {T0: [7]}),
    call("alter_partition_reassignments", "ended", {T0: None}),
    call("alter_partition_reassignments", "no topic", {NOPE: [NODE]}),
    call("list_partition_reassignments", "all", reads=True),
    call("list_partition_reassignments", "some", {"t": [0], "nope": [1]}, reads=True),
    call("describe_producers", "none", [T0], reads=True),
    call("describe_producers", "no topic", [NOPE], reads=True),
    call("describe_transactions", "some", ["t1"], reads=True),
    call("describe_transactions", "none", ["none"], reads=True),
    call("list_transactions", "all", reads=True),
    call("list_transactions", "in a state", state_filters=["Ongoing"], reads=True),
    call("list_transactions", "that match", transactional_id_pattern="t.*", reads=True),
    call("find_hanging_transactions", "none", reads=True),
    call("abort_transaction", "none", AbortTransactionSpec(T0, 1, 0)),
    call("update_features", "an unknown one", {"no.such": 1}),
    call("update_features", "a level too high", {"metadata.version": 999}),
    call("alter_user_scram_credentials", "set", [SET_SCRAM]),
    call("alter_user_scram_credentials", "too few iterations", [FEW]),
    call("alter_user_scram_credentials", "none to delete", [UserScramCredentialDeletion("bob", "SCRAM-SHA-256")]),
    call("describe_user_scram_credentials", "all", reads=True),
    call("describe_user_scram_credentials", "some", ["alice", "bob"], reads=True),
    call("alter_user_scram_credentials", "delete", [UserScramCredentialDeletion("alice", "SCRAM-SHA-256")]),
    call("delete_groups", "some", ["g", "none"]),
    call("delete_topics", "no topic", ["nope"]),
    call("delete_topics", "no topic, reported", ["nope"], raise_errors=False),
    call("delete_topics", "some", ["t", "u"]),
]
