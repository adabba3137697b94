"""The values of random admin calls: by field, those that are right and those that are wrong where the brokers are now.

A pool is a function of the world and a source of chance to (right values, wrong values). What names something of one
broker alone stands as a sign that is replaced when it is sent: DIR for its data directory, `topic_sign` for a topic id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ottla.protocol.records import batch

DIR = "@DIR@"
CLUSTER = "@CLUSTER@"
ZERO = bytes(16)
NODE = 1
TOPICS = ("a", "b", "c", "d", "e.f", "e_f")
BAD_NAMES = ("", ".", "..", "bad name", "x" * 250, "ö", "a/b")
NO_PATHS = ("", ".", "..")  # of ZooKeeper's
METADATA_MAX = 4096  # bytes that may be committed with an offset
GROUPS = ("g0", "g1", "g2", "no group", "")
USERS = ("alice", "bob", "User:carol")
INTERNAL = "__consumer_offsets"


class World:
    """The contents of the brokers, as far as calls depend on them. `topics`: name -> number of partitions."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.with_controller = release != "2.8"
        self.topics: dict[str, int] = {}
        self.signs: list[bytes] = []  # of the ids of all topics that ever were

    @property
    def absent(self) -> list[str]:
        return [name for name in TOPICS if name not in self.topics]

    @property
    def present(self) -> list[str]:
        return [name for name in self.topics if not name.startswith("__")]


def topic_sign(number: int) -> bytes:
    """Returns the sign for the id of the n-th topic that both brokers have created."""
    return hashlib.md5(b"topic %d" % number).digest()


def some(*good: Any, bad: Sequence[Any] = ()) -> Callable[[World, Random], tuple[Any, Any]]:
    return lambda world, random: (good, bad)


def present(world: World, random: Random) -> tuple[Any, Any]:
    return world.present or TOPICS, (*world.absent, *BAD_NAMES, INTERNAL)


def deletable(world: World, random: Random) -> tuple[Any, Any]:
    return world.present or TOPICS, (*world.absent, *BAD_NAMES)


def absent(world: World, random: Random) -> tuple[Any, Any]:
    return world.absent or TOPICS, (*world.present, *BAD_NAMES, INTERNAL)


def ids(world: World, random: Random) -> tuple[Any, Any]:
    return world.signs or [ZERO], [ZERO, topic_sign(-1)]


INDEXES = some(0, 0, 1, 2, bad=(3, 99, -1))
RECORDS = [batch.Record(n, 1_700_000_000_000 + n % 2, b"k", b"v%d" % n, ()) for n in range(3)]
OFFSETS = some(0, 1, 2, 5, bad=(-1, -2, 1000, (1 << 63) - 1))
TIMEOUT = some(30000)
BROKER_IDS = some(NODE, bad=(2, -1))
NUMBERS = ("", "abc", "-5", "0", "1.5", "99999999999999999999", " 7 ", "true", None)

# Other values of these are accepted for brokers and break all that comes after: with a negative interval Kafka 2.8 can
# create no topic; without enough replicas no offset can be committed, and a Kafka up to 3.9 keeps the group, empty.
ONE_VALUE = {"log.flush.interval.ms": "100000", "min.insync.replicas": "1"}

