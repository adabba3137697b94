"""ShareFetch v1-v2: acquires records for a member of a share group, and acknowledges earlier ones (KIP-932).

* A share session remembers the partitions of the member; epoch 0 opens it, -1 ends it and releases its records.
* Waits until records can be acquired and there are `min_bytes`, at most `max_wait_ms`.
* `max_records` is exceeded up to the end of a batch, unless v2 has a strict limit (KIP-1206).
* A fetch whose response is throttled has acquired its records: they are locked until their time is over.
* v2 renews locks (KIP-1222); such a request reads no records.

The isolation level is a config of the group. Requires READ on the group and on each topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....protocol.compiler import builder
from ....protocol.errors import ErrorCode
from ....protocol.messages.share.share_fetch import ShareFetchRequest, ShareFetchResponse
from ....protocol.primitives import Records
from ....protocol.records import formats
from ....storage.errors import OffsetOutOfRange
from ....storage.log.results import Slice
from ....storage.producers.txn_index import ABORT
from ...broker_state import BrokerState
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...groups.share.state import SharePartitionKey
from ...replica.purgatory import FetchWaiter
from ...share.sessions import FINAL_EPOCH, SessionKey, ShareFetchPlan, TopicPartition
from ...share.share_partition import Acquisition, Fetched
from ...share.share_partitions import Led, Outcome
from ...share.values import Acquired, FetchedBatch
from .requests import (
    RENEWS_SINCE,
    acknowledged,
    acknowledging,
    by_topic,
    endpoints_of,
    found_partition,
    names_of,
    release,
    session_of,
    set_leader,
    text_of,
)

Topic = ShareFetchResponse.ShareFetchableTopicResponse
PartitionData = Topic.PartitionData
Results = dict[TopicPartition, PartitionData]

STRICT_LIMIT = 1  # the acquire mode
READ_ENTRIES = 20  # entries of a cooperative step for a partition that is read


@handles(ShareFetchRequest)
async def share_fetch(request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    """Acknowledges, then reads; waits if nothing can be acquired."""
    broker = context.broker
    renews = context.api_version >= RENEWS_SINCE and request.is_renew_ack
    try:
        key = session_of(request, context)
        if renews:
            _check_renewal(request)
        plan = await _planned(request, key, context)
    except Refused as refused:
        if refused.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # The client would repeat the request at once.
            waiter = FetchWaiter((), lambda: False, broker.loop)
            await waiter.wait(broker.waits, broker.waits.now_ms() + max(0, request.max_wait_ms))
        return ShareFetchResponse(error_code=refused.code, responses=[])
    pending = await acknowledging(_with_acknowledgements(request), key, request.is_renew_ack, context)
    results: Results = {} if renews else await _Fetching(request, key, plan, context).results()
    outcomes = await acknowledged(pending, broker)
    _count(plan, results, broker)
    response = _responded(plan, results, context)
    _add_outcomes(response, outcomes)
    if request.share_session_epoch == FINAL_EPOCH:
        release(key, context)
    response.acquisition_lock_timeout_ms = broker.share_configs.lock_ms(key.group_id)
    response.node_endpoints = endpoints_of(results.values(), context)
    return response


def _count(plan: ShareFetchPlan, results: Results, broker: BrokerState) -> None:
    if broker.topic_metrics is not None and plan.partitions:
        failed = {of.topic_id for of, data in results.items() if data.error_code}
        broker.topic_metrics.share_fetched(
            names_of({of.topic_id for of in plan.partitions}, broker), names_of(failed, broker)
        )


def _check_renewal(request: ShareFetchRequest) -> None:
    """Raises Refused unless a request that renews locks reads nothing."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise Refused(ErrorCode.INVALID_REQUEST)


