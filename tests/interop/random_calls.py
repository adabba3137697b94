"""Random admin calls: requests of any API in any version, with values that exist on a running broker.

A request is built field by field from its declaration; each field takes its values from a pool of valid and invalid
values for the broker's present state. Pools are found by the field's name, in `call_values.POOLS`; a field without one
is an error, so that no new field is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from call_values import ALWAYS_TOUCHES, GROUP_TOUCHES, NEVER_NULL, POOLS, TOUCHES, World

from ottla.protocol.primitives import Array, Nullable
from ottla.protocol.schema import Group, group_of, spec
from ottla_testing.protocol.messages import MESSAGES

# How often a wrong value is taken where there is one, for a whole call.
CARELESS = (0.0, 0.0, 0.0, 0.1, 0.3)
# API -> how often it is called, beside those that are called once in a while.
WEIGHTS = {
    "CreateTopics": 5,
    "DeleteTopics": 3,
    "CreatePartitions": 3,
    "Metadata": 3,
    "DescribeConfigs": 4,
    "AlterConfigs": 3,
    "IncrementalAlterConfigs": 4,
    "OffsetCommit": 3,
    "OffsetFetch": 3,
    "OffsetDelete": 2,
    "DeleteGroups": 2,
    "DescribeGroups": 2,
    "ListGroups": 2,
    "Produce": 3,
    "DeleteRecords": 2,
    "ListOffsets": 3,
    "CreateAcls": 3,
    "DescribeAcls": 2,
    "DeleteAcls": 2,
    "AlterClientQuotas": 3,
    "DescribeClientQuotas": 3,
    "AlterUserScramCredentials": 2,
    "DescribeUserScramCredentials": 2,
}
OTHERS = (
    "FindCoordinator DescribeLogDirs AlterReplicaLogDirs ElectLeaders AlterPartitionReassignments "
    "ListPartitionReassignments DescribeProducers DescribeTransactions ListTransactions DescribeCluster DescribeQuorum "
    "UpdateFeatures UnregisterBroker UnregisterController ListConfigResources DescribeTopicPartitions "
    "CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken OffsetForLeaderEpoch "
    "RemoveRaftVoter"  # AddRaftVoter with an unused address makes the controller of Kafka 4.3 exit
).split()
# APIs that change the broker unless the response has an error.
MUTATING = frozenset(
    """CreateTopics DeleteTopics CreatePartitions AlterConfigs IncrementalAlterConfigs OffsetCommit OffsetDelete
    DeleteGroups Produce DeleteRecords CreateAcls DeleteAcls AlterClientQuotas AlterUserScramCredentials
    AlterReplicaLogDirs ElectLeaders AlterPartitionReassignments UpdateFeatures UnregisterBroker UnregisterController
    CreateDelegationToken RenewDelegationToken ExpireDelegationToken AddRaftVoter RemoveRaftVoter""".split()
)
# Names that may occur twice in a request. Elsewhere Kafka's tables drop duplicates, or its controller never responds.
TWICE = frozenset(
    """CreateTopics.topics DeleteTopics.topics DeleteTopics.topic_names CreatePartitions.topics Metadata.topics
    IncrementalAlterConfigs.resources IncrementalAlterConfigs.configs DescribeConfigs.resources DescribeGroups.groups
    DeleteGroups.groups_names CreateAcls.creations DeleteAcls.filters DescribeClientQuotas.components
    AlterClientQuotas.entries AlterClientQuotas.ops AlterUserScramCredentials.upsertions
    AlterUserScramCredentials.deletions DescribeUserScramCredentials.users ListGroups.states_filter
    DescribeTransactions.transactional_ids""".split()
)
# The fields that identify elements of a list.
NAMES = (
    "name topic topic_name topic_id partition_index partition index group_id resource_type resource_name entity_type "
    "path"
).split()


# What cannot be written, or is not compared, without.
ALWAYS_PUT_RIGHT = frozenset({"CreateTopics", "Metadata"})


class Call(NamedTuple):
    """One request; `api` is the name without Request."""

    api: str
    version: int
    request: Any


class Calls:
    """A stream of calls that depends on one seed and on the world."""

    def __init__(self, random: Random, ranges: dict[int, tuple[int, int]], only: frozenset[str] = frozenset()) -> None:
        """`ranges` are the versions that both brokers advertise, key -> first and last; `only` restricts the APIs."""
        self._random = random
        self._ranges = {}
        for name in (*WEIGHTS, *OTHERS):
            cls = MESSAGES.get(f"{name}Request")
            if cls is not None and spec(cls).api_key in ranges and (not only or name in only):
                first, last = ranges[spec(cls).api_key]
                first = 3 if name == "Produce" else first  # the first with batches as they are made here
                self._ranges[name] = max(first, spec(cls).versions.first), min(last, spec(cls).versions.last)
        self.apis = list(self._ranges)
        self._weights = [WEIGHTS.get(name, 1) for name in self.apis]

    def next(self, world: World) -> Call:
        """Returns the next call, for a broker with the contents of `world`."""
        (api,) = self._random.choices(self.apis, self._weights)
        first, last = self._ranges[api]
        if api in ("OffsetCommit", "OffsetFetch") and not world.with_controller:
            first = max(1, first)  # the offsets of version 0 are ZooKeeper's, and nothing of others' there
        version = self._random.choice([last, self._random.randint(first, last)])
        request = Making(self._random, world, api, version, self._random.choice(CARELESS)).request()
        return Call(api, version, request)


class Making:
    """One request in the making."""

    def __init__(self, random: Random, world: World, api: str, version: int, careless: float) -> None:
        self._random = random
        self._world = world
        self._api = api
        self._version = version
        self._careless = careless

    def request(self) -> Any:
        cls = MESSAGES[f"{self._api}Request"]
        made = self._value(group_of(cls, self._version), "")
        touch = TOUCHES.get(self._api)
        if touch is not None and (self._api in ALWAYS_PUT_RIGHT or not self._wrong()):
            touch(made, self._world, self._random, self._version)
        if self._api in ALWAYS_TOUCHES:
            ALWAYS_TOUCHES[self._api](made, self._world, self._random, self._version)
        return made

    def _wrong(self) -> bool:
        return self._random.random() < self._careless

    def _pool(self, name: str, group: str) -> Callable[[World, Random], tuple[Any, Any]]:
        for key in (f"{self._api}.{group}.{name}", f"{self._api}.{name}", name):
            if key in POOLS:
                return POOLS[key]
        raise KeyError(f"no pool of values for {self._api}.{group}.{name}")

    def _value(self, codec: Any, name: str, group: str = "") -> Any:
        if isinstance(codec, Group):
            return self._group(codec)
        if isinstance(codec, Nullable):
            return None if self._random.random() < 0.5 else self._value(codec.inner, name, group)
        if isinstance(codec, Array):
            may_be_null = codec.length.nullable and f"{self._api}.{name}" not in NEVER_NULL
            if may_be_null and self._random.random() < 0.15:
                return None
            return self._list(codec, name, group)
        good, bad = self._pool(name, group)(self._world, self._random)
        return self._random.choice(bad if bad and (self._wrong() or not good) else good)

    def _list(self, codec: Any, name: str, group: str) -> list[Any]:
        if not isinstance(codec.item, Group) and f"{self._api}.{name}#" in POOLS:  # whole lists have a pool
            good, bad = self._pool(f"{name}#", group)(self._world, self._random)
            return list(self._random.choice(bad if bad and self._wrong() else good))
        count = self._random.choice([0, 1, 2, 5]) if self._wrong() else self._random.choice([1, 1, 1, 2, 3])
        if f"{self._api}.{name}?" in POOLS and self._random.random() < 0.7:  # mostly left empty
            count = 0
        made = [self._value(codec.item, name, group) for _ in range(count)]
        if f"{self._api}.{name}" not in TWICE:
            return list({_named(one): one for one in made}.values())
        if made and self._wrong():
            made.append(made[0])
        return made

    def _group(self, codec: Group) -> Any:
        kind = codec.cls.__name__
        values = {name: self._value(item, name, kind) for name, item in codec.plan}
        for name, item in (codec.tags or {}).values():
            if not codec.cls._fields[name].extension:
                values[name] = self._value(item, name, kind)
        made = codec.cls(**values)
        touch = GROUP_TOUCHES.get(f"{self._api}.{kind}")
        if touch is not None:
            touch(made, self._world, self._random, self._wrong())
        return made


def _named(one: Any) -> str:
    fields = getattr(one, "_fields", None)
    return repr(one if fields is None else [getattr(one, name) for name in NAMES if name in fields])
