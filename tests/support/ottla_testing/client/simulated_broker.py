"""A broker for the model: the real codecs, the real partition logs on a simulated disk, the real producer rules.

Owns one node with one topic, its events (restarts, lost bytes, a moved log start, expiry, refusals that clients retry),
and the journal of what it wrote, as events of `model_history.py`. A release's versions and rules come from its profile.
Responses are immediate; delays and order belong to the network.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from ottla.broker.config.log_config import log_config
from ottla.broker.config.values import Config, TopicConfig
from ottla.broker.errors import CODES
from ottla.broker.releases.profiles import OWN, profile
from ottla.protocol.compiler import builder, parser
from ottla.protocol.errors import ErrorCode, ProtocolViolation
from ottla.protocol.headers import read_prefix, read_rest, response_header
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.messages.records.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.messages.records.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records import formats
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.protocol.schema import spec
from ottla.storage.config import LogConfig
from ottla.storage.errors import OffsetOutOfRange
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogOwner, PartitionLog, TopicIdPartition
from ottla.storage.producers.producer_state import ProducerRules
from ottla_testing.client.model_history import Appended, Cut, Event, FinalLog, Note, Started
from ottla_testing.storage.simulated_files import SimulatedFiles

HOST, PORT, NODE = "simulated", 9092, 1
TOPIC, TOPIC_ID = "model", bytes(range(16))
SCAN_FEATURE = "ottla.duplicate.scan"
# Retriable codes; the first two come before the append and the last two after it.
BEFORE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
AFTER = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_PRODUCER_ID, _EPOCH = struct.Struct(">q"), struct.Struct(">h")
_PRODUCER_ID_AT, _EPOCH_AT = 43, 51  # in a batch
_VALUE = re.compile(rb"<(\d+)>")

Produced = ProduceResponse.TopicProduceResponse
ProducedPartition = Produced.PartitionProduceResponse
Fetched = FetchResponse.FetchableTopicResponse
Listed = ListOffsetsResponse.ListOffsetsTopicResponse
Described = MetadataResponse.MetadataResponseTopic
Configured = DescribeConfigsResponse.DescribeConfigsResult

SERVED = {
    spec(request).api_key: (request, response)
    for request, response in (
        (ProduceRequest, ProduceResponse),
        (FetchRequest, FetchResponse),
        (ListOffsetsRequest, ListOffsetsResponse),
        (MetadataRequest, MetadataResponse),
        (ApiVersionsRequest, ApiVersionsResponse),
        (InitProducerIdRequest, InitProducerIdResponse),
        (DescribeConfigsRequest, DescribeConfigsResponse),
    )
}


def value_of(record: int) -> bytes:
    """Returns the value that carries a record's number."""
    return b"<%d>" % record


@functools.cache
def release_config(release: str) -> LogConfig:
    """Returns the log config of a topic in a release, with default configs."""
    config = Config(profile=profile(release))
    made = log_config(TopicConfig(config), config)
    if release != OWN:
        return made
    # The client of these tests compares log start offsets (KIP-192): producers below them are unknown to it.
    return replace(made, producer_rules=ProducerRules(drop_below_log_start=True))


@functools.cache
def api_versions(release: str, has_scan: bool) -> ApiVersionsResponse:
    """Returns the ApiVersions of the release, for the APIs that are served here."""
    version = ApiVersionsResponse.ApiVersion
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[
            version(api_key=key, min_version=versions.first, max_version=versions.last)
            for key, versions in profile(release).apis.items()
            if key in SERVED
        ],
    )
    if has_scan:
        feature = ApiVersionsResponse.SupportedFeatureKey(name=SCAN_FEATURE, min_version=1, max_version=1)
        response.supported_features = [feature]
    return response


