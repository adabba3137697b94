"""The driver's side of a transaction: its ownership of the transactional id, its partitions, and its end.

Owns the requests to the coordinators and the meaning of their error codes for a query. Uses the first version of
transactions, which brokers of every release since 0.11 accept (KIP-98; KIP-890 for later additions).

* `begin` raises the epoch for every transaction, so that no late request can reach the next one.
* An abort raises the epoch, too: it fences tasks that may still send. EndTxn would leave the epoch valid for them.
* The id of a micro-batch is an offset of the group named like the transactional id, committed with the transaction, on
  partition 0 of each of its topics.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from ...client.consumer.group_offsets import (
    FETCH_OF_GROUPS,
    FETCH_STABLE,
    FETCH_WITHOUT_IDS,
    GroupMetadata,
    OffsetAndMetadata,
    fetch_request,
)
from ...client.net.cluster import GROUP, TRANSACTION, Cluster
from ...client.net.connection import Connection
from ...client.net.errors import ClientError, ConnectionLost, KafkaError, UnsupportedVersion
from ...client.net.metadata import partitions_in, topic_of
from ...client.net.retry import retry
from ...client.producer.transactions import requests as calls
from ...client.producer.transactions.coordinator_calls import COPIES_LIVE_S, Refused, Request, until_decided
from ...client.producer.transactions.state_machine import Call, TransactionStatus, Verdict, judge
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ...protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ...protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ..backend import ReadError
from ..readers.wire.connection import START_PATIENCE_S, ClusterCalls
from .errors import SinkError, SinkFenced, SinkTimedOut
from .options import SinkOptions

TopicPartition = tuple[str, int]
T = TypeVar("T")

MISSING_ATTEMPTS = 3
ID_ATTEMPTS = 11
"""A topic is considered missing after this many lookups: a broker that has just started may not have its metadata
yet."""

SETTLE_S = 0.3
"""The longest delay until the offset of a completed transaction is visible: the broker materialises it
asynchronously."""

_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_LOST_ID = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID)
_MARK = "ottla.batch"
_QUERY = "ottla.query"
_WHAT = {
    Call.INIT: "a producer id",
    Call.ADD: "a place in the transaction for the partitions",
    Call.OFFSETS: "a place in the transaction for the micro-batch's id",
    Call.COMMIT: "the commit",
}


class Grant(NamedTuple):
    """The producer id and epoch for the tasks; picklable. Without a transactional id, records are visible at once."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class SinkCalls(ClusterCalls):
    """The calls of a sink."""

    def __init__(self, options: SinkOptions, patience_s: float = START_PATIENCE_S) -> None:
        super().__init__(options.client, patience_s)

    def run(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` and returns its result. Raises SinkError if no broker can be reached, and the ClientError of
        `work`."""
        try:
            return super().run(work)
        except ReadError as error:
            raise SinkError(str(error)) from error.__cause__


class SinkTransaction:
    """The transactions of one transactional id, one after the other. A context manager that aborts a transaction left
    open. Every method raises SinkError, and SinkFenced after another owner took over the id."""

    copies_live_s = COPIES_LIVE_S

    def __init__(
        self,
        options: SinkOptions,
        transactional_id: str,
        *,
        query: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`query` is the id of the query that numbers the micro-batches, if there is one. `clock` returns seconds: by
        it a transaction that timed out is distinguished from one that was taken over."""
        self.transactional_id = transactional_id
        self._query = query
        self._options = options
        self._clock = clock
        self._cluster_calls = SinkCalls(options)
        self._grant: Grant | None = None
        self._begun_s = 0.0
        self._added: set[TopicPartition] = set()
        self._homes: tuple[str, ...] = ()
        self._end_requested = False
        self._was_pending = False
        self._patience_s = options.client.max_block_ms / 1000
        self._commit_patience_s = options.client.delivery_timeout_ms / 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.abort()
        except SinkError:
            if error is None:
                raise
        finally:
            self.close()

    def close(self) -> None:
        """Closes the connections, without ending a transaction. May be called again."""
        self._cluster_calls.close()

    # -- beginning

    def begin(self) -> Grant:
        """Raises the epoch: fences the previous owner of the id and aborts its open transaction."""
        timeout_ms = self._options.client.transaction_timeout_ms
        self._grant = None
        met: list[ClientError] = []
        found = self._coordinator(
            Call.INIT,
            lambda connection: calls.init(connection, self.transactional_id, timeout_ms, -1, -1),
            TransactionStatus(),
            met=met,
        )
        pending = ErrorCode.CONCURRENT_TRANSACTIONS
        self._was_pending |= any(isinstance(error, KafkaError) and error.code == pending for error in met)
        self._grant = Grant(self.transactional_id, found.producer_id, found.epoch)
        self._added.clear()
        self._end_requested = False
        self._begun_s = self._clock()
        return self._grant

    def committed_batch(self) -> int | None:
        """Returns the id of the last committed micro-batch, or None if the brokers have none. Raises SinkError if
        another query committed it: its micro-batches have the same ids as ours."""
        what, group = "the committed micro-batch", self.transactional_id
        if self._was_pending:
            self._run(what, self._settle)
        found: dict[TopicPartition, tuple[int, str]] = self._coordinator(
            Call.OFFSETS, lambda connection: _committed(connection, group), TransactionStatus(), GROUP, what=what
        )
        for (topic, partition), (_, metadata) in found.items():
            if _MARK not in metadata:
                raise SinkError(
                    f"group {self.transactional_id!r} has an offset of {topic}-{partition} that is not from this sink: "
                    "transactionalId must not be the name of a consumer group"
                )
            self._check_query(metadata)
        if found:
            self._homes = tuple(sorted({topic for topic, _ in found}))
        return max((offset - 1 for offset, _ in found.values()), default=None)

    async def _settle(self, cluster: Cluster) -> None:
        """Waits for brokers before 2.5, which do not report offsets of a transaction that is still completing."""
        connection = await cluster.coordinator(self.transactional_id, GROUP)
        if connection.version_of(OffsetFetchRequest, FETCH_WITHOUT_IDS) < FETCH_STABLE:
            await asyncio.sleep(SETTLE_S)
        self._was_pending = False

    def _check_query(self, metadata: str) -> None:
        try:
            query = json.loads(metadata).get(_QUERY)
        except (ValueError, AttributeError):
            return
        if query is not None and self._query is not None and query != self._query:
            raise SinkError(
                f"transactional id {self.transactional_id!r} belongs to query {query}, from another checkpoint: query"
                f" {self._query} has other micro-batches and needs its own transactionalId"
            )

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic. Raises SinkError for a missing topic; never creates one."""
        wanted = sorted(set(topics))
        return self._run("the topics to write to", lambda cluster: _counts(cluster, wanted, self._patience_s))

    # -- filling

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction, before any task writes to them."""
        status, wanted = self._open(), {(str(topic), int(number)) for topic, number in partitions}
        self._add(status, wanted - self._added)

    def _add(self, status: TransactionStatus, wanted: set[TopicPartition]) -> None:
        async def send(connection: Connection) -> tuple[int, Any]:
            codes = await calls.add_partitions(connection, self.transactional_id, status, wanted)
            missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return calls.worst(codes.get(where, missing) for where in wanted), True

        if wanted:
            self._coordinator(Call.ADD, send, status)
            self._added |= wanted

    # -- ending

    def commit(self, batch_id: int) -> None:
        """Commits the records of the tasks together with the id of this micro-batch.

        Retries until the outcome is known. If that takes longer than delivery.timeout.ms, the error reports it as
        unknown, and `committed_batch` returns it after the next `begin`.
        """
        status, owner = self._open(), self.transactional_id
        homes = [self._options.topic] if self._options.topic else sorted({topic for topic, _ in self._added})
        homes = homes or list(self._homes)
        if not homes:
            return  # no row was written, to no topic
        self._commit_offset(status, {(topic, 0) for topic in homes}, batch_id)
        self._end_requested = True
        self._coordinator(Call.COMMIT, lambda there: calls.end(there, owner, status, is_commit=True), status)
        self._grant = None
        self._homes = tuple(homes)

    def _commit_offset(self, status: TransactionStatus, homes: set[TopicPartition], batch_id: int) -> None:
        group = self.transactional_id
        metadata = {_MARK: batch_id} | ({} if self._query is None else {_QUERY: self._query})
        batch_offset = OffsetAndMetadata(batch_id + 1, json.dumps(metadata))

        async def add(connection: Connection) -> tuple[int, Any]:
            return await calls.add_offsets(connection, self.transactional_id, status, group), True

        async def put(connection: Connection) -> tuple[int, Any]:
            offsets = dict.fromkeys(homes, batch_offset)
            member = GroupMetadata(group)
            codes = await calls.commit_offsets(connection, self.transactional_id, status, member, offsets)
            missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return calls.worst(codes.get(where, missing) for where in homes), True

        self._added |= homes  # so that an abort has something to fence
        met: list[ClientError] = []
        self._coordinator(Call.OFFSETS, add, status)
        self._coordinator(Call.OFFSETS, put, status, GROUP, met)
        if any(isinstance(error, ConnectionLost) for error in met):
            # A late copy of the lost request would be of no transaction, and stay pending until the next one.
            self._cluster_calls.run(lambda _: asyncio.sleep(self.copies_live_s))

    def abort(self) -> None:
        """Drops the written records and fences tasks that may still write. Does nothing without a transaction, or after
        a commit was requested: its outcome is found by the next `begin`."""
        grant, self._grant = self._grant, None
        if grant is None or self._end_requested or not self._added:
            return
        # Must not fence a query that has taken over: only the owner of the epoch gets a success for partitions that are
        # in the transaction already.
        checked = {min(self._added)}
        self._added.clear()
        try:
            self._add(_status_of(grant), checked)
        except SinkTimedOut:
            return  # the brokers have aborted it, and fenced the tasks
        self.begin()
        self._grant = None

    # -- requests

    def _open(self) -> TransactionStatus:
        if self._grant is None:
            raise SinkError(f"no transaction of {self.transactional_id!r} is open: call begin first")
        if self._end_requested:
            raise SinkError(f"the transaction of {self.transactional_id!r} is being committed: call begin first")
        return _status_of(self._grant)

    def _coordinator(
        self,
        call: Call,
        send: Request,
        status: TransactionStatus,
        kind: int = TRANSACTION,
        met: list[ClientError] | None = None,
        what: str = "",
    ) -> Any:
        """Sends a request to a coordinator, see `until_decided`; `met` receives the errors before its success."""
        what = what or _WHAT[call]
        patience_s = self._commit_patience_s if call is Call.COMMIT else self._patience_s

        async def work(cluster: Cluster) -> Any:
            return await until_decided(
                cluster,
                (self.transactional_id, kind),
                send,
                partial(judge, status, call),
                what=call.value,
                deadline_s=asyncio.get_running_loop().time() + patience_s,
                on_retry=lambda error: None if met is None else met.append(error),
            )

        try:
            return self._run(what, work, is_commit=call is Call.COMMIT)
        except Refused as refused:
            self._refused(what, call, refused)

    def _run(self, what: str, work: Any, *, is_commit: bool = False) -> Any:
        """Runs `work`, and turns errors of the client into SinkError."""
        try:
            return self._cluster_calls.run(work)
        except UnsupportedVersion as error:
            raise SinkError(f"the brokers do not support transactions (Kafka has them since 0.11): {error}") from error
        except ClientError as error:
            cause = self._cluster_calls.with_brokers(error)
            text = f"cannot get {what} for transactional id {self.transactional_id!r}: {cause}"
            if is_commit:
                text = f"it is unknown whether the micro-batch is committed: {text}"
            raise SinkError(text) from error

    def _refused(self, what: str, call: Call, refused: Refused) -> NoReturn:
        owner, code = f"transactional id {self.transactional_id!r}", refused.code
        limit_ms = self._options.client.transaction_timeout_ms
        if code in _FENCED and call is not Call.INIT:
            if self._clock() - self._begun_s >= limit_ms / 1000:
                raise SinkTimedOut(
                    f"the transaction of {owner} took longer than kafka.transaction.timeout.ms, {limit_ms} ms, and was"
                    " aborted by the brokers: none of its records count"
                ) from refused
            raise SinkFenced(f"another query with {owner} took over: this one must stop") from refused
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise SinkError(
                f"kafka.transaction.timeout.ms is {limit_ms}, more than the brokers allow (transaction.max.timeout.ms)"
            ) from refused
        if code in _LOST_ID:
            raise SinkError(f"the brokers have expired {owner}: begin a new transaction ({refused})") from refused
        if call is Call.COMMIT and refused.verdict is Verdict.FATAL:
            raise SinkError(
                f"it is unknown whether the micro-batch is committed: the commit was refused to {owner}: {refused}"
            ) from refused
        raise SinkError(f"{what} was refused to {owner}: {refused}") from refused


def idempotent_grant(options: SinkOptions) -> Grant:
    """Returns a producer id without transactions, shared by tasks that write to different partitions. Raises
    SinkError."""

    async def work(cluster: Cluster) -> Grant:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)

        async def attempt() -> Grant:
            found = await (await cluster.any_connection()).request(request)
            if found.error_code:
                raise KafkaError(found.error_code)
            return Grant(None, found.producer_id, found.producer_epoch)

        return await retry(attempt, cluster.retry_backoff_s, attempts=ID_ATTEMPTS)

    with SinkCalls(options) as cluster_calls:
        try:
            return cluster_calls.run(work)
        except ClientError as error:
            raise SinkError(f"cannot get a producer id: {cluster_calls.with_brokers(error)}") from error


def _status_of(grant: Grant) -> TransactionStatus:
    """Returns the producer's state for the client's table: first version of transactions, possibly begun."""
    return TransactionStatus(producer_id=grant.producer_id, epoch=grant.producer_epoch, has_begun=True)


async def _committed(connection: Connection, group: str) -> tuple[int, Mapping[TopicPartition, tuple[int, str]]]:
    """Returns (error code, offset and metadata of each partition with a committed offset of the group)."""
    version = connection.version_of(OffsetFetchRequest, FETCH_WITHOUT_IDS)
    response = await connection.request(fetch_request(group, None, version, require_stable=True), version)
    result = response.groups[0] if version >= FETCH_OF_GROUPS and response.groups else response
    found = dict(partitions_in(result.topics))
    code = result.error_code or calls.worst(one.error_code for one in found.values())
    return code, {
        where: (one.committed_offset, one.metadata or "") for where, one in found.items() if one.committed_offset >= 0
    }


async def _counts(cluster: Cluster, wanted: list[str], patience_s: float) -> dict[str, int]:
    attempts = itertools.count(1)

    async def attempt() -> dict[str, int]:
        number = next(attempts)
        described = (await cluster.metadata(wanted)).topics if wanted else []
        topics = {one.name: topic_of(one) for one in described if one.name is not None}
        for name in wanted:
            topic = topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and number >= MISSING_ATTEMPTS:
                raise SinkError(f"topic {name!r} does not exist: the sink creates no topics")
            if code:
                raise KafkaError(code, f"topic {name!r}")
        return {name: len(topics[name].partitions) for name in wanted}

    return await retry(attempt, cluster.retry_backoff_s, patience_s)
