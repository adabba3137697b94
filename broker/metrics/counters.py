"""Counters that requests increment, by API and by topic.

Plain numbers, because they are updated for every request. One `RequestMetrics` lives as long as the control plane: a
reset or a restore of the broker's state does not reset the counters. Times are in ns, by one timer.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.errors import ErrorCode
from ...protocol.frozen import slotted
from ...protocol.records import formats
from ...protocol.records.layout import CODEC_AT, LEGACY_ATTRIBUTES_AT, MAGIC_AT
from ...protocol.schema import Versions
from .errors import Note, code_of, noting
from .histogram import SECONDS_NS, Histogram

if TYPE_CHECKING:
    from ...protocol.records.rules import Rules
    from ...storage.log.results import Appended
    from ..metadata.topics import Topics
    from ..replica.partition import Partition

_HEAD_BYTES = 23
# Errors that Kafka does not count as failed Produce or Fetch requests: client errors, or errors with a metric of their
# own.
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


class Api(Protocol):
    """The attributes of a router's API that are counted."""

    @property
    def api_key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> Versions: ...


class ApiCounters:
    __slots__ = ("errors", "name", "note_errors", "request_bytes", "response_bytes", "time", "versions")

    def __init__(self, api: Api) -> None:
        self.name = api.name
        self.versions = [0] * (api.versions.last + 1)
        """Number of requests by version."""
        self.time = Histogram()
        self.request_bytes = 0
        self.response_bytes = 0
        self.errors: dict[int, int] = {}
        self.note_errors: Note | None = None


@slotted
class TopicCounters:
    """Counters of a topic, or the sum over several. Names follow Kafka's BrokerTopicMetrics."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    produce_requests: int = 0
    produce_failures: int = 0
    produce_conversions: int = 0
    fetch_requests: int = 0
    fetch_failures: int = 0
    fetch_conversions: int = 0
    share_fetch_requests: int = 0
    share_fetch_failures: int = 0
    share_acknowledgement_requests: int = 0
    share_acknowledgement_failures: int = 0

    def appended(self, size: int, appended: Appended, is_converted: bool) -> None:
        """Counts an append of `size` bytes; a duplicate batch counts again, as in Kafka."""
        self.produce_requests += 1
        base_offset = appended.base_offset
        if base_offset < 0:  # compaction left no records
            return
        messages = appended.last_offset - base_offset + 1
        self.messages_in += messages
        self.bytes_in += size
        if is_converted and not appended.duplicate:
            self.produce_conversions += messages

    def took(self, size: int, messages: int) -> None:
        """Counts a plain batch of `size` bytes."""
        self.produce_requests += 1
        self.messages_in += messages
        self.bytes_in += size

    def add(self, other: TopicCounters) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@slotted
class Sent:
    """The records of one partition in a Produce request, reduced to what is counted: the request's buffer is reused
    during the append.
    """

    counters: TopicCounters
    size: int
    is_converted: bool

    def appended(self, appended: Appended) -> None:
        self.counters.appended(self.size, appended, self.is_converted)

    def refused(self, code: int) -> None:
        counters = self.counters
        counters.produce_requests += 1
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            counters.bytes_rejected += self.size
        if code not in _EXPECTED_IN_PRODUCE:
            counters.produce_failures += 1


class TopicMetrics:
    """Traffic counters: of each existing topic by name, and the sum over deleted topics."""

    def __init__(self) -> None:
        self.by_name: dict[str, TopicCounters] = {}
        self.gone = TopicCounters()
        """Sum over deleted topics."""

    def get(self, name: str) -> TopicCounters | None:
        """Returns the counters of a topic; None before its first request."""
        return self.by_name.get(name)

    def of(self, name: str) -> TopicCounters:
        """Returns the counters of an existing topic."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = TopicCounters()
        return found

    def all(self) -> TopicCounters:
        """Returns the sum over all topics, deleted ones included."""
        found = TopicCounters()
        for counters in (self.gone, *self.by_name.values()):
            found.add(counters)
        return found

    def forget(self, there: Callable[[str], object]) -> None:
        """Moves topics for which `there` returns None to the sum over deleted topics."""
        for name in [name for name in self.by_name if there(name) is None]:
            self.gone.add(self.by_name.pop(name))

    # --- called by handlers

    def appended(self, partition: Partition, records: bytes | bytearray | memoryview, appended: Appended) -> None:
        """Counts records that were appended at once."""
        counters = self.by_name.get(partition.topic) or self.of(partition.topic)
        counters.appended(len(records), appended, _is_converted(records, partition.log.config.rules))

    def sent(self, partition: Partition, records: bytes | bytearray | memoryview) -> Sent:
        """Returns the counter of records for a partition whose append is asynchronous."""
        is_converted = _is_converted(records, partition.log.config.rules)
        return Sent(self.of(partition.topic), len(records), is_converted)

    def fetched(self, responses: Iterable[tuple[Any, Any]], topics: Topics) -> None:
        """Counts the partitions of a Fetch response, as pairs (`PartitionKey`, PartitionData)."""
        for key, data in responses:
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
            if data.records:
                counters.bytes_out += len(data.records)
            if data.error_code not in _EXPECTED_IN_FETCH:
                counters.fetch_failures += 1

    def share_fetched(self, names: Iterable[str], failed: Iterable[str]) -> None:
        """Counts a ShareFetch, once for each existing topic that it reads, and the topics with an error."""
        for name in names:
            self.of(name).share_fetch_requests += 1
        for name in failed:
            self.of(name).share_fetch_failures += 1

    def share_acknowledged(self, names: Iterable[str], failed: Iterable[str]) -> None:
        """Counts acknowledgements of a request, once for each existing topic, and the topics with an error."""
        for name in names:
            self.of(name).share_acknowledgement_requests += 1
        for name in failed:
            self.of(name).share_acknowledgement_failures += 1

    def converted_down(self, name: str, records: bytes) -> None:
        """Counts record batches converted to an older format for Fetch."""
        self.of(name).fetch_conversions += sum(1 for _ in formats.headers(records))


