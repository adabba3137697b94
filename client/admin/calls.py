"""Routing and retries of the admin client's calls.

A call is `send(connection, keys) -> {key: result or error}`, one request for some of the keys; a route maps keys to
connections. Keys with a retriable error are retried with back-off and a new route, until `default_api_timeout_ms` or
the call's `timeout_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from ...protocol.errors import ErrorCode
from ..net.cluster import GROUP, NO_NODE, Cluster
from ..net.connection import Connection
from ..net.errors import ClientClosed, ClientError, ConnectionLost, KafkaError, RequestTimedOut

K = TypeVar("K")
R = TypeVar("R")
Results: TypeAlias = dict[K, R | ClientError]
Send = Callable[[Connection, list[K]], Awaitable[Mapping[K, R | ClientError]]]
Targets = tuple[dict[Connection, list[K]], dict[K, ClientError]]  # keys by connection, and errors of keys without one
Route = Callable[[list[K], Mapping[K, ClientError]], Awaitable[Targets[K]]]
PURPOSE = "control"

# The codes that Kafka's own admin client retries, by kind of call; other codes are results.
CONTROLLER_RETRIES = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
LEADER_RETRIES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
COORDINATOR_RETRIES = COORDINATOR_MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
ANY_RETRIES = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE})


def failure(result: Any) -> KafkaError | None:
    """Returns the error in a response or in a part of one, or None without an error."""
    return KafkaError(result.error_code, getattr(result, "error_message", None) or None) if result.error_code else None


def missing() -> KafkaError:
    """Returns the error of a key that a response does not have."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response does not have this key")


def sound(result: Any | None) -> Any:
    """Returns a response, or a part of one. Raises its error; for None that of a key which the response lacks."""
    if (wrong := missing() if result is None else failure(result)) is not None:
        raise wrong
    return result


async def requested(connection: Connection, request: Any, version: int | None = None) -> Any:
    """Sends a request and returns the response. Raises ClientError, also for the error of the whole response."""
    return sound(await connection.request(request, version))


def checked(results: Mapping[K, R | ClientError]) -> dict[K, R]:
    """Returns the results. Raises the first error among them."""
    found: dict[K, R] = {}
    for key, result in results.items():
        if isinstance(result, ClientError):
            raise result
        found[key] = result
    return found


