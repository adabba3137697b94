"""Client metrics: subscriptions and pushes (KIP-714).

Owns the remembered client instances and the rules for their requests. Subscriptions are the resources of type
CLIENT_METRICS: a client gets the union of the metrics of all that match it, at the shortest interval. Pushed metrics
are OpenTelemetry MetricsData; they are decompressed but not parsed: each push is counted, and logged at level debug.
Depends neither on requests nor on sockets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from ...protocol.errors import ErrorCode
from ...protocol.frozen import slotted
from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from ...protocol.records.checksum import crc32c
from ...protocol.records.compression import Codec, decompress
from ...protocol.records.errors import DecompressedTooLarge, InvalidRecords
from ...storage.format.partition_metadata import encode_id
from ...storage.io import random_ids
from ..errors import Refused
from ..logs import get_logger
from ..patterns import BadPattern, Pattern

Configs = Mapping[str, Mapping[str, str]]  # name of a resource -> config -> text

ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
DEFAULT_INTERVAL_MS = 300_000
ALL_METRICS = "*"
INSTANCES_MAX = 16_384
FORGOTTEN_AFTER_MS = 60_000  # at least; otherwise three intervals
RESERVED_IDS = 100  # lowest ids, reserved by Kafka
# After one of these errors a client may request its subscription again at once.
RETRY_AT_ONCE = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
EARLY = "The request arrived before the next push interval."


class ClientInfo(NamedTuple):
    """A client, as described by its connection; None for unknown values."""

    client_id: str | None
    software_name: str | None
    software_version: str | None
    host: str
    port: int


class Subscription(NamedTuple):
    """Metrics requested from a client: name prefixes, ALL_METRICS for all, empty for none."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int


@slotted
class Instance:
    """A client instance.

    `version` is the version of the configs that gave its subscription; `may_push` is set by each subscription request
    until the next push.
    """

    client: ClientInfo
    subscription: Subscription
    version: int
    used_ms: int
    subscribed_ms: int | None = None
    pushed_ms: int | None = None
    may_push: bool = True
    is_ending: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    pushes: int = 0
    push_bytes: int = 0


