"""The counters that requests touch: by API, and by topic.

Owns what is added up while requests are served, as plain numbers, since that is done for each of them. There is one
`RequestMetrics` for as long as the control plane is served: a reset or a restore of the broker's state takes nothing
back. Times are of one timer, in ns.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.errors import ErrorCode
from ...protocol.records import formats
from ...protocol.records.layout import CODEC_AT, LEGACY_ATTRIBUTES_AT, MAGIC_AT
from ...protocol.schema import Versions
from .errors import Note, code_of, noting

if TYPE_CHECKING:
    from ...protocol.records.rules import Rules
    from ...storage.log.results import Appended
    from ..metadata.topics import Topics
    from ..replica.partition import Partition

BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of the times of requests, in seconds."""
_BOUNDS_NS = tuple(round(bound * 1e9) for bound in BOUNDS)
_HEAD_BYTES = 23
# What Kafka does not count as a failed request to produce or to fetch: the client's own doing, or told elsewhere.
_EXPECTED_IN_PRODUCE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
_EXPECTED_IN_FETCH = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    )
)


class Histogram:
    """How often each time was seen: `buckets` has one count for each bound, and a last one for what is above."""

    __slots__ = ("bounds", "bounds_ns", "buckets", "sum_ns")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        """`bounds` are in seconds, rising."""
        self.bounds = bounds
        self.bounds_ns = _BOUNDS_NS if bounds is BOUNDS else tuple(round(bound * 1e9) for bound in bounds)
        self.buckets = [0] * (len(bounds) + 1)
        self.sum_ns = 0

    def add(self, ns: int) -> None:
        """One time."""
        self.buckets[bisect_left(self.bounds_ns, ns)] += 1
        self.sum_ns += ns


class Api(Protocol):
    """An API as the router has it."""

    @property
    def api_key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> Versions: ...


class ApiCounters:
    """Of one API."""

    __slots__ = ("errors", "name", "note_errors", "request_bytes", "response_bytes", "time", "versions")

    def __init__(self, api: Api) -> None:
        self.name = api.name
        self.versions = [0] * (api.versions.last + 1)
        """How many requests, by version."""
        self.time = Histogram()
        self.request_bytes = 0
        self.response_bytes = 0
        self.errors: dict[int, int] = {}
        self.note_errors: Note | None = None


class TopicCounters:
    """Of one topic, or of several together. The names are those of Kafka's BrokerTopicMetrics."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "fetch_conversions",
        "fetch_failures",
        "fetch_requests",
        "messages_in",
        "produce_conversions",
        "produce_failures",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = self.bytes_rejected = 0
        self.produce_requests = self.produce_failures = self.produce_conversions = 0
        self.fetch_requests = self.fetch_failures = self.fetch_conversions = 0

    def appended(self, size: int, appended: Appended, is_converted: bool) -> None:
        """Records of so many bytes are stored; what was stored before counts once more, as in Kafka."""
        self.produce_requests += 1
        base_offset = appended.base_offset
        if base_offset < 0:  # nothing was left of them
            return
        messages = appended.last_offset - base_offset + 1
        self.messages_in += messages
        self.bytes_in += size
        if is_converted and not appended.duplicate:
            self.produce_conversions += messages

    def add(self, other: TopicCounters) -> None:
        """Adds up what another one has."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Sent:
    """One partition's records of a Produce request, as far as they count: the request's memory is used again while the
    append is under way."""

    __slots__ = ("_counters", "_is_converted", "_size")

    def __init__(self, counters: TopicCounters, size: int, is_converted: bool) -> None:
        self._counters = counters
        self._size = size
        self._is_converted = is_converted

    def appended(self, appended: Appended) -> None:
        """They are stored."""
        self._counters.appended(self._size, appended, self._is_converted)

    def refused(self, code: int) -> None:
        """They are not."""
        counters = self._counters
        counters.produce_requests += 1
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            counters.bytes_rejected += self._size
        if code not in _EXPECTED_IN_PRODUCE:
            counters.produce_failures += 1


