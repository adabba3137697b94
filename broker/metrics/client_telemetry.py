"""What clients tell of themselves: who is asked for which metrics, and what came (KIP-714).

Owns the client instances that are remembered and the rules by which they ask and push. What is wanted are the resources
of type CLIENT_METRICS: of all that match a client, the metrics together and the shortest interval. What a client pushes
are OpenTelemetry's MetricsData; they are not read, beyond that they can be decompressed: each push is counted, and told
in the log at level debug. Knows neither requests nor sockets.
"""

from __future__ import annotations

import functools
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from ...protocol.errors import ErrorCode
from ...protocol.primitives import ZERO_UUID
from ...protocol.records.compression import Codec, decompress
from ...protocol.records.errors import DecompressedTooLarge, InvalidRecords
from ..errors import Refused
from ..logs import get_logger
from ..patterns import BadPattern, Pattern

Configs = Mapping[str, Mapping[str, str]]  # name of a resource -> config -> text

ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
DEFAULT_INTERVAL_MS = 300_000
ALL_METRICS = "*"
INSTANCES_MAX = 16_384
FORGOTTEN_AFTER_MS = 60_000  # at least; else after three intervals
RESERVED_IDS = 100  # the lowest, which Kafka keeps for itself
# After these a client is to ask again at once.
ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
EARLY = "The request arrived before the next push interval."


class Asker(NamedTuple):
    """Who a client is, as far as its connection tells; None is not known."""

    client_id: str | None
    software_name: str | None
    software_version: str | None
    host: str
    port: int


