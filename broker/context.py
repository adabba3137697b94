"""The context of a request for its handler, and the decorator that makes a function a handler.

Does not use sockets or the router: handlers depend on this module and on the broker's state only.
"""

from __future__ import annotations

import functools
import ipaddress
import struct
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol.acls import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType
from ..protocol.errors import ErrorCode
from .cooperative import FewerCollections
from .errors import Refused
from .metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from .security.authorizer import REFUSAL_TEXTS, REFUSALS

if TYPE_CHECKING:
    from .broker_state import BrokerState
    from .config.values import Config
    from .connection_info import ConnectionInfo
    from .cooperative import Cooperative
    from .groups.coordinator import GroupCoordinator
    from .quotas.meter import Meter
    from .replica.partition import Partition
    from .transactions.coordinator import TransactionCoordinator

Handler = Callable[[Any, "RequestContext"], Coroutine[Any, Any, Any]]
Facts = Callable[[Any, "BrokerState", "ConnectionInfo"], Any]
H = TypeVar("H", bound=Handler)
A = TypeVar("A")
B = TypeVar("B")
STEP_ENTRIES = 1000
"""Entries in one cooperative step of a handler: 10 ms or less."""
CHUNK_ENTRIES = 100
"""Entries after which `RequestContext.mapped` checks whether the step is full."""


def handles(request_class: type, facts: Facts | None = None) -> Callable[[H], H]:
    """Declares a function as the handler of an API, for every declared version; the profile decides which versions are
    served.

    `facts` returns all that the response to a request depends on, without permissions and quotas, besides the request
    and what is constant for its connection: while the facts are equal, the response may be sent again (repeated.py). It
    returns None if another response may be due, or the handler has an effect.

    A handler runs at once up to its first `await`. It may await futures of the running loop only. The next request of
    the connection starts after the handler has returned.
    """

    def label(function: H) -> H:
        function.request_class, function.facts = request_class, facts  # type: ignore[attr-defined]
        return function

    return label


@functools.lru_cache(maxsize=1024)
def _unshortened(host: str) -> str:
    """`0:0:0:0:0:0:0:1` for `::1`: Java writes all zeros of an IPv6 address."""
    address, percent, scope = host.partition("%")
    words = struct.unpack(">8H", ipaddress.IPv6Address(address).packed)
    return ":".join(f"{word:x}" for word in words) + percent + scope