# Configs and values that are right; none of them has records deleted or connections refused.
TOPIC_CONFIGS: dict[str, Sequence[str]] = {
    "retention.ms": ("9000000000000", "-1"),
    "retention.bytes": ("-1", "1000000000"),
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "compression.type": ("gzip", "producer", "zstd", "uncompressed"),
    "max.message.bytes": ("100000", "2000000"),
    "min.insync.replicas": ("1", "2"),
    "segment.bytes": ("1048576", "104857600"),
    "segment.ms": ("10000000", "604800000"),
    "segment.jitter.ms": ("0", "10"),
    "segment.index.bytes": ("10485760", "100000"),
    "index.interval.bytes": ("4096", "0"),
    "flush.ms": ("100000", "9223372036854775807"),
    "flush.messages": ("10000", "9223372036854775807"),
    "file.delete.delay.ms": ("60000", "1"),
    "delete.retention.ms": ("86400000", "0"),
    "min.cleanable.dirty.ratio": ("0.5", "0.9", "1"),
    "min.compaction.lag.ms": ("0", "1000"),
    "max.compaction.lag.ms": ("9223372036854775807", "100000"),
    "message.timestamp.type": ("CreateTime",),
    "message.timestamp.difference.max.ms": ("9223372036854775807",),
    "message.timestamp.before.max.ms": ("9223372036854775807",),
    "message.timestamp.after.max.ms": ("9223372036854775807",),
    "message.downconversion.enable": ("true", "false", "FALSE"),
    "preallocate": ("false", "true"),
    "unclean.leader.election.enable": ("false",),
    "leader.replication.throttled.replicas": ("0:1", "*", "0:1,1:1"),
    "follower.replication.throttled.replicas": ("0:1", "none"),
    "remote.storage.enable": ("false",),
    "local.retention.ms": ("-2",),
    "compression.gzip.level": ("1", "-1", "9"),
    "compression.zstd.level": ("3", "22"),
    "compression.lz4.level": ("9",),
}
BROKER_CONFIGS: dict[str, Sequence[str]] = {
    "log.retention.ms": ("-1", "9000000000000"),
    "log.segment.bytes": ("1073741824", "104857600"),
    "log.cleaner.backoff.ms": ("15000", "1000"),
    "log.cleaner.delete.retention.ms": ("86400000",),
    "log.flush.interval.ms": ("100000",),
    "message.max.bytes": ("1048588", "2000000"),
    "background.threads": ("10", "8"),
    "num.recovery.threads.per.data.dir": ("1", "2"),
    "compression.type": ("producer", "gzip"),
    "unclean.leader.election.enable": ("false",),
    "min.insync.replicas": ("1",),
    "leader.replication.throttled.rate": ("1000000",),
    "follower.replication.throttled.rate": ("1000000",),
    "max.connections": ("2147483647", "100000"),
    "max.connections.per.ip": ("2147483647", "100000"),
    "max.connections.per.ip.overrides": ("127.0.0.9:100", ""),
    "log.cleaner.min.compaction.lag.ms": ("0", "10"),
    "log.index.interval.bytes": ("4096",),
    "log.preallocate": ("false",),
    "log.message.timestamp.type": ("CreateTime",),
    "log.cleanup.policy": ("delete",),
}
READ_ONLY_CONFIGS = ("auto.create.topics.enable", "log.dirs", "broker.id", "num.partitions", "log.dir")
UNKNOWN_CONFIGS = ("no.such", "", "retention", "zookeeper.connect", "group.id")
TYPE_TOPIC, TYPE_BROKER, TYPE_LOGGER, TYPE_METRICS, TYPE_GROUP = 2, 4, 8, 16, 32


def config_names(world: World, random: Random) -> tuple[Any, Any]:
    return (*TOPIC_CONFIGS, *BROKER_CONFIGS), (*UNKNOWN_CONFIGS, *READ_ONLY_CONFIGS)


def resource_names(world: World, random: Random) -> tuple[Any, Any]:
    return ("1", "", *(world.present or TOPICS)), ("2", "x", "01", *BAD_NAMES, *world.absent)


def valued(config: Any, kind: int, random: Random, wrong: bool) -> None:
    """Gives a config of that kind of resource a name and a value that belong together."""
    table = {TYPE_TOPIC: TOPIC_CONFIGS, TYPE_BROKER: BROKER_CONFIGS}.get(kind, OTHER_CONFIGS.get(kind, TOPIC_CONFIGS))
    config.name = random.choice(list(table))
    config.value = random.choice(list(table[config.name]))
    if wrong:
        if random.random() < 0.5:
            config.value = random.choice(NUMBERS)
        else:
            config.name = random.choice((*UNKNOWN_CONFIGS, *READ_ONLY_CONFIGS, *TOPIC_CONFIGS, *BROKER_CONFIGS))
    if kind == TYPE_BROKER and config.name in ONE_VALUE:
        config.value = ONE_VALUE[config.name]