class Calls:
    """The calls of one admin client."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def timeout_ms(self) -> int:
        """The timeout that a broker gets for a request."""
        return self.cluster.options.request_timeout_ms

    # Routes

    async def at_controller(
        self, keys: Iterable[K], send: Send[K, R], timeout_s: float | None
    ) -> dict[K, R | ClientError]:
        """Sends to the controller, which is looked up again after a failure."""

        async def route(left: list[K], failed: Mapping[K, ClientError]) -> Targets[K]:
            if failed:
                await self.cluster.refresh()
            return {await self.cluster.controller(): left}, {}

        return await self.each(keys, send, route, CONTROLLER_RETRIES, timeout_s)

    async def at_any(
        self,
        keys: Iterable[K],
        send: Send[K, R],
        timeout_s: float | None,
        node_of: Callable[[K], int] = lambda _: NO_NODE,
    ) -> dict[K, R | ClientError]:
        """Sends to any broker, or to the one that `node_of` returns for a key."""

        async def route(left: list[K], failed: Mapping[K, ClientError]) -> Targets[K]:
            by_node: dict[int, list[K]] = {}
            for key in left:
                by_node.setdefault(node_of(key), []).append(key)
            if not by_node.keys() - {NO_NODE} <= self.cluster.nodes.keys():
                await self.cluster.refresh()
            return await self._connected(by_node)

        return await self.each(keys, send, route, ANY_RETRIES | COORDINATOR_RETRIES, timeout_s)

    async def at_leaders(
        self, keys: Iterable[tuple[str, int]], send: Send[tuple[str, int], R], timeout_s: float | None
    ) -> dict[tuple[str, int], R | ClientError]:
        """Sends to the leader of each partition, with new metadata for each attempt."""

        async def route(left: list[tuple[str, int]], failed: Mapping[Any, ClientError]) -> Targets[tuple[str, int]]:
            known = {t.name: t for t in (await self.cluster.metadata({topic for topic, _ in left})).topics}
            by_node: dict[int, list[tuple[str, int]]] = {}
            errors: dict[tuple[str, int], ClientError] = {}
            for where in left:
                topic = known.get(where[0])
                leaders = {p.partition_index: p.leader_id for p in topic.partitions} if topic is not None else {}
                leader = leaders.get(where[1])
                text = f"{where[0]}-{where[1]}"
                code = topic.error_code if topic is not None else 0
                if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    errors[where] = KafkaError(code, text)
                elif leader is None:
                    errors[where] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{text} does not exist")
                elif leader == NO_NODE:
                    errors[where] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{text} has no leader")
                else:
                    by_node.setdefault(leader, []).append(where)
            targets, unreachable = await self._connected(by_node)
            return targets, errors | unreachable

        return await self.each(keys, send, route, LEADER_RETRIES, timeout_s)

    async def at_coordinators(
        self, groups: Iterable[str], send: Send[str, R], timeout_s: float | None, kind: int = GROUP
    ) -> dict[str, R | ClientError]:
        """Sends to the coordinator of each group (or key of `kind`), which is looked up again if it has moved."""
        cluster = self.cluster

        async def route(left: list[str], failed: Mapping[str, ClientError]) -> Targets[str]:
            for group, error in failed.items():
                if isinstance(error, ConnectionLost) or (
                    isinstance(error, KafkaError) and error.code in COORDINATOR_MOVED
                ):
                    cluster.expire_coordinator(group, kind)
            found = await asyncio.gather(*(cluster.coordinator(group, kind) for group in left), return_exceptions=True)
            return _sorted_out(zip(left, found, strict=True))

        return await self.each(groups, send, route, COORDINATOR_RETRIES, timeout_s)

    async def one(
        self,
        send: Callable[[Connection], Awaitable[R]],
        timeout_s: float | None,
        route: Callable[[list[str], Send[str, R], float | None], Awaitable[dict[str, R | ClientError]]] | None = None,
        key: str = "",
    ) -> R:
        """Returns the only result of a call: of one to any broker, or by a route such as `at_coordinators` with the
        group as the key. Raises ClientError."""

        async def send_one(connection: Connection, keys: list[str]) -> dict[str, R]:
            return {key: await send(connection)}

        return checked(await (route or self.at_any)([key], send_one, timeout_s))[key]

    async def _connected(self, by_node: Mapping[int, list[K]]) -> Targets[K]:
        """Opens the connections to nodes concurrently; NO_NODE means any broker."""
        cluster = self.cluster
        found = await asyncio.gather(
            *(
                cluster.any_connection() if node_id == NO_NODE else cluster.connection(node_id, PURPOSE)
                for node_id in by_node
            ),
            return_exceptions=True,
        )
        return _sorted_out(
            (key, outcome) for keys, outcome in zip(by_node.values(), found, strict=True) for key in keys
        )

    # Attempts

    async def each(
        self,
        keys: Iterable[K],
        send: Send[K, R],
        route: Route[K],
        retried: frozenset[ErrorCode],
        timeout_s: float | None,
    ) -> dict[K, R | ClientError]:
        """Returns the result or error of each key. Raises only ClientClosed."""
        loop = asyncio.get_running_loop()
        options = self.cluster.options
        seconds = options.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline = loop.time() + seconds
        left: list[K] = list(dict.fromkeys(keys))
        order = list(left)
        results: dict[K, R | ClientError] = {}
        failed: dict[K, ClientError] = {}
        attempt = 0
        while left:
            outcomes: dict[K, R | ClientError] = {}
            is_late = False
            try:
                async with asyncio.timeout_at(deadline):
                    await self._try(left, failed, send, route, outcomes)
            except TimeoutError:
                is_late = True
            except ClientClosed:
                raise
            except ClientError as error:
                outcomes |= dict.fromkeys(left, error)
            for key, outcome in outcomes.items():
                if isinstance(outcome, ClientClosed):
                    raise outcome
                if _may_retry(outcome, retried):
                    failed[key] = outcome  # type: ignore[assignment]
                else:
                    results[key] = outcome
            left = [key for key in left if key not in results]
            attempt += 1
            delay = self.cluster.retry_backoff_s(attempt)
            if is_late or loop.time() + delay >= deadline:
                break
            if left:
                await asyncio.sleep(delay)
        for key in left:
            results[key] = failed.get(key) or RequestTimedOut(f"no response within {seconds:g} s")
        return {key: results[key] for key in order}

    async def _try(
        self,
        left: list[K],
        failed: Mapping[K, ClientError],
        send: Send[K, R],
        route: Route[K],
        outcomes: dict[K, R | ClientError],
    ) -> None:
        """Makes one attempt for all remaining keys; stores what arrives in `outcomes`, also if it is cancelled."""
        targets, errors = await route(left, failed)
        outcomes |= errors

        async def call(connection: Connection, keys: list[K]) -> None:
            try:
                found = await send(connection, keys)
            except ClientError as error:
                outcomes.update(dict.fromkeys(keys, error))
                return
            outcomes.update({key: found.get(key, missing()) for key in keys})

        tasks = [asyncio.ensure_future(call(connection, keys)) for connection, keys in targets.items()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def node_of(self, connection: Connection) -> int:
        """Returns the node id of a connection's broker, or -1."""
        address = connection.host, connection.port
        return next((n.node_id for n in self.cluster.nodes.values() if (n.host, n.port) == address), -1)

    async def nodes(self, timeout_s: float | None) -> list[int]:
        """Fetches the node ids of the brokers. Raises ClientError."""
        await self.one(lambda _: self.cluster.metadata([]), timeout_s)
        return sorted(self.cluster.nodes)


class Caller:
    """The base class of the calls on one subject, which `Admin` combines."""

    _calls: Calls


def _sorted_out(found: Iterable[tuple[K, Connection | BaseException]]) -> Targets[K]:
    """Returns keys by connection, and errors by key. Raises errors other than ClientError."""
    targets: dict[Connection, list[K]] = {}
    errors: dict[K, ClientError] = {}
    for key, outcome in found:
        if isinstance(outcome, ClientError):
            errors[key] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            targets.setdefault(outcome, []).append(key)
    return targets, errors


def _may_retry(outcome: Any, retried: frozenset[ErrorCode]) -> bool:
    if isinstance(outcome, KafkaError):
        return outcome.code in retried
    return isinstance(outcome, ConnectionLost)
