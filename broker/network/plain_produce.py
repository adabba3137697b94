"""The short way of the commonest request: a Produce of one plain batch to one partition.

A client sends such requests again and again with the same bytes before and after the records, but for the partition.
The first one goes through the router and its handler as every request does; its bytes and its response are then
remembered. A later request with the same bytes is checked by `plain_header`, its batch joins the run of its partition,
and its response is the remembered one with its own partition and offsets. All requests of one read event, and with
several connections those of one turn of the event loop, are taken before the runs are written, each with one write
(`plain_turn`).

Whatever is not quite ordinary goes the long way, and so do all requests while something has to see each of them
(`Connections.allows_short_way`). tests/broker/network/test_plain_produce.py compares both in responses, files and
counters.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.acls import AclOperation
from ...protocol.compiler import builder
from ...protocol.connection import add_response
from ...protocol.errors import ErrorCode
from ...protocol.headers import response_header
from ...protocol.messages.records.produce import ProduceResponse
from ...protocol.records import batch
from ...protocol.records.layout import CODEC_AT, HEADER_BYTES, MAGIC_AT
from ...protocol.records.plain import plain_header
from ..context import RequestContext
from ..errors import Refused
from ..handlers.records.produce import PartitionResponse, TopicResponse, appended_alone
from .request_runner import HandlerRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.log.append_run import AppendRun
    from ..broker_state import BrokerState
    from ..connection_info import ConnectionInfo
    from ..metadata.topics import Topic
    from ..metrics.counters import RequestMetrics
    from ..replica.partition import Partition
    from .plain_turn import Failed, PlainTurn

FIRST_VERSION = 3  # the first one with batches of format v2
KNOWN_MAX = 1024  # shapes of requests that are remembered for a connection
FORGOTTEN_AFTER = 16 * KNOWN_MAX
"""Requests that find no place, after which all are forgotten: to remember each in turn costs more than it saves."""
HEAD_BYTES_MAX = 1024  # of the bytes before the records
_BODY_FROM = 8  # in a frame without its size, after the API, its version and the correlation id
_INDEX_BYTES = 4  # of the partition, just before the records
_INDEX_BEFORE_OFFSET = 6  # in a response: the partition and its error code
_BASE_OFFSET, _LOG_START = 0x6F66_6673_6574_0001, 0x6F66_6673_6574_0002  # found again in the bytes of a response
_INT32 = struct.Struct(">i").unpack_from


class Shared(Protocol):
    """What the connections of a broker share, as far as it is used here."""

    broker: BrokerState
    metrics: RequestMetrics | None


class PlainShape:
    """Remembered requests of one topic that differ in partition and records, and their response up to these."""

    __slots__ = (
        "client_id",
        "has_log_start",
        "is_flexible",
        "middle",
        "named",
        "needs_replicas",
        "noted",
        "pack",
        "response_bytes",
        "route",
        "runs",
        "start",
        "tail",
        "tail_bytes",
        "template",
        "topic",
        "version",
    )

    def __init__(self, topic: Topic, named: TopicResponse, runner: HandlerRunner, tail_bytes: int) -> None:
        """`named` is the topic of the response that the first one got, from this runner."""
        version, client_id, route = runner.context.api_version, runner.context.client_id, runner.route
        self.topic = topic
        self.version = version
        self.needs_replicas = runner.request.acks == -1
        self.tail_bytes = tail_bytes
        """The bytes after the records: empty tagged fields."""
        self.is_flexible = tail_bytes > 0
        self.client_id = client_id
        self.route = route
        self.noted = (client_id, route.api_key, version), (client_id, version, 2, 0)
        """What the client ledger knows of such a request."""
        self.runs: dict[int, tuple[AppendRun, Partition]] = {}
        """The runs of partitions in this read event."""
        self.named = named
        self.template: ProduceResponse | None = None

    def cut(self) -> None:
        """Cuts the response into pieces around what differs: many a request comes only once."""
        result = PartitionResponse(index=0, error_code=0, base_offset=_BASE_OFFSET, log_start_offset=_LOG_START)
        named = TopicResponse(name=self.named.name, topic_id=self.named.topic_id, partition_responses=[result])
        self.template = ProduceResponse(responses=[named])
        parts: list[Any] = [response_header(0, self.route.api_key, self.is_flexible)]
        builder(ProduceResponse, self.version)(self.template, parts.append)
        data = b"".join(parts)
        base_at, start_at = data.find(_BASE_OFFSET.to_bytes(8, "big")), data.find(_LOG_START.to_bytes(8, "big"))
        self.response_bytes = len(data)
        self.has_log_start = start_at >= 0
        self.start = data[4 : base_at - _INDEX_BEFORE_OFFSET]
        self.middle = data[base_at + 8 : start_at if self.has_log_start else len(data)]
        self.tail = data[start_at + 8 :] if self.has_log_start else b""
        offset = "q" if self.has_log_start else "0s"
        layout = f">ii{len(self.start)}sihq{len(self.middle)}s{offset}{len(self.tail)}s"
        self.pack: Callable[..., bytes] = struct.Struct(layout).pack

    def response(self, correlation_id: int, index: int, base_offset: int, log_start_offset: int) -> bytes:
        """The whole response with its size."""
        log_start: Any = log_start_offset if self.has_log_start else b""
        return self.pack(
            self.response_bytes, correlation_id, self.start, index, 0, base_offset, self.middle, log_start, self.tail
        )


class PlainProduce:
    """The remembered requests of one connection, and the requests of a read event that were taken."""

    def __init__(self, node_id: int, turn: PlainTurn) -> None:
        self._node_id = node_id
        self._turn = turn
        self._known: dict[bytes, PlainShape] = {}
        self._left_out = 0  # requests since there is no place
        self._sizes: list[int] = []
        """The sizes of the bytes before the records' length, the newest first."""
        self._taken: list[tuple[PlainShape, AppendRun, int, int, int, int, memoryview, memoryview]] = []
        """Of each request that was taken: its shape, its run, partition, correlation id, base offset, number of
        records, frame, records."""
        self._open: list[PlainShape] = []
        """Those with runs."""
        self._begun_ns = 0

    def learn(self, frame: memoryview, runner: HandlerRunner) -> None:
        """Remembers a request that was handled, if it is such a one."""
        request, response, context = runner.request, runner.response, runner.context
        version = context.api_version
        if version < FIRST_VERSION or response is None or len(request.topic_data) != 1:
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1 or request.transactional_id is not None:
            return
        records = topic.partition_data[0].records
        result = response.responses[0].partition_responses[0]
        if records is None or len(records) < HEADER_BYTES or result.error_code or result.base_offset < 0:
            return
        if records[MAGIC_AT] != 2 or records[CODEC_AT]:
            return
        is_flexible = version in runner.route.flexible
        tail_bytes = 3 if is_flexible else 0  # of the partition, the topic and the request
        size = len(records)
        stop = len(frame) - tail_bytes
        length_bytes = ((size + 1).bit_length() + 6) // 7 if is_flexible else 4
        head = stop - size - length_bytes
        if any(frame[stop:]) or not _BODY_FROM < head <= HEAD_BYTES_MAX:
            return
        if _records_at(frame, head, is_flexible) != (size, stop - size):  # a length that is not in its shortest form
            return
        topics = context.broker.topics
        named = topics.by_id(topic.topic_id) if version >= 13 else topics.get(topic.name)
        if named is None or named.name.startswith("__"):
            return
        key = bytes(frame[:4]) + bytes(frame[_BODY_FROM : head - _INDEX_BYTES])
        known = self._known.get(key)
        if known is not None and known.topic is named:
            return
        if len(self._known) >= KNOWN_MAX and known is None:
            self._left_out += 1
            if self._left_out < FORGOTTEN_AFTER:
                return
            self._left_out = 0
            self._known.clear()
            self._sizes.clear()
        self._known[key] = PlainShape(named, response.responses[0], runner, tail_bytes)
        if head not in self._sizes:
            self._sizes.insert(0, head)

    def take(
        self, frame: memoryview, broker: BrokerState, info: ConnectionInfo, now_ms: int, *, keeps: bool = False
    ) -> bool:
        """Takes a request if it is a remembered one and nothing about it needs a decision; its batch is in a run then.
        Else changes nothing. With `keeps` the bytes of the frame are copied.
        """
        known = None
        api = bytes(frame[:4])
        for head in self._sizes:
            known = self._known.get(api + bytes(frame[_BODY_FROM : head - _INDEX_BYTES]))
            if known is not None:
                break
        else:
            return False
        stop = len(frame) - known.tail_bytes
        if stop < head + HEADER_BYTES:  # cut
            return False
        size, at = _records_at(frame, head, known.is_flexible)
        if size < HEADER_BYTES or at + size != stop or (known.is_flexible and any(frame[stop:])):
            return False
        seen = info.library.seen
        if known.noted[0] not in seen or known.noted[1] not in seen:
            return False
        (index,) = _INT32(frame, head - _INDEX_BYTES)
        found = known.runs.get(index) or self._run(known, index, broker, info)
        if found is None:
            return False
        run = found[0]
        if keeps:
            frame = memoryview(bytearray(frame))
        records = frame[at:stop]
        header = plain_header(records, run.rules, now_ms)
        if header is None:
            return False
        base_offset = run.add(records, header)
        if base_offset < 0:
            return False
        info.client_id = known.client_id
        (correlation_id,) = _INT32(frame, 4)
        count = run.next_offset - base_offset
        self._taken.append((known, run, index, correlation_id, base_offset, count, frame, records))
        return True

    def _run(
        self, known: PlainShape, index: int, broker: BrokerState, info: ConnectionInfo
    ) -> tuple[AppendRun, Partition] | None:
        """The run of a partition; several shapes may have the same one."""
        topic = known.topic
        if not 0 <= index < len(topic.partitions) or broker.topics.by_id(topic.id) is not topic:
            return None
        if broker.authorizer is not None and not _may_write(known, broker, info):
            return None
        partition = topic.partitions[index]
        run = self._turn.run(partition, self._node_id)
        if run is None:
            return None
        if known.needs_replicas and broker.checks_in_sync:
            try:
                broker.check_in_sync(partition)
            except Refused:
                return None
        if known.template is None:
            known.cut()
        if not known.runs:
            self._open.append(known)
        known.runs[index] = run, partition
        return run, partition

    @property
    def has_taken(self) -> bool:
        """Whether requests were taken that have no response yet."""
        return bool(self._taken)

    def begin(self, begun_ns: int) -> None:
        """Notes the time at which the first request is taken, by the timer of the metrics."""
        if not self._taken:
            self._begun_ns = begun_ns

    def close(self) -> None:
        """Forgets the runs."""
        for known in self._open:
            known.runs.clear()
        self._open.clear()

    def take_back(self) -> list[memoryview]:
        """Returns the frames that were taken, as the client has sent them."""
        frames: list[memoryview] = []
        for *_, frame, records in self._taken:
            batch.assign(records, 0, base_offset=0, leader_epoch=-1)
            frames.append(frame)
        self._taken.clear()
        self.close()
        return frames

    def respond(self, failed: Failed, ready: list[Any], shared: Shared, info: ConnectionInfo) -> int:
        """Adds the responses of all requests that were taken, whose runs are written, to `ready`. Returns their
        bytes.
        """
        broker, metrics, size = shared.broker, shared.metrics, 0
        duration_ns = 0 if metrics is None else metrics.timer() - self._begun_ns
        for known, run, index, correlation_id, base_offset, count, frame, records in self._taken:
            response = known.template
            assert response is not None
            if run in failed:
                context = RequestContext(broker, known.version, correlation_id, known.client_id, info)
                error, failed[run] = failed[run], None
                response = appended_alone(known.named, known.runs[index][1], records, context, error)
                whole: list[Any] = [response_header(correlation_id, known.route.api_key, known.is_flexible)]
                builder(ProduceResponse, known.version)(response, whole.append)
                sent = add_response(whole, ready)
            else:
                ready.append(known.response(correlation_id, index, base_offset, run.log_start_offset))
                sent = 4 + known.response_bytes
                if metrics is not None:
                    metrics.topics.of(known.topic.name).took(len(records), count)
            size += sent
            if metrics is not None:
                metrics.note(known.route, known.version, len(frame), sent - 4, duration_ns, response)
        self._taken.clear()
        self.close()
        return size


def _may_write(known: PlainShape, broker: BrokerState, info: ConnectionInfo) -> bool:
    """Whether the client may write to the topic; False in releases where idempotent producers need a permission on the
    cluster.
    """
    if broker.profile.behaviour.idempotence_of_cluster:
        return False
    context = RequestContext(broker, known.version, 0, known.client_id, info)
    return context.topic_refusal(AclOperation.WRITE, known.topic.name) is ErrorCode.NONE


def _records_at(frame: memoryview, position: int, is_compact: bool) -> tuple[int, int]:
    """The size of the records whose length is at `position`, and where they begin."""
    if not is_compact:
        return _INT32(frame, position)[0], position + 4
    length = shift = 0
    for at in range(position, min(position + 5, len(frame))):
        byte = frame[at]
        length |= (byte & 127) << shift
        if byte < 128:
            return length - 1, at + 1
        shift += 7
    return -1, position