OTHER_CONFIGS: dict[int, dict[str, Sequence[str]]] = {
    TYPE_METRICS: {
        "metrics": ("org.apache.kafka.consumer.", "*", ""),
        "interval.ms": ("100", "60000", "3600000"),
        "match": ("client_id=a.*", "client_software_name=x,client_software_version=1"),
    },
    TYPE_GROUP: {
        "consumer.session.timeout.ms": ("45000", "50000"),
        "consumer.heartbeat.interval.ms": ("5000", "6000"),
    },
    TYPE_LOGGER: {"kafka.server.KafkaApis": ("INFO", "DEBUG"), "root": ("INFO",)},
}


def altered(resource: Any, world: World, random: Random, wrong: bool) -> None:
    """Sets the name of a resource, and configs of its type."""
    if resource.resource_type == TYPE_TOPIC and not wrong:
        resource.resource_name = random.choice(world.present or TOPICS)
    elif resource.resource_type == TYPE_BROKER and not wrong:
        resource.resource_name = random.choice(("1", ""))
    elif resource.resource_type == TYPE_METRICS and not wrong:
        resource.resource_name = random.choice(("m1", "m2"))
    elif resource.resource_type == TYPE_GROUP and not wrong:
        resource.resource_name = random.choice(("g0", "new group"))
    for config in getattr(resource, "configs", ()):
        valued(config, resource.resource_type, random, wrong and random.random() < 0.7)
        if getattr(config, "config_operation", 0) == 1 and random.random() < 0.8:
            config.value = None


def topic_config(config: Any, world: World, random: Random, wrong: bool) -> None:
    valued(config, TYPE_TOPIC, random, wrong)


def assigned(topic: Any, world: World, random: Random, wrong: bool) -> None:
    """Replicas are assigned or counted, not both."""
    if topic.assignments and not wrong:
        topic.num_partitions = topic.replication_factor = -1
        for index, given in enumerate(topic.assignments):
            given.partition_index, given.broker_ids = index, [NODE]


def counted(topic: Any, world: World, random: Random, wrong: bool) -> None:
    """Makes the number of partitions greater than the present one, with as many assignments as are new."""
    now = world.topics.get(topic.name, 1)
    topic.count = random.choice((0, -1, now, now - 1, now + 1)) if wrong else min(now + 1, 6)
    if topic.assignments is not None and not wrong:
        topic.assignments = topic.assignments[:1] if topic.count == now + 1 else []
        for given in topic.assignments:
            given.broker_ids = [NODE]


def by_name_or_id(topic: Any, world: World, random: Random, wrong: bool) -> None:
    if wrong:
        return
    if random.random() < 0.5 or not world.signs:
        topic.topic_id = ZERO
        topic.name = topic.name if topic.name is not None else "a"
    else:
        topic.name = None
        topic.topic_id = random.choice(world.signs[-6:])


def requested_metadata(topic: Any, world: World, random: Random, wrong: bool) -> None:
    if world.signs and random.random() < 0.3:
        topic.topic_id, topic.name = random.choice(world.signs[-6:]), None
    else:
        topic.topic_id = ZERO
        topic.name = topic.name if topic.name is not None else "b"


def scram_sized(credential: Any, world: World, random: Random, wrong: bool) -> None:
    if not wrong:
        credential.salted_password = b"p" * (32 if credential.mechanism == 1 else 64)


def not_both(request: Any, world: World, random: Random, version: int) -> None:
    """Keeps a credential in either the upsertions or the deletions."""
    set_ones = {(one.name, one.mechanism) for one in request.upsertions}
    request.deletions = [one for one in request.deletions if (one.name, one.mechanism) not in set_ones]


def lost_by_none(request: Any, world: World, random: Random, version: int) -> None:
    """Avoids requests in which KRaft's brokers lose a credential: it is set in the request that removes the last one of
    its mechanism, and the removal comes first in the hash order of users (ScramDelta.apply). Ours keep it."""
    if world.with_controller:
        users, mechanisms = ({getattr(one, of) for one in request.upsertions} for of in ("name", "mechanism"))
        request.deletions = [one for one in request.deletions if one.name in users or one.mechanism not in mechanisms]


