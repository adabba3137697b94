"""What a handler is given beside its request, and the label that makes a function a handler.

Knows neither sockets nor the router: handlers depend on this and on the broker's state only.
"""

from __future__ import annotations

import functools
import ipaddress
import struct
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from ..protocol.errors import ErrorCode
from .cooperative import FewerCollections
from .errors import Refused
from .metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from .security.authorizer import ANONYMOUS, REFUSAL_TEXTS, REFUSALS
from .security.operations import bit_field, operations_of

if TYPE_CHECKING:
    from .broker_state import BrokerState
    from .connection_info import ConnectionInfo
    from .cooperative import Cooperative
    from .groups.at_node import GroupsAtNode
    from .groups.coordinator import GroupCoordinator
    from .quotas.meter import Meter
    from .replica.partition import Partition
    from .transactions.at_node import TransactionsAtNode
    from .transactions.coordinator import TransactionCoordinator

Handler = Callable[[Any, "RequestContext"], Coroutine[Any, Any, Any]]
H = TypeVar("H", bound=Handler)
A = TypeVar("A")
B = TypeVar("B")
STEP_ENTRIES = 1000
"""Of one cooperative step of a handler: 10 ms or less."""
CHUNK_ENTRIES = 100
"""`RequestContext.mapped` looks after so many whether the step is full."""


def handles(request_class: type) -> Callable[[H], H]:
    """Labels the handler of an API, in every version that is declared; which of them are served is the profile's.

    A handler runs at once up to its first `await`; what it awaits must be a future of the running loop. The next
    request of the connection begins after the handler has ended.
    """

    def label(function: H) -> H:
        function.request_class = request_class  # type: ignore[attr-defined]
        return function

    return label


@functools.lru_cache(maxsize=1024)
def _unshortened(host: str) -> str:
    """`0:0:0:0:0:0:0:1` for `::1`: Java leaves no zeros of an IPv6 address out."""
    address, percent, scope = host.partition("%")
    words = struct.unpack(">8H", ipaddress.IPv6Address(address).packed)
    return ":".join(f"{word:x}" for word in words) + percent + scope