async def _planned(request: ShareFetchRequest, key: SessionKey, context: RequestContext) -> ShareFetchPlan:
    broker = context.broker
    listed: dict[TopicPartition, str | None] = {}
    for topic in request.topics:
        await context.step(1 + len(topic.partitions))
        name = broker.topics.topic_name(topic.topic_id)
        listed |= {TopicPartition(topic.topic_id, one.partition_index): name for one in topic.partitions}
    forgotten = [
        TopicPartition(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    acknowledges = any(one.acknowledgement_batches for topic in request.topics for one in topic.partitions)
    epoch, connection = request.share_session_epoch, context.connection_info
    return broker.share_sessions.fetching(key, epoch, listed, forgotten, connection, acknowledges=acknowledges)


def _with_acknowledgements(request: ShareFetchRequest) -> list[ShareFetchRequest.FetchTopic]:
    """The topics of the request if any partition has acknowledgements; as in Kafka then all partitions get a result."""
    has_any = any(one.acknowledgement_batches for topic in request.topics for one in topic.partitions)
    return request.topics if has_any else []


class _Fetching:
    """The read of one ShareFetch: which partitions it reads, when there is enough, and what it acquires."""

    def __init__(
        self, request: ShareFetchRequest, key: SessionKey, plan: ShareFetchPlan, context: RequestContext
    ) -> None:
        self._request = request
        self._key = key
        self._plan = plan
        self._context = context
        self._broker = context.broker
        self._committed = self._broker.share_configs.is_committed(key.group_id)
        self._max_bytes = self._most_bytes()
        self._failed: Results = {}
        self._led: dict[TopicPartition, Led] = {}
        self._since_ns = self._broker.share_partitions.timer()

    def _most_bytes(self) -> int:
        most = min(self._request.max_bytes, self._broker.config["fetch.max.bytes"])
        meter = self._context.meter
        if meter is not None and (allowed := meter.fetch_bytes_max()) is not None:
            most = min(most, allowed)
        return max(0, most)

    async def results(self) -> Results:
        """Reads the partitions that the node leads; waits for records."""
        context, broker, request = self._context, self._broker, self._request
        partitions = _rotated(list(self._plan.partitions.items()), request.share_session_epoch)
        reads = request.max_records > 0 and self._max_bytes > 0
        for of, name in partitions:
            await context.step()
            try:
                partition = found_partition(name, of, context)
                if reads:
                    partition.check_leader(context.node_id)
                    share_key = SharePartitionKey(self._key.group_id, *of)
                    self._led[of] = broker.share_partitions.get_or_create(share_key, partition)
            except Exception as error:
                self._fail(of, error)
        if not self._led:
            return self._failed
        if request.max_wait_ms > 0 and not self._is_enough():
            places = [place for led in self._led.values() for place in (led.waiters, led.partition.waiters)]
            waiter = FetchWaiter(places, self._is_enough, broker.loop)
            await waiter.wait(broker.waits, broker.waits.now_ms() + request.max_wait_ms)
        return await self._read() | self._failed

    def _fail(self, of: TopicPartition, error: Exception) -> None:
        data = PartitionData(partition_index=of.partition, error_code=code_of(error))
        set_leader(data, error, of, self._context)
        self._failed[of] = data

    def _acquirable(self) -> dict[TopicPartition, Led]:
        return {of: led for of, led in self._led.items() if self._can_acquire(of, led)}

    def _can_acquire(self, of: TopicPartition, led: Led) -> bool:
        share_partitions = self._broker.share_partitions
        is_current = share_partitions.get(led.key) is led
        return is_current and led.is_ready and led.machine.can_acquire()

    def _is_enough(self) -> bool:
        """Returns whether the logs have `min_bytes` for the partitions that can be acquired."""
        acquirable = self._acquirable()
        if any(self._broker.share_partitions.get(led.key) is not led for led in self._led.values()):
            return True  # another leader, or deleted: the client is to look for it
        if not acquirable:
            return False
        need, committed = min(self._request.min_bytes, self._max_bytes), self._committed
        limit = self._max_bytes // len(acquirable)
        for led in acquirable.values():
            log, offset = led.partition.log, led.machine.next_fetch_offset()
            end_offset = log.last_stable_offset if committed else log.high_watermark
            if offset < log.log_start_offset or offset > end_offset:
                return True
            if offset < end_offset:
                if offset < log.growing_from(committed=committed):
                    return True  # an older segment does not grow
                need -= min(log.available_bytes(offset, committed=committed), max(1, limit))
        return need <= 0

    async def _read(self) -> Results:
        """Reads and acquires. A partition of which nothing can be acquired has no result."""
        acquirable, context = self._acquirable(), self._context
        self._broker.share_partitions.count_fetch(
            self._key.group_id, self._since_ns, len(acquirable), len(self._plan.partitions)
        )
        results: Results = {}
        left = self._request.max_records
        limits = _shares(self._max_bytes, len(acquirable))
        has_records = False
        for limit, (of, led) in zip(limits, acquirable.items(), strict=True):
            await context.step(READ_ENTRIES)
            if not self._can_acquire(of, led):  # changed during the steps
                continue
            try:
                records, acquired = self._read_one(led, limit, left, at_least_one_batch=not has_records)
            except Exception as error:
                self._fail(of, error)
                continue
            has_records = has_records or bool(len(records))
            left -= sum(last - first + 1 for first, last, _ in acquired)
            results[of] = _data(of, records, acquired)
        return results

    def _read_one(
        self, led: Led, limit: int, left: int, *, at_least_one_batch: bool
    ) -> tuple[Records, Sequence[Acquired]]:
        """Reads one partition and acquires its records, without yielding in between."""
        log, offset = led.partition.log, led.machine.next_fetch_offset()
        try:
            found = log.read(offset, limit, at_least_one_batch=at_least_one_batch, committed=self._committed)
        except OffsetOutOfRange:
            led.machine.log_start_moved(log.log_start_offset)
            led.wake()
            return b"", []
        read = fetched(found, committed=self._committed)
        is_strict = self._context.api_version >= RENEWS_SINCE and self._request.share_acquire_mode == STRICT_LIMIT
        wanted = Acquisition(self._key.member, is_strict, self._request.batch_size)
        acquired = self._broker.share_partitions.acquire(led, wanted, left, offset, read)
        return (_overlapping(found.records, acquired), acquired) if acquired else (b"", [])


def fetched(found: Slice, *, committed: bool) -> Fetched:
    """Returns the batches of a read; with `committed` also its aborted transactions."""
    batches = [
        FetchedBatch(
            header.base_offset,
            header.last_offset,
            header.producer_id,
            header.is_transactional,
            header.is_control,
            committed and header.is_control and _is_abort(found.records, position),
        )
        for position, header in formats.headers(found.records)
    ]
    return Fetched(batches, [(one.producer_id, one.first_offset) for one in found.aborted] if committed else ())


def _is_abort(records: Records, position: int) -> bool:
    """Whether a control batch is the marker of an aborted transaction."""
    key = next(iter(formats.records(records, position))).key or b""
    return len(key) >= 4 and int.from_bytes(key[2:4], "big", signed=True) == ABORT


def _overlapping(records: Records, acquired: Sequence[Acquired]) -> Records:
    """Returns the part of the records whose batches may have acquired offsets."""
    first, last = acquired[0].first, acquired[-1].last
    start, end = 0, len(records)
    for position, header in formats.headers(records):
        if header.base_offset <= first:
            start = position
        elif header.base_offset > last:
            end = position
            break
    return memoryview(records)[start:end] if start > 0 or end < len(records) else records


def _data(of: TopicPartition, records: Records, acquired: Sequence[Acquired]) -> PartitionData:
    return PartitionData(
        partition_index=of.partition,
        records=records,
        acquired_records=[
            PartitionData.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquired
        ],
    )


def _rotated(
    partitions: list[tuple[TopicPartition, str | None]], epoch: int
) -> list[tuple[TopicPartition, str | None]]:
    """The partitions beginning with another one in each request of a session, so that all are read in time."""
    if epoch < 1 or len(partitions) < 2:
        return partitions
    at = epoch % len(partitions)
    return partitions[at:] + partitions[:at]


def _shares(max_bytes: int, count: int) -> list[int]:
    """The limits of `count` partitions that share `max_bytes`; the first one has the rest."""
    if count == 0:
        return []
    share, rest = divmod(max_bytes, count)
    return [share + rest] + [share] * (count - 1)


def _size(plan: ShareFetchPlan, results: Results, context: RequestContext) -> int:
    """The size of the response with its length field, as Kafka computes it for quotas."""
    parts: list[Records] = []
    builder(ShareFetchResponse, context.api_version)(_response(list(results.items())), parts.append)
    return 4 + sum(map(len, parts))


def _response(sent: Sequence[tuple[TopicPartition, PartitionData]]) -> ShareFetchResponse:
    topics = by_topic(sent)
    return ShareFetchResponse(
        responses=[Topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
    )


def _responded(plan: ShareFetchPlan, results: Results, context: RequestContext) -> ShareFetchResponse:
    """The response: without records if it is throttled."""
    is_throttled = context.meter is not None and context.meter.has_fetched(partial(_size, plan, results, context))
    if plan.is_outdated:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH, responses=[])
    if is_throttled:
        return ShareFetchResponse(responses=[])
    return _response(plan.selected(list(results.items())))


def _add_outcomes(response: ShareFetchResponse, outcomes: dict[TopicPartition, Outcome]) -> None:
    """Adds the results of acknowledgements: to the partitions in the response, and as new ones."""
    topics = {topic.topic_id: topic for topic in response.responses}
    present = {
        TopicPartition(topic.topic_id, data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }
    for of, outcome in outcomes.items():
        data = present.get(of)
        if data is None:
            data = PartitionData(partition_index=of.partition)
            topic = topics.get(of.topic_id)
            if topic is None:
                topic = topics[of.topic_id] = Topic(topic_id=of.topic_id, partitions=[])
                response.responses.append(topic)
            topic.partitions.append(data)
        if outcome is not None:
            data.acknowledge_error_code, data.acknowledge_error_message = outcome.code, text_of(outcome)