def apart(request: Any, world: World, random: Random, version: int) -> None:
    """Avoids colliding names in one request, which KRaft's controller checks only against earlier topics. With
    ZooKeeper also avoids assignments to missing nodes, without replicas or with partition -1: such a topic is created,
    and cannot be deleted."""
    if "e.f" in {topic.name for topic in request.topics}:
        request.topics = [topic for topic in request.topics if topic.name != "e_f"]
    if not world.with_controller:
        for given in (given for topic in request.topics for given in topic.assignments):
            given.broker_ids = [NODE] * max(1, given.broker_ids.count(NODE))
            given.partition_index = max(0, given.partition_index)


def addressable(request: Any, world: World, random: Random, version: int) -> None:
    """Avoids names that are no path of ZooKeeper, which end the whole request, after its earlier parts are done."""
    if not world.with_controller:
        request.topics = [topic for topic in request.topics if topic.name in NO_PATHS][:1] or request.topics


def unknown_alone(request: Any, world: World, random: Random, version: int) -> None:
    """Avoids further changes beside an unknown one: KRaft's controller takes changes out of a hash table, and does
    nothing after it meets an unknown one, unless it has met another invalid one of the resource before."""
    for resource in request.resources if world.with_controller else ():
        unknown = [config for config in resource.configs if config.config_operation not in range(4)]
        resource.configs = unknown[:1] or resource.configs


def answerable(request: Any, world: World, random: Random, version: int) -> None:
    """Avoids unknown kinds of elections of all partitions, to which a broker with ZooKeeper sends no response."""
    if not world.with_controller and request.topic_partitions is None and request.election_type not in (0, 1):
        request.election_type = 0


def apart_in_kind(request: Any, world: World, random: Random, version: int) -> None:
    """Avoids one name for two resources of unknown types, to which a broker with ZooKeeper sends no response: it takes
    both for one type."""
    unknown: set[str] = set()
    for resource in list(request.resources) if not world.with_controller else ():
        if resource.resource_type not in (TYPE_TOPIC, TYPE_BROKER, TYPE_LOGGER):
            if resource.resource_name in unknown:
                request.resources.remove(resource)
            unknown.add(resource.resource_name)


def noted_alike(request: Any, world: World, random: Random, version: int) -> None:
    """Makes metadata of all partitions too long or of none: the coordinator before KIP-848 waits for ever for a
    partition whose metadata is too long if that of another is not (UNSTABLE_OFFSET_COMMIT for requests of stable
    offsets)."""
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    for partition in partitions:
        if partition.committed_metadata and len(partition.committed_metadata) > METADATA_MAX:
            for one in partitions:
                one.committed_metadata = partition.committed_metadata


def committed_simply(request: Any, world: World, random: Random, version: int) -> None:
    """Commits without a member, as an admin does."""
    request.generation_id_or_member_epoch = -1
    request.member_id = ""
    request.group_instance_id = None
    if version in range(2, 5):
        request.retention_time_ms = -1


def versioned_metadata(request: Any, world: World, random: Random, version: int) -> None:
    """Avoids a null name, which this version cannot have."""
    for topic in request.topics or ():
        if version < 10 and topic.name is None:
            topic.name = "a"


def quota_entity(entry: Any, world: World, random: Random, wrong: bool) -> None:
    """Makes an entity of one type, or of a user and a client id. A quota of all entities also applies to this client
    and must not be reached: otherwise the time since the last call would decide."""
    if not entry.entity:
        return
    if not wrong:
        _of_known_entity(entry, random)
    if all(one.entity_name is None for one in entry.entity):
        for op in entry.ops:
            if op.key in ("controller_mutation_rate", "request_percentage", "connection_creation_rate"):
                op.value = max(op.value, 1e9)