class Subscription(NamedTuple):
    """What is wanted of a client: prefixes of names, ALL_METRICS for all, none for none."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int


@dataclass(slots=True)
class Instance:
    """One client, in one of its lives. `version` is that of the configs by which its subscription was made; `may_push`
    says that it asked since it pushed."""

    asker: Asker
    subscription: Subscription
    version: int
    used_ms: int
    asked_ms: int | None = None
    pushed_ms: int | None = None
    may_push: bool = True
    is_ending: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    pushes: int = 0
    push_bytes: int = 0


class Telemetry:
    """The clients' metrics of one broker."""

    def __init__(
        self,
        configs: Callable[[], Configs],
        max_bytes: int,
        new_id: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
    ) -> None:
        """`configs` are those of CLIENT_METRICS resources as they are now; `max_bytes` bounds a push."""
        self._configs = configs
        self._known: dict[str, dict[str, str]] = {}
        self._version = 0
        self._new_id = new_id
        self.max_bytes = max_bytes
        self.instances: dict[bytes, Instance] = {}
        """By id, who was heard of last at the end."""

    def subscribe(self, instance_id: bytes, asker: Asker, now_ms: int) -> tuple[bytes, Subscription]:
        """(id, what is wanted) of a client, which gets an id if it has none. Raises Refused if it asks too soon."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        found = self._instance(instance_id, asker, now_ms)
        before = max((at for at in (found.asked_ms, found.pushed_ms) if at is not None), default=None)
        is_early = before is not None and now_ms - before < found.subscription.interval_ms
        if is_early and found.last_error not in ASK_AGAIN:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EARLY)
        found.asked_ms, found.may_push, found.last_error = now_ms, True, ErrorCode.NONE
        return instance_id, found.subscription

    def push(
        self,
        instance_id: bytes,
        asker: Asker,
        *,
        subscription_id: int,
        is_ending: bool,
        codec: int,
        metrics: bytes,
        now_ms: int,
    ) -> None:
        """Takes what a client pushes. Raises Refused."""
        if int.from_bytes(instance_id) < RESERVED_IDS:
            raise Refused(ErrorCode.INVALID_REQUEST, "No client instance has this id.")
        found = self._instance(instance_id, asker, now_ms)
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
            client_instance_id=id_text(instance_id),
            client_id=asker.client_id,
            software=" ".join(filter(None, (asker.software_name, asker.software_version))),
            push_bytes=size,
            pushes=found.pushes,
        )

    def _check(
        self, found: Instance, subscription_id: int, is_ending: bool, codec: int, metrics: bytes, now_ms: int
    ) -> None:
        if found.is_ending:
            raise Refused(ErrorCode.INVALID_REQUEST, "The client has pushed its last metrics.")
        # The first push may come at any time after the client asked: it waits for a part of the interval, by chance.
        if found.may_push or now_ms - (found.pushed_ms or 0) >= found.subscription.interval_ms:
            found.pushed_ms, found.may_push = now_ms, False
        elif not is_ending:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EARLY)
        if subscription_id != found.subscription.id:
            raise Refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "What is wanted has changed.")
        if codec not in set(Codec):
            raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no codec {codec}.")
        if len(metrics) > self.max_bytes:
            raise Refused(ErrorCode.TELEMETRY_TOO_LARGE, f"More than {self.max_bytes} bytes.")

    def _instance(self, instance_id: bytes, asker: Asker, now_ms: int) -> Instance:
        """A client as it is known, or as a new one: one that was not heard of for long is, and each one whose
        subscription may have changed."""
        self._read_configs()
        found = self.instances.pop(instance_id, None)
        if found is not None and now_ms - found.used_ms > max(FORGOTTEN_AFTER_MS, 3 * found.subscription.interval_ms):
            found = None
        if found is None or found.version != self._version:
            who = asker if found is None else found.asker
            found = Instance(who, self._subscription(instance_id, who), self._version, now_ms)
        found.used_ms = now_ms
        self.instances[instance_id] = found
        while len(self.instances) > INSTANCES_MAX:
            del self.instances[next(iter(self.instances))]
        return found

    def _read_configs(self) -> None:
        configs = self._configs()
        if configs != self._known:
            self._known = {name: dict(of) for name, of in configs.items()}
            self._version += 1

    def _subscription(self, instance_id: bytes, asker: Asker) -> Subscription:
        attributes = {
            "client_instance_id": id_text(instance_id),
            "client_id": asker.client_id,
            "client_software_name": asker.software_name,
            "client_software_version": asker.software_version,
            "client_source_address": asker.host,
            "client_source_port": str(asker.port),
        }
        wanted: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for configs in self._known.values():
            if _matches(configs.get("match", ""), attributes):
                wanted.update(_items(configs.get("metrics", "")))
                interval_ms = min(interval_ms, int(configs.get("interval.ms", DEFAULT_INTERVAL_MS)))
        metrics = (ALL_METRICS,) if ALL_METRICS in wanted else tuple(sorted(wanted))
        return Subscription(_subscription_id(metrics, interval_ms, instance_id), metrics, interval_ms)


def id_text(instance_id: bytes) -> str:
    """An id as Kafka writes one."""
    return urlsafe_b64encode(instance_id).rstrip(b"=").decode()


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]


def _matches(selectors: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether a client has all that is selected: `attribute=pattern`, of all that names it."""
    for selector in _items(selectors):
        name, _, pattern = selector.partition("=")
        value = attributes.get(name.strip())
        try:
            if value is None or not _pattern(pattern.strip()).fullmatch(value):
                return False
        except BadPattern:  # stored by a broker that accepts Java's whole syntax
            return False
    return True


@functools.lru_cache(256)
def _pattern(text: str) -> Pattern:
    return Pattern(text)


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: bytes) -> int:
    """A checksum of what is wanted, another one for each client."""
    high, low = int.from_bytes(instance_id[:8]), int.from_bytes(instance_id[8:])
    mixed = high ^ low
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    number = checksum ^ (mixed >> 32) ^ (mixed & 0xFFFFFFFF)
    return number - (1 << 32) if number >= 1 << 31 else number


def _size(codec: int, metrics: bytes, max_bytes: int) -> int:
    """The bytes of a push when decompressed. Raises Refused for those that cannot be, or are too many."""
    if not metrics:
        return 0
    try:
        return len(decompress(codec, metrics, max_bytes))
    except DecompressedTooLarge as error:
        raise Refused(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from error
    except InvalidRecords as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from error