class TopicMetrics:
    """What went into topics and out of them: those that there are, by name, and the others together."""

    def __init__(self) -> None:
        self.by_name: dict[str, TopicCounters] = {}
        self.gone = TopicCounters()
        """Of topics that were deleted."""

    def get(self, name: str) -> TopicCounters | None:
        """Of one topic; None while nothing happened to it."""
        return self.by_name.get(name)

    def of(self, name: str) -> TopicCounters:
        """Of one topic that there is."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = TopicCounters()
        return found

    def all(self) -> TopicCounters:
        """Of all topics that there are, or were."""
        found = TopicCounters()
        found.add(self.gone)
        for counters in self.by_name.values():
            found.add(counters)
        return found

    def forget(self, there: Callable[[str], object]) -> None:
        """Takes those together that are not `there` any more."""
        for name in [name for name in self.by_name if there(name) is None]:
            self.gone.add(self.by_name.pop(name))

    # What handlers call

    def appended(self, partition: Partition, records: bytes | bytearray | memoryview, appended: Appended) -> None:
        """What a client sent for a partition is stored, at once."""
        counters = self.by_name.get(partition.topic) or self.of(partition.topic)
        counters.appended(len(records), appended, _is_converted(records, partition.log.config.rules))

    def sent(self, partition: Partition, records: bytes | bytearray | memoryview) -> Sent:
        """What a client sends for a partition that is not offline, where it is not appended at once."""
        is_converted = _is_converted(records, partition.log.config.rules)
        return Sent(self.of(partition.topic), len(records), is_converted)

    def fetched(self, answers: Iterable[tuple[Any, Any]], topics: Topics) -> None:
        """What a Fetch is answered, as (`PartitionKey`, PartitionData)."""
        for key, answer in answers:
            name = key.topic
            if not name:
                topic = topics.by_id(key.topic_id)
                name = "" if topic is None else topic.name
            counters = self.by_name.get(name)
            if counters is None:
                if topics.get(name) is None:
                    continue
                counters = self.of(name)
            counters.fetch_requests += 1
            if answer.records:
                counters.bytes_out += len(answer.records)
            if answer.error_code not in _EXPECTED_IN_FETCH:
                counters.fetch_failures += 1

    def converted_down(self, name: str, records: bytes) -> None:
        """A Fetch is answered in an older format than a topic has."""
        self.of(name).fetch_conversions += sum(1 for _ in formats.headers(records))


def _is_converted(records: bytes | bytearray | memoryview, rules: Rules) -> bool:
    """Whether a topic stores records in another format, or with another codec, by the first entry of them."""
    if len(records) < _HEAD_BYTES:
        return False
    magic = records[MAGIC_AT]
    if magic != rules.target_magic:
        return True
    codec = rules.compression
    return codec is not None and codec != records[CODEC_AT if magic == 2 else LEGACY_ATTRIBUTES_AT] & 7


class RequestMetrics:
    """See the module. `timer` tells the time in ns, from any beginning."""

    def __init__(self, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.timer = timer
        self.apis: dict[int, ApiCounters] = {}
        self.topics = TopicMetrics()
        self.opened: dict[str, int] = {}
        """Connections that were accepted, by listener."""
        self.closed: dict[str, int] = {}
        self.violations = 0
        """Connections that were closed for what came."""

    def note(
        self,
        api: Api,
        api_version: int,
        request_bytes: int,
        response_bytes: int,
        duration_ns: int,
        response: Any,
        error: Exception | None = None,
    ) -> None:
        """A request is answered, with that response; `error` is what its handler raised, None is no answer at all."""
        counted = self.apis.get(api.api_key)
        if counted is None:
            counted = self.apis[api.api_key] = ApiCounters(api)
        counted.versions[api_version] += 1
        counted.request_bytes += request_bytes
        counted.response_bytes += response_bytes
        time = counted.time
        time.buckets[bisect_left(_BOUNDS_NS, duration_ns)] += 1
        time.sum_ns += duration_ns
        if response is not None:
            note = counted.note_errors
            if note is None:
                note = counted.note_errors = noting(response.__class__)
            note(response, counted.errors)
        elif error is not None:
            code = code_of(error)
            counted.errors[code] = counted.errors.get(code, 0) + 1

    def connected(self, listener: str) -> None:
        """A connection was accepted."""
        self.opened[listener] = self.opened.get(listener, 0) + 1

    def disconnected(self, listener: str) -> None:
        """One is gone."""
        self.closed[listener] = self.closed.get(listener, 0) + 1