def _of_known_entity(entry: Any, random: Random) -> None:
    kinds = random.choice((["user"], ["client-id"], ["user", "client-id"], ["ip"]))
    one = type(entry.entity[0])
    names = {"user": (*USERS, None), "client-id": ("c1", "c2", None), "ip": ("127.0.0.8", None)}
    entry.entity = [one(entity_type=kind, entity_name=random.choice(names[kind])) for kind in kinds]
    keys = ["connection_creation_rate"] if kinds == ["ip"] else ["producer_byte_rate", "request_percentage"]
    keys += [] if kinds == ["ip"] else ["consumer_byte_rate", "controller_mutation_rate"]
    random.shuffle(keys)
    entry.ops = entry.ops[: len(keys)]
    for op in entry.ops:
        op.key = keys.pop()


def quota_component(component: Any, world: World, random: Random, wrong: bool) -> None:
    if not wrong:
        component.match = random.choice(USERS) if component.match_type == 0 else None


def acl(entry: Any, world: World, random: Random, wrong: bool) -> None:
    """Makes a valid entry: no "any" and no "match", and a cluster by its one name."""
    if wrong:
        return
    entry.resource_type = random.choice((2, 2, 3, 4, 5))
    entry.resource_name = "kafka-cluster" if entry.resource_type == 4 else random.choice((*TOPICS, "*", "pre"))
    if entry.resource_pattern_type != 3:  # as v0 has it
        entry.resource_pattern_type = 3 if entry.resource_type == 4 else random.choice((3, 4))
    entry.operation = random.choice(
        {2: (2, 3, 4, 5, 6, 7, 8), 3: (2, 3, 6), 4: (2, 5, 8, 9), 5: (2, 4, 8)}[entry.resource_type]
    )
    entry.permission_type = random.choice((2, 3))


def fetched_groups(request: Any, world: World, random: Random, version: int) -> None:
    for group in request.groups:
        group.member_id, group.member_epoch = None, -1