class RequestContext:
    """One request's surroundings."""

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
        """Of a Fetch: the error codes that are answered on command, by `PartitionKey`."""
        self.meter: Meter | None = None
        """What the request is charged; None while there are no quotas."""
        self._entries_left = STEP_ENTRIES
        self._collections: FewerCollections | None = None

    @property
    def client_host(self) -> str:
        """The client's address without its port, as Java writes it: what tools show and rules for hosts name."""
        host = self.connection_info.client_host
        return _unshortened(host) if ":" in host else host

    @property
    def node_id(self) -> int:
        """The node that was asked."""
        return self.connection_info.node_id

    def partition(self, name: str, index: int, current_leader_epoch: int = -1) -> Partition:
        """A partition that the node which was asked leads, in the epoch that the client knows; -1 does not ask.

        Raises Refused: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, or for the epoch; StorageError if offline.
        """
        partition = self.broker.topics.partition(name, index)
        if partition.leader != self.connection_info.node_id:
            partition.check_leader(self.connection_info.node_id, current_leader_epoch)
        partition.check_epoch(current_leader_epoch)
        return partition

    @property
    def groups(self) -> GroupCoordinator | GroupsAtNode:
        """The groups that the node which was asked coordinates."""
        broker = self.broker
        if broker.lookups.waiting:
            broker.lookups.used(self.connection_info, self.client_id)
        if broker.nodes.is_cluster or broker.awaits_topic(GROUP_OFFSETS_TOPIC):
            return broker.groups_at(self.connection_info.node_id)
        return broker.groups

    @property
    def transactions(self) -> TransactionCoordinator | TransactionsAtNode:
        """The transactions that it coordinates."""
        broker = self.broker
        if broker.nodes.is_cluster or broker.awaits_topic(TRANSACTION_STATE_TOPIC):
            return broker.transactions_at(self.connection_info.node_id)
        return broker.transactions

    @property
    def principal(self) -> str:
        """Who asks, as "Type:name"."""
        return ANONYMOUS

    def allowed(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether whoever asks may do that; everybody may do everything without an authorizer."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        return authorizer.allows(self.principal, self.client_host, operation, resource_type, name)

    def check_allowed(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises Refused with the code of the resource's type, and Kafka's text for it, when `allowed` says no."""
        if not self.allowed(operation, resource_type, name):
            code = REFUSALS[resource_type]
            raise Refused(code, REFUSAL_TEXTS[code])

    def allowed_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether whoever asks may do that with any resource of a type."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allows_any(self.principal, self.client_host, operation, resource_type)

    def topic_refusal(self, operation: AclOperation, name: str) -> ErrorCode:
        """Why whoever asks may not do that with a topic, NONE if it is allowed; asked before the topic is looked for.

        The topic need not be there; releases that hide topics say that it is unknown to those who may not describe it.
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
        """Raises Refused with the code of `topic_refusal`, if there is one."""
        code = self.topic_refusal(operation, name)
        if code is not ErrorCode.NONE:
            raise Refused(code, REFUSAL_TEXTS.get(code, ""))

    def may_create(self, name: str) -> bool:
        """Whether whoever asks may create a topic of that name."""
        if self.allowed(AclOperation.CREATE, ResourceType.CLUSTER):
            return True
        by_topic = self.broker.profile.behaviour.creates_by_topic
        return by_topic and self.allowed(AclOperation.CREATE, ResourceType.TOPIC, name)

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bit field of all that whoever asks may do with a resource; all that there is without an authorizer."""
        found = operations_of(resource_type, self.broker.profile.behaviour)
        if self.broker.authorizer is None:
            return bit_field(found)
        return bit_field(operation for operation in found if self.allowed(operation, resource_type, name))

    def mutates(self, partitions: int, *, strict_from: int | None, validate_only: bool = False) -> None:
        """Partitions are created or deleted, which quotas may limit. Raises Refused where that is too much, from the
        version `strict_from` on (KIP-599); below it that is told and goes on, and with None, as where somebody has only
        named a topic, it is just counted."""
        if self.meter is None or (validate_only and not self.broker.profile.behaviour.validation_is_charged):
            return
        is_strict = strict_from is not None and self.api_version >= strict_from
        self.meter.mutated(partitions, strict=is_strict, tells=strict_from is not None)

    @property
    def scheduler(self) -> Cooperative:
        """For long work that is not done by the handler's own coroutine, and is to be charged all the same."""
        scheduler = self.broker.scheduler
        return scheduler if self.meter is None else self.meter.timed(scheduler)

    # Cooperative steps

    def is_due(self, entries: int = 1) -> bool:
        """Counts entries that a handler is about to work on; whether it has to await `next_step` before them.

        An entry is 10 us of work or less; work that takes longer counts as several.
        """
        self._entries_left -= entries
        return self._entries_left < 0

    @property
    def is_in_steps(self) -> bool:
        """Whether the request was read in steps, or its handler has yielded between entries: its response may be large,
        and what the handler read may have changed."""
        return self._collections is not None

    def begin_steps(self) -> None:
        """From here on the request has many entries."""
        if self._collections is None:
            self._collections = FewerCollections()

    def end_steps(self) -> None:
        """The response is built, or the connection is gone."""
        if self._collections is not None:
            self._collections.end()
            self._collections = None

    async def next_step(self) -> None:
        """Yields to the event loop: requests of other connections run meanwhile, and may change what was read."""
        self.begin_steps()
        await self.broker.scheduler.step()
        self._entries_left = STEP_ENTRIES

    async def mapped(self, function: Callable[[A], B], values: Sequence[A], entries: int = 1) -> list[B]:
        """[function(value) for value in values] in cooperative steps; each value counts as `entries`."""
        count = 1 + entries * len(values)
        if count <= self._entries_left:
            self._entries_left -= count
            return [function(value) for value in values]
        made: list[B] = []
        size = max(1, CHUNK_ENTRIES // entries)
        for first in range(0, len(values) or 1, size):
            if self.is_due(size * entries):
                await self.next_step()
            made += map(function, values[first : first + size])
        return made

    def now_ms(self) -> int:
        """The broker's time."""
        return self.broker.clock.now_ms()