class SimulatedBroker:
    """See the module. `events` is the history to which it appends; `now_s` returns the time."""

    def __init__(
        self,
        random: Random,
        events: list[Event],
        now_s: Callable[[], float],
        *,
        release: str = "ottla",
        partitions: int = 1,
        has_scan: bool = True,
        refusing: float = 0.0,
        **log_settings: Any,
    ) -> None:
        """`refusing` is the rate of produced batches that get an error that clients retry, appended or not."""
        self.random = random
        self.events = events
        self.now_s = now_s
        self.release = release
        self.has_scan = has_scan
        self.refusing = refusing
        self.is_up = True
        self.generation = 1
        config = release_config(release)
        rules = {name: value for name, value in log_settings.items() if hasattr(config.rules, name)}
        judging = {name: value for name, value in log_settings.items() if hasattr(config.producer_rules, name)}
        others = {name: value for name, value in log_settings.items() if name not in rules | judging}
        self.config = dataclasses.replace(
            config,
            rules=dataclasses.replace(config.rules, **rules),
            producer_rules=dataclasses.replace(config.producer_rules, **judging),
            **others,
        )
        self.files: Any = SimulatedFiles()
        self.next_producer_id = 4000
        self.starts = [0] * partitions
        self.recovery_points = [0] * partitions
        self.logs = [self._open(number, clean=True) for number in range(partitions)]

    def now_ms(self) -> int:
        return int(self.now_s() * 1000)

    def note(self, text: str) -> None:
        self.events.append(Note(self.now_s(), text))

    # -- events

    def _open(self, number: int, *, clean: bool) -> PartitionLog:
        return PartitionLog.open(
            self.files,
            f"/data/{TOPIC}-{number}",
            TopicIdPartition(TOPIC, number),
            config=self.config,
            now_ms=self.now_ms(),
            checkpoints=LogCheckpoints(
                clean_shutdown=clean, recovery_point=self.recovery_points[number], log_start_offset=self.starts[number]
            ),
            owner=LogOwner(pick=lambda bound: 0),
        )

    def stop(self, *, clean: bool) -> None:
        """Serves nothing until `start`. Unless `clean`, nothing more is written either."""
        self.note("the broker stops" if clean else "the broker is killed")
        self.is_up = False
        for log in self.logs:
            if clean:
                log.close()
            else:
                log.abandon()
        self._was_clean = clean

    def lose_power(self, *, everything: bool = False) -> None:
        """While it is stopped: bytes that were never synced are lost, some of them or all; or the disk is a new one."""
        self.note("the disk is lost" if everything else "power is lost")
        self._was_clean = False
        if everything:
            self.files = SimulatedFiles()
            self.starts = [0] * len(self.logs)
            self.recovery_points = [0] * len(self.logs)
        else:
            self.files.lose_power(lambda path, durable, live: self.random.randint(durable, max(durable, live)))

    def start(self) -> None:
        """Opens the logs again, like the next process."""
        self.files.restart()
        for number, old in enumerate(self.logs):
            log = self.logs[number] = self._open(number, clean=self._was_clean)
            if log.log_end_offset < old.log_end_offset:
                self.events.append(Cut(self.now_s(), number, log.log_end_offset))
            if log.log_start_offset != old.log_start_offset:
                self.events.append(Started(self.now_s(), number, log.log_start_offset))
        self.is_up = True
        self.generation += 1
        self.note("the broker is back")

    def flush(self) -> None:
        """Makes the appended bytes durable."""
        for number, log in enumerate(self.logs):
            self.recovery_points[number] = log.flush()

    def move_log_start(self, number: int, offset: int) -> None:
        """Moves the log start, as DeleteRecords and retention do."""
        log = self.logs[number]
        if log.log_start_offset < offset <= log.log_end_offset:
            self.starts[number] = log.delete_records_before(offset)
            self.events.append(Started(self.now_s(), number, offset))

    def expire_producers(self) -> None:
        """Expires producers, as the broker does every ten minutes."""
        count = sum(log.expire_producers(self.now_ms()) for log in self.logs)
        self.note(f"{count} producers expired")

    def final_logs(self) -> dict[int, FinalLog]:
        """Returns what a consumer would read, log by log."""
        logs: dict[int, FinalLog] = {}
        for number, log in enumerate(self.logs):
            found: list[tuple[int, int]] = []
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                data = log.read(offset, 1 << 20).records
                for position, header in formats.headers(data):
                    assert formats.crc_matches(data, position, header)
                    for record in formats.records(data, position):
                        if record.offset >= offset:
                            found.append((record.offset, int(bytes(record.value or b"")[1:-1])))
                    offset = header.next_offset
            logs[number] = FinalLog(log.log_start_offset, found)
        return logs

    # -- requests

    def respond(self, frame: bytes) -> bytes | None:
        """Processes one request and returns its response, both without their size; None for acks=0. Raises
        ProtocolViolation: it closes.
        """
        prefix = read_prefix(frame)
        request_class, response_class = SERVED[prefix.api_key]
        declared, version = spec(request_class), prefix.api_version
        flexible = version in declared.flexible
        versions = profile(self.release).served[prefix.api_key]
        if version not in versions:
            if prefix.api_key != spec(ApiVersionsRequest).api_key:
                raise ProtocolViolation(f"{request_class.__name__} v{version} is not served")
            response, version, flexible = ApiVersionsResponse(error_code=35, api_keys=[]), 0, False
        else:
            _, position = read_rest(frame, prefix, flexible)
            # A copy of its own: the log may write into it.
            request = parser(request_class, version)(bytearray(frame), position)
            response = _HANDLERS[prefix.api_key](self, request, version)
        if response is None:
            return None
        parts: list[Any] = [response_header(prefix.correlation_id, prefix.api_key, flexible)]
        builder(response_class, version)(response, parts.append)
        return b"".join(parts)

    def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        return api_versions(self.release, self.has_scan)

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        topics = []
        if request.topics is None or any(TOPIC in (topic.name, None) for topic in request.topics):
            one = Described.MetadataResponsePartition
            topic = Described(
                error_code=0,
                name=TOPIC,
                topic_id=TOPIC_ID,
                partitions=[
                    one(
                        error_code=0,
                        partition_index=number,
                        leader_id=NODE,
                        leader_epoch=0,
                        replica_nodes=[NODE],
                        isr_nodes=[NODE],
                    )
                    for number in range(len(self.logs))
                ],
            )
            if request.include_message_format:
                topic.message_format_version = 2
                topic.max_message_bytes = self.config.rules.max_message_bytes
            topics.append(topic)
        node = MetadataResponse.MetadataResponseBroker(node_id=NODE, host=HOST, port=PORT)
        return MetadataResponse(brokers=[node], cluster_id="simulated", controller_id=NODE, topics=topics)

    def _init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        assert request.transactional_id is None
        self.next_producer_id += 1
        return InitProducerIdResponse(error_code=0, producer_id=self.next_producer_id, producer_epoch=0)

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse | None:
        responses = []
        for wanted in request.topic_data:
            assert wanted.topic_id == TOPIC_ID if version >= 13 else wanted.name == TOPIC
            results = [self._append(data.index, data.records, version) for data in wanted.partition_data]
            responses.append(Produced(name=wanted.name, topic_id=wanted.topic_id, partition_responses=results))
        return ProduceResponse(responses=responses) if request.acks else None

    def _append(self, number: int, records: Any, version: int) -> ProducedPartition:
        log = self.logs[number]
        unlucky = self.refusing and self.random.random() < self.refusing
        if unlucky and self.random.random() < 0.5:
            return ProducedPartition(index=number, error_code=self.random.choice(BEFORE), base_offset=-1)
        try:
            done = log.append(records, now_ms=self.now_ms(), produce_version=version)
        except tuple(CODES) as error:
            code = CODES[type(error)]
            self.note(f"partition {number}: {code.name}: {error}")
            return ProducedPartition(
                index=number, error_code=code, base_offset=-1, log_start_offset=log.log_start_offset
            )
        if done.duplicate:
            known = log.producers()[_PRODUCER_ID.unpack_from(records, _PRODUCER_ID_AT)[0]]
            is_scanned = done.base_offset not in [batch.base_offset for batch in known.batches]
            how = ", found by a scan" if is_scanned else ""
            self.note(f"partition {number}: a copy of {done.base_offset}..{done.last_offset}{how}")
        else:
            written = tuple(map(int, _VALUE.findall(records, HEADER_BYTES)))  # a checksum may have any bytes
            self.events.append(
                Appended(self.now_s(), number, done.base_offset, written, _EPOCH.unpack_from(records, _EPOCH_AT)[0])
            )
        if unlucky:
            return ProducedPartition(index=number, error_code=self.random.choice(AFTER), base_offset=-1)
        return ProducedPartition(
            index=number,
            error_code=0,
            base_offset=done.base_offset,
            log_append_time_ms=done.log_append_time_ms,
            log_start_offset=done.log_start_offset,
        )

    def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        one = Fetched.PartitionData
        responses = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                log = self.logs[wanted.partition]
                try:
                    code, records = 0, log.read(wanted.fetch_offset, wanted.partition_max_bytes).records
                except OffsetOutOfRange:
                    code, records = ErrorCode.OFFSET_OUT_OF_RANGE, b""
                partitions.append(
                    one(
                        partition_index=wanted.partition,
                        error_code=code,
                        high_watermark=log.high_watermark,
                        last_stable_offset=log.last_stable_offset,
                        log_start_offset=log.log_start_offset,
                        records=records,
                    )
                )
            responses.append(Fetched(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        return FetchResponse(responses=responses)

    def _list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        one = Listed.ListOffsetsPartitionResponse
        topics = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                log = self.logs[wanted.partition_index]
                offset = log.log_start_offset if wanted.timestamp == -2 else log.log_end_offset
                partitions.append(one(partition_index=wanted.partition_index, error_code=0, offset=offset))
            topics.append(Listed(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    def _describe_configs(self, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        """Responds without `message.format.version`: all is written as v2."""
        return DescribeConfigsResponse(
            results=[
                Configured(
                    error_code=0,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[],
                )
                for resource in request.resources
            ]
        )


_HANDLERS: dict[int, Callable[[SimulatedBroker, Any, int], Any]] = {
    spec(ProduceRequest).api_key: SimulatedBroker._produce,
    spec(FetchRequest).api_key: SimulatedBroker._fetch,
    spec(ListOffsetsRequest).api_key: SimulatedBroker._list_offsets,
    spec(MetadataRequest).api_key: SimulatedBroker._metadata,
    spec(ApiVersionsRequest).api_key: SimulatedBroker._api_versions,
    spec(InitProducerIdRequest).api_key: SimulatedBroker._init_producer_id,
    spec(DescribeConfigsRequest).api_key: SimulatedBroker._describe_configs,
}


def shown(frame: bytes) -> str:
    """Returns a request as text: its name and, for Produce, its contents."""
    prefix = read_prefix(frame)
    request_class, _ = SERVED[prefix.api_key]
    text = f"{request_class.__name__.removesuffix('Request')} {prefix.correlation_id}"
    if request_class is not ProduceRequest:
        return text
    _, position = read_rest(frame, prefix, prefix.api_version in spec(ProduceRequest).flexible)
    request = parser(ProduceRequest, prefix.api_version)(frame, position)
    for topic in request.topic_data:
        for data in topic.partition_data:
            for at, header in formats.headers(data.records):
                entry = bytes(data.records[at + HEADER_BYTES : at + header.size_bytes])
                values = b" ".join(_VALUE.findall(entry)).decode()
                text += (
                    f" [{data.index}: producer {header.producer_id} epoch {header.producer_epoch}"
                    f" sequences {header.base_sequence}..{header.last_sequence}: {values}]"
                )
    return text