ACL_FILTERS = {
    "resource_type_filter": some(1, 2, 3, 4, 5, 6, 7, bad=(0, 99, -1)),
    "resource_name_filter": some(*TOPICS, "kafka-cluster", "*", "prefixed", None, None, bad=("",)),
    "pattern_type_filter": some(1, 2, 3, 4, bad=(0, 99)),
    "principal_filter": some("User:alice", "User:*", None, None, bad=("nobody", "", "User:")),
    "host_filter": some("*", "127.0.0.1", None, None, bad=("", "nowhere")),
}
POOLS: dict[str, Callable[[World, Random], tuple[Any, Any]]] = {
    **ACL_FILTERS,
    "DescribeAcls.operation": some(1, 1, 2, 3, 4, 5, 8, bad=(0, 99)),
    "DescribeAcls.permission_type": some(1, 1, 2, 3, bad=(0, 99)),
    "DeleteAcls.operation": some(1, 1, 2, 3, 4, 5, 8, bad=(0, 99)),
    "DeleteAcls.permission_type": some(1, 1, 2, 3, bad=(0, 99)),
    "timeout_ms": TIMEOUT,
    "validate_only": some(False, False, False, True),
    "name": present,
    "topic": present,
    "topic_name": present,
    "topic_names": deletable,
    "topic_id": ids,
    "partition_index": INDEXES,
    "partition": INDEXES,
    "partitions": INDEXES,
    "partition_indexes": INDEXES,
    "DeleteTopics.name": deletable,
    "CreateTopics.name": absent,
    "CreateTopics.num_partitions": some(1, 1, 2, 3, -1, bad=(0, -2)),
    "CreateTopics.replication_factor": some(1, 1, -1, bad=(0, -2, 2, 3)),
    "CreateTopics.assignments?": some(),
    "CreateTopics.configs?": some(),
    "broker_ids": BROKER_IDS,
    "CreateTopics.CreatableTopicConfig.name": config_names,
    "value": some("1", "compact", "abc", None),
    "count": some(1, 2, 3),
    "allow_auto_topic_creation": some(False),
    "include_cluster_authorized_operations": some(False, True),
    "include_topic_authorized_operations": some(False, True),
    "include_authorized_operations": some(False, True),
    "include_synonyms": some(False, True),
    "include_documentation": some(False),
    "include_fenced_brokers": some(False, True),
    "endpoint_type": some(1, bad=(0, 2, 3)),
    "resource_type": some(
        TYPE_TOPIC, TYPE_TOPIC, TYPE_BROKER, bad=(0, 1, 3, TYPE_LOGGER, TYPE_METRICS, TYPE_GROUP, 99)
    ),
    "resource_name": resource_names,
    "configuration_keys": config_names,
    "AlterConfigs.AlterableConfig.name": config_names,
    "IncrementalAlterConfigs.AlterableConfig.name": config_names,
    "config_operation": some(0, 0, 1, 2, 3, bad=(4, -1)),
    "resource_types": some(2, 4, 8, 16, 32, bad=(0, 1, 99)),
    "group_id": some(*GROUPS[:3], bad=GROUPS[3:]),
    "groups": some(*GROUPS[:3], bad=GROUPS[3:]),
    "groups_names": some(*GROUPS[:3], bad=GROUPS[3:]),
    "states_filter": some("Empty", "Stable", "Dead", "empty", bad=("", "Nonsense")),
    "ListGroups.states_filter?": some(),
    "types_filter": some("classic", "consumer", "Classic", "share", bad=("", "nonsense")),
    "ListGroups.types_filter?": some(),
    "generation_id_or_member_epoch": some(-1, bad=(0, 1)),
    "member_id": some("", bad=("m",)),
    "group_instance_id": some(None, bad=("i",)),
    "member_epoch": some(-1, bad=(0, 1)),
    "retention_time_ms": some(-1, bad=(1000000,)),
    "committed_offset": OFFSETS,
    "committed_leader_epoch": some(-1, 0, bad=(5,)),
    "commit_timestamp": some(-1),
    "committed_metadata": some("", "m", None, bad=("x" * 5000,)),
    "require_stable": some(False, True),
    "key": some(*GROUPS[:3], bad=("", "t")),
    "key_type": some(0, 0, 1, bad=(2, 3, -1)),
    "coordinator_keys": some(*GROUPS[:3], bad=("", "t")),
    "offset": OFFSETS,
    "replica_id": some(-1, -2),
    "isolation_level": some(0, 1),  # at others Kafka fails
    "current_leader_epoch": some(-1, 0, bad=(5,)),
    "leader_epoch": some(0, bad=(-1, 1, 7)),
    "timestamp": some(-1, -2, -3, 1_700_000_000_000, 1_700_000_000_001, bad=(-4, -5, -6, -7, 0, 1 << 60)),
    "max_num_offsets": some(1, 2, bad=(0, -1)),
    "transactional_ids": some("t1", "t2", bad=("",)),
    "state_filters": some("Ongoing", "Empty", bad=("Nonsense", "")),
    "ListTransactions.state_filters?": some(),
    "producer_id_filters": some(0, 1, -1),
    "ListTransactions.producer_id_filters?": some(),
    "duration_filter": some(-1, 0, 1000),
    "transactional_id_pattern": some(None, "", "t.*", bad=("(", "[")),
    "response_partition_limit": some(2000, 1, 2, bad=(0, -1)),
    "election_type": some(0, 1, bad=(2, -1)),
    "replicas": BROKER_IDS,
    "allow_replication_factor_change": some(True, False),
    "path": some(DIR, DIR, bad=("", "/nowhere", "relative")),
    "feature": some("metadata.version", bad=("no.such", "", "kraft.version")),
    "max_version_level": some(0, -1, 999, bad=(1, 2)),
    "allow_downgrade": some(False, True),
    "upgrade_type": some(1, 2, 3, bad=(0, 4)),
    "broker_id": some(2, 99, -1),
    "controller_id": some(1, 2, 99, -1),
    "voter_id": some(2, 3, -1),
    "voter_directory_id": some(ZERO, b"v" * 16),
    "cluster_id": some(CLUSTER, None, bad=("other",)),
    "AddRaftVoter.Listener.name": some("CONTROLLER", "", "X"),
    "AddRaftVoter.listeners?": some(),
    "host": some("127.0.0.1", "*", bad=("", "10.0.0.0/8", "fe80::/10", "10.0.0/8", "1.2.3.4/33", "x/y")),
    "port": some(1, 9092),
    "ack_when_committed": some(True, False),
    "owner_principal_type": some("User", "", None, bad=("Group",)),
    "owner_principal_name": some("alice", "", None),
    "principal_type": some("User", bad=("Group", "")),
    "principal_name": some("alice", bad=("",)),
    "max_lifetime_ms": some(-1, 1000, bad=(-2, 0)),
    "hmac": some(b"", b"abc"),
    "renew_period_ms": some(-1, 1000),
    "expiry_time_period_ms": some(-1, 1000),
    "entity_type": some("user", "client-id", "ip", bad=("", "group")),
    "entity_name": some(*USERS, None, bad=("",)),
    "match_type": some(0, 1, 2, bad=(3, -1)),
    "match": some(*USERS, None, bad=("",)),
    "strict": some(False, True),
    "AlterClientQuotas.key": some(
        "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", bad=("x", "")
    ),
    "AlterClientQuotas.value": some(1e9, 5e8, 1000000000.0, bad=(0.0, -1.0, 1.5)),
    "remove": some(False, False, True),
    "DescribeUserScramCredentials.name": some(*USERS, bad=("", "nobody")),
    "AlterUserScramCredentials.name": some(*USERS, bad=("", "nobody")),
    "mechanism": some(1, 2, bad=(0, 3, -1)),
    "iterations": some(4096, 8192, bad=(0, -1, 100, 16385)),
    "salt": some(b"salt", b"s" * 20, bad=(b"",)),
    "salted_password": some(b"p" * 32, bad=(b"",)),
    "AlterUserScramCredentials.deletions?": some(),
    "principal": some("User:alice", "User:*", bad=("nobody", "", "User:", ":x")),
    "resource_pattern_type": some(3, 4, bad=(0, 1, 2, 99)),
    "CreateAcls.operation": some(2, 3, 4, bad=(0, 1, 99)),
    "CreateAcls.permission_type": some(2, 3, bad=(0, 1, 99)),
    "CreateAcls.host": some("*", "127.0.0.1", bad=("", "nowhere")),
    "transactional_id": some(None),
    "acks": some(-1),
    "index": INDEXES,
    "records": some(*(bytes(batch.build(RECORDS[:count])) for count in (1, 2, 3))),
}
GROUP_TOUCHES: dict[str, Callable[[Any, World, Random, bool], None]] = {
    "CreateTopics.CreatableTopic": assigned,
    "CreateTopics.CreatableTopicConfig": topic_config,
    "CreatePartitions.CreatePartitionsTopic": counted,
    "DeleteTopics.DeleteTopicState": by_name_or_id,
    "Metadata.MetadataRequestTopic": requested_metadata,
    "AlterConfigs.AlterConfigsResource": altered,
    "IncrementalAlterConfigs.AlterConfigsResource": altered,
    "DescribeConfigs.DescribeConfigsResource": altered,
    "AlterUserScramCredentials.ScramCredentialUpsertion": scram_sized,
    "AlterClientQuotas.EntryData": quota_entity,
    "DescribeClientQuotas.ComponentData": quota_component,
    "CreateAcls.AclCreation": acl,
}
# What is put right in a request that is to be a good one.
TOUCHES: dict[str, Callable[[Any, World, Random, int], None]] = {
    "CreateTopics": apart,
    "OffsetCommit": committed_simply,
    "OffsetFetch": fetched_groups,
    "Metadata": versioned_metadata,
    "AlterUserScramCredentials": not_both,
}
# What is changed in every request, since no two brokers could be compared after it.
ALWAYS_TOUCHES: dict[str, Callable[[Any, World, Random, int], None]] = {
    "AlterConfigs": apart_in_kind,
    "AlterUserScramCredentials": lost_by_none,
    "CreatePartitions": addressable,
    "ElectLeaders": answerable,
    "OffsetCommit": noted_alike,
    "IncrementalAlterConfigs": unknown_alone,
}
NEVER_NULL: frozenset[str] = frozenset()