class Telemetry:
    """Subscriptions and client instances of one broker."""

    def __init__(
        self,
        configs: Callable[[], Configs],
        max_bytes: int,
        new_id: Callable[[], bytes] = lambda: random_ids.uuid4(),
    ) -> None:
        """`configs` returns the current configs of CLIENT_METRICS resources; `max_bytes` limits a push."""
        self._configs = configs
        self._known: dict[str, dict[str, str]] = {}
        self._version = 0
        self._new_id = new_id
        self.max_bytes = max_bytes
        self.instances: dict[bytes, Instance] = {}
        """Client instances by id, the most recently used last."""

    def subscribe(self, instance_id: bytes, client: ClientInfo, now_ms: int) -> tuple[bytes, Subscription]:
        """Returns (instance id, subscription) of a client; assigns an id if it has none. Raises Refused for a request
        before the interval has passed.
        """
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        found = self._instance(instance_id, client, now_ms)
        before = max((at for at in (found.subscribed_ms, found.pushed_ms) if at is not None), default=None)
        is_early = before is not None and now_ms - before < found.subscription.interval_ms
        if is_early and found.last_error not in RETRY_AT_ONCE:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EARLY)
        found.subscribed_ms, found.may_push, found.last_error = now_ms, True, ErrorCode.NONE
        return instance_id, found.subscription

    def push(
        self,
        instance_id: bytes,
        client: ClientInfo,
        *,
        subscription_id: int,
        is_ending: bool,
        codec: int,
        metrics: bytes,
        now_ms: int,
    ) -> None:
        """Accepts pushed metrics. Raises Refused."""
        if int.from_bytes(instance_id) < RESERVED_IDS:
            raise Refused(ErrorCode.INVALID_REQUEST, "Invalid client instance id: ids below 100 are reserved.")
        found = self._instance(instance_id, client, now_ms)
        try:
            self._check(found, subscription_id, is_ending, codec, metrics, now_ms)
            size = _size(codec, metrics, self.max_bytes)
        except Refused as refused:
            found.last_error = refused.code
            raise
        finally:
            found.is_ending = is_ending
        found.last_error = ErrorCode.NONE
        if not metrics:
            return
        found.pushes += 1
        found.push_bytes += size
        get_logger().debug(
            "client metrics received",
            client_instance_id=encode_id(instance_id),
            client_id=client.client_id,
            software=" ".join(filter(None, (client.software_name, client.software_version))),
            push_bytes=size,
            pushes=found.pushes,
        )

    def _check(
        self, found: Instance, subscription_id: int, is_ending: bool, codec: int, metrics: bytes, now_ms: int
    ) -> None:
        if found.is_ending:
            raise Refused(
                ErrorCode.INVALID_REQUEST, "Client instance is terminating: no push is accepted after the last one."
            )
        # The first push may come at any time after the subscription: clients wait for a random part of the interval.
        if found.may_push or now_ms - (found.pushed_ms or 0) >= found.subscription.interval_ms:
            found.pushed_ms, found.may_push = now_ms, False
        elif not is_ending:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EARLY)
        if subscription_id != found.subscription.id:
            raise Refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "Unknown subscription id: the subscription has changed.")
        if codec not in set(Codec):
            raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type {codec}.")
        if len(metrics) > self.max_bytes:
            raise Refused(
                ErrorCode.TELEMETRY_TOO_LARGE, f"{len(metrics)} bytes of metrics exceed the limit of {self.max_bytes}."
            )

    def _instance(self, instance_id: bytes, client: ClientInfo, now_ms: int) -> Instance:
        """Returns the instance, or a new one if it expired or its subscription may have changed."""
        configs = self._configs()
        if configs != self._known:
            self._known = {name: dict(of) for name, of in configs.items()}
            self._version += 1
        found = self.instances.pop(instance_id, None)
        if found is not None and now_ms - found.used_ms > max(FORGOTTEN_AFTER_MS, 3 * found.subscription.interval_ms):
            found = None
        if found is None or found.version != self._version:
            who = client if found is None else found.client
            found = Instance(who, self._subscription(instance_id, who), self._version, now_ms)
        found.used_ms = now_ms
        self.instances[instance_id] = found
        while len(self.instances) > INSTANCES_MAX:
            del self.instances[next(iter(self.instances))]
        return found

    def _subscription(self, instance_id: bytes, client: ClientInfo) -> Subscription:
        attributes = {
            "client_instance_id": encode_id(instance_id),
            "client_id": client.client_id,
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.host,
            "client_source_port": str(client.port),
        }
        wanted: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for configs in self._known.values():
            if _matches(configs.get("match", ""), attributes):
                wanted.update(_items(configs.get("metrics", "")))
                interval_ms = min(interval_ms, int(configs.get("interval.ms", DEFAULT_INTERVAL_MS)))
        metrics = (ALL_METRICS,) if ALL_METRICS in wanted else tuple(sorted(wanted))
        return Subscription(_subscription_id(metrics, interval_ms, instance_id), metrics, interval_ms)


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]


def _matches(selectors: str, attributes: Mapping[str, str | None]) -> bool:
    """Returns whether the client matches all selectors `attribute=pattern`; a pattern matches the whole value."""
    for selector in _items(selectors):
        name, _, pattern = selector.partition("=")
        value = attributes.get(name.strip())
        try:
            if value is None or not _pattern(pattern.strip()).fullmatch(value):
                return False
        except BadPattern:  # stored by a broker with Java's full syntax
            return False
    return True


_pattern = functools.lru_cache(256)(Pattern)


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: bytes) -> int:
    """Returns a checksum of the subscription, different for each client."""
    high, low = int.from_bytes(instance_id[:8]), int.from_bytes(instance_id[8:])
    mixed = high ^ low
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    number = checksum ^ (mixed >> 32) ^ (mixed & 0xFFFFFFFF)
    return number - (1 << 32) if number >= 1 << 31 else number


def _size(codec: int, metrics: bytes, max_bytes: int) -> int:
    """Returns the decompressed size of a push. Raises Refused for undecodable or too large data."""
    if not metrics:
        return 0
    try:
        return len(decompress(codec, metrics, max_bytes))
    except DecompressedTooLarge as error:
        raise Refused(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from error
    except InvalidRecords as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from error