def _is_converted(records: bytes | bytearray | memoryview, rules: Rules) -> bool:
    """Returns whether a topic stores these records with another format or codec, judged by the first batch."""
    if len(records) < _HEAD_BYTES:
        return False
    magic = records[MAGIC_AT]
    if magic != rules.target_magic:
        return True
    codec = rules.compression
    return codec is not None and codec != records[CODEC_AT if magic == 2 else LEGACY_ATTRIBUTES_AT] & 7


class RequestMetrics:
    """The counters of one broker. `timer` returns a monotonic time in ns."""

    def __init__(self, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.timer = timer
        self.apis: dict[int, ApiCounters] = {}
        self.topics = TopicMetrics()
        self.opened: Counter[str] = Counter()
        """Accepted connections by listener."""
        self.closed: Counter[str] = Counter()
        self.authentications: Counter[tuple[str, str]] = Counter()
        """Outcomes of authentications, by (outcome, listener)."""
        self.violations = 0
        """Connections closed because of invalid data."""

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
        """Counts a request with its response; `error` is the exception of its handler. Both None: there is
        no response.
        """
        counted = self.apis.get(api.api_key)
        if counted is None:
            counted = self.apis[api.api_key] = ApiCounters(api)
        counted.versions[api_version] += 1
        counted.request_bytes += request_bytes
        counted.response_bytes += response_bytes
        time = counted.time
        time.buckets[bisect_left(SECONDS_NS, duration_ns)] += 1
        time.sum += duration_ns
        if response is not None:
            note = counted.note_errors
            if note is None:
                note = counted.note_errors = noting(response.__class__)
            note(response, counted.errors)
        elif error is not None:
            code = code_of(error)
            counted.errors[code] = counted.errors.get(code, 0) + 1