class RequestContext:
    """One request's connection, header fields, broker and permissions."""

    __slots__ = (
        "_collections",
        "_entries_left",
        "api_version",
        "broker",
        "client_id",
        "connection_info",
        "correlation_id",
        "faulted",
        "meter",
    )

    def __init__(
        self,
        broker: BrokerState,
        api_version: int,
        correlation_id: int,
        client_id: str,
        connection_info: ConnectionInfo,
    ) -> None:
        self.broker = broker
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection_info = connection_info
        self.faulted: dict[Any, ErrorCode] | None = None
        """In a Fetch: the error codes that rules of fault injection return, by `PartitionKey`."""
        self.meter: Meter | None = None
        """Charges the request to quotas; None without quotas."""
        self._entries_left = STEP_ENTRIES
        self._collections: FewerCollections | None = None

    @property
    def client_host(self) -> str:
        """The client's address without its port, as Java writes it: the form that tools show and ACLs for hosts use."""
        host = self.connection_info.client_host
        return _unshortened(host) if ":" in host else host

    @property
    def node_id(self) -> int:
        """The node that received the request."""
        return self.connection_info.node_id

    @property
    def config(self) -> Config:
        """The configuration of the node that received the request."""
        return self.broker.config.of(self.connection_info.node_id)

    def partition(self, name: str, index: int, current_leader_epoch: int = -1, any_replica: bool = False) -> Partition:
        """Returns a partition if this node leads it, or with `any_replica` is one of its replicas, in the leader epoch
        that the client sent; -1 skips the check of the epoch.

        Raises Refused with UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER or an error of the epoch, and
        StorageError if the partition is offline.
        """
        partition = self.broker.topics.partition(name, index)
        node_id = self.connection_info.node_id
        if partition.leader != node_id and not (any_replica and partition.is_replica(node_id)):
            partition.check_leader(node_id, current_leader_epoch)
        partition.check_epoch(current_leader_epoch)
        return partition

    @property
    def groups(self) -> GroupCoordinator:
        """The groups that this node coordinates."""
        broker = self.broker
        if broker.lookups.waiting:
            broker.lookups.used(self.connection_info, self.client_id)
        if broker.nodes.is_cluster or broker.awaits_topic(GROUP_OFFSETS_TOPIC):
            return broker.groups.at_node(broker.topics.led_by(self.connection_info.node_id, GROUP_OFFSETS_TOPIC))
        return broker.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transactions that this node coordinates."""
        broker = self.broker
        if broker.nodes.is_cluster or broker.awaits_topic(TRANSACTION_STATE_TOPIC):
            led = broker.topics.led_by(self.connection_info.node_id, TRANSACTION_STATE_TOPIC)
            return broker.transactions.at_node(led)
        return broker.transactions

    @property
    def principal(self) -> str:
        """The principal of the request, as "Type:name"."""
        return self.connection_info.principal

    def allowed(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Returns whether the principal may do an operation on a resource. Without an authorizer everything is
        allowed.
        """
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        return authorizer.allows(self.principal, self.client_host, operation, resource_type, name)

    def check_allowed(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises Refused with Kafka's code and text for the resource type unless `allowed`."""
        if not self.allowed(operation, resource_type, name):
            code = REFUSALS[resource_type]
            raise Refused(code, REFUSAL_TEXTS[code])

    def allowed_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Returns whether the principal may do an operation on any resource of a type."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allows_any(self.principal, self.client_host, operation, resource_type)

    def topic_refusal(self, operation: AclOperation, name: str) -> ErrorCode:
        """Returns the error of an operation on a topic that is not allowed, or NONE. Called before the topic is looked
        up, and the topic need not exist.

        Releases that hide topics return UNKNOWN_TOPIC_OR_PARTITION to clients that may not describe the topic.
        """
        if self.broker.authorizer is None:
            return ErrorCode.NONE
        if self.broker.profile.behaviour.hides_topics:
            is_described = self.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            if is_described and operation is AclOperation.DESCRIBE:
                return ErrorCode.NONE
            if not is_described or self.broker.topics.get(name) is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_allowed = self.allowed(operation, ResourceType.TOPIC, name)
        return ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def check_topic(self, operation: AclOperation, name: str) -> None:
        """Raises Refused with the code of `topic_refusal` unless that is NONE."""
        code = self.topic_refusal(operation, name)
        if code is not ErrorCode.NONE:
            raise Refused(code, REFUSAL_TEXTS.get(code, ""))

    def may_create(self, name: str) -> bool:
        """Returns whether the principal may create a topic of that name."""
        if self.allowed(AclOperation.CREATE, ResourceType.CLUSTER):
            return True
        by_topic = self.broker.profile.behaviour.creates_by_topic
        return by_topic and self.allowed(AclOperation.CREATE, ResourceType.TOPIC, name)

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Returns the operations that the principal may do on a topic, a group or the cluster, as clients receive them
        (KIP-430): bit n is the operation with code n. Without an authorizer these are all of the release.
        """
        found = OPERATIONS[resource_type]
        if resource_type is ResourceType.GROUP and not self.broker.profile.behaviour.group_configs:
            found -= {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
        return sum(1 << operation for operation in found if self.allowed(operation, resource_type, name))

    def mutates(self, partitions: int, *, strict_from: int | None, validate_only: bool = False) -> None:
        """Charges created or deleted partitions to the controller mutation quota (KIP-599).

        From the version `strict_from` on, Refused is raised if the quota is exceeded; earlier versions get a throttle
        time. With None, as when a request only named a missing topic, the partitions are counted and nothing else.
        """
        if self.meter is None or (validate_only and not self.broker.profile.behaviour.validation_is_charged):
            return
        is_strict = strict_from is not None and self.api_version >= strict_from
        controller = self.broker.nodes.controller
        self.meter.mutated(controller, partitions, strict=is_strict, reports_wait=strict_from is not None)

    @property
    def scheduler(self) -> Cooperative:
        """Runs long work outside the handler's own coroutine, charged to quotas like the handler."""
        scheduler = self.broker.scheduler
        return scheduler if self.meter is None else self.meter.timed(scheduler)

    # Cooperative steps

    async def step(self, entries: int = 1) -> None:
        """Counts entries that a handler is about to process, and yields to the event loop before them if the step is
        full.

        An entry is 10 us of work or less; longer work counts as several entries.
        """
        if self.is_due(entries):
            await self.next_step()

    def is_due(self, entries: int = 1) -> bool:
        """Counts entries. Returns whether `next_step` must be awaited before them: `step` without a coroutine for each
        call, for Produce and Fetch.
        """
        self._entries_left -= entries
        return self._entries_left < 0

    @property
    def is_in_steps(self) -> bool:
        """Whether the request was read in steps or its handler has yielded between entries. Its response may be large,
        and state that the handler read before may have changed.
        """
        return self._collections is not None

    def begin_steps(self) -> None:
        """Marks the request as one with many entries."""
        if self._collections is None:
            self._collections = FewerCollections()

    def end_steps(self) -> None:
        """Ends the steps: the response is built, or the connection is closed."""
        if self._collections is not None:
            self._collections.end()
            self._collections = None

    async def next_step(self) -> None:
        """Yields to the event loop. Requests of other connections run meanwhile and may change the broker's state."""
        self.begin_steps()
        await self.broker.scheduler.step()
        self._entries_left = STEP_ENTRIES

    async def mapped(self, function: Callable[[A], B], values: Sequence[A], entries: int = 1) -> list[B]:
        """Returns [function(value) for value in values], made in cooperative steps; each value counts as `entries`."""
        count = 1 + entries * len(values)
        if count <= self._entries_left:
            self._entries_left -= count
            return [function(value) for value in values]
        made: list[B] = []
        size = max(1, CHUNK_ENTRIES // entries)
        for first in range(0, len(values) or 1, size):
            await self.step(size * entries)
            made += map(function, values[first : first + size])
        return made

    def now_ms(self) -> int:
        return self.broker.clock.now_ms()
