"""The driver's side of a transaction: who owns the transactional id, which partitions it is about, how it ends.

Owns the requests to the coordinators and what their answers mean to a query. Requests are those of transactions of the
first version, which brokers of every release since 0.11 take (KIP-98; KIP-890 for what later ones add).

* `begin` takes another epoch for every transaction, so that nothing that is late can be of the next one.
* An abort does the same: it fences in the partitions what tasks may still send. An EndTxn would leave them the epoch.
* The id of a micro-batch is an offset of the group that is named like the transactional id, committed with the
  transaction, on partition 0 of each topic that it is about.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from ...client.consumer.group_offsets import GroupMetadata, OffsetAndMetadata
from ...client.net.cluster import GROUP, TRANSACTION, Cluster
from ...client.net.connection import Connection
from ...client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ...client.net.metadata import topic_of
from ...client.net.retry import retry
from ...client.producer.responses import COPIES_LIVE_S
from ...client.producer.transactions import requests as calls
from ...client.producer.transactions.state_machine import Call, Standing, Verdict
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ...protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ...protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from .coordinator_requests import Asker, Met, Refused, ask_until
from .errors import SinkError, SinkFenced, SinkTimedOut
from .options import SinkOptions

__all__ = ["Grant", "SinkTransaction", "idempotent_grant"]

TopicPartition = tuple[str, int]

MISSING_ATTEMPTS = 3
ID_ATTEMPTS = 11
"""So often a topic has to be missing to be gone: a broker that has just started may not know it yet."""

SETTLE_S = 0.3
"""Until an offset counts whose transaction has just been completed, at most: the broker does it on the side."""

FETCH_WITHOUT_IDS, FETCH_OF_GROUPS, FETCH_STABLE = 9, 8, 7
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
    """What tasks write with; can be pickled. Without a transactional id what they write counts at once."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class SinkTransaction:
    """The transactions of one transactional id, one after the other. A context manager: one that is left open at its
    end is aborted. Every method raises SinkError, and SinkFenced where another took over the id."""

    copies_live_s = COPIES_LIVE_S

    def __init__(
        self,
        options: SinkOptions,
        transactional_id: str,
        *,
        query: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`query` is the id of the query that counts the micro-batches, if one does. `clock` gives seconds: it tells a
        transaction that timed out from one that was taken over."""
        self.transactional_id = transactional_id
        self._query = query
        self._options = options
        self._clock = clock
        self._asker = Asker(options)
        self._grant: Grant | None = None
        self._begun_s = 0.0
        self._added: set[TopicPartition] = set()
        self._homes: tuple[str, ...] = ()
        self._end_asked = False
        self._was_pending = False
        self._patience_s = options.client.max_block_ms / 1000
        self._commit_patience_s = options.client.delivery_timeout_ms / 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.abort()
        except SinkError:
            if error is None:
                raise
        finally:
            self.close()

    def close(self) -> None:
        """Ends the connections, whatever is open. May be called again."""
        self._asker.close()

    # -- beginning

    def begin(self) -> Grant:
        """A new epoch: who had the id before is fenced, and what was left open is aborted; nothing is pending then."""
        timeout_ms = self._options.client.transaction_timeout_ms

        async def ask(connection: Connection) -> tuple[int, Any]:
            return await calls.init(connection, self.transactional_id, timeout_ms, -1, -1)

        self._grant = None
        met = Met()
        found = self._coordinator(Call.INIT, ask, Standing(), self._patience_s, met=met)
        self._was_pending |= met.was_pending
        self._grant = Grant(self.transactional_id, found.producer_id, found.epoch)
        self._added.clear()
        self._end_asked = False
        self._begun_s = self._clock()
        return self._grant

    def committed_batch(self) -> int | None:
        """The id of the micro-batch that was committed last; None if there is none that the brokers remember. Raises
        SinkError where another query has counted: its micro-batches are not ours, though they have the same ids."""

        async def ask(connection: Connection) -> tuple[int, Any]:
            return await _committed(connection, self.transactional_id)

        async def work(cluster: Cluster) -> Any:
            key, patience_s = self.transactional_id, self._patience_s
            if self._was_pending:
                await self._settle(await cluster.coordinator(key, GROUP))
            return await ask_until(cluster, key, ask, Standing(), Call.OFFSETS, patience_s, GROUP)

        found: dict[TopicPartition, tuple[int, str]] = self._told("the committed micro-batch", work)
        newest: int | None = None
        for (topic, partition), (offset, metadata) in found.items():
            if _MARK not in metadata:
                raise SinkError(
                    f"group {self.transactional_id!r} has an offset of {topic}-{partition} that no sink has committed: "
                    "transactionalId must be another name than that of a consumer group"
                )
            self._check_query(metadata)
            newest = offset - 1 if newest is None else max(newest, offset - 1)
        if found:
            self._homes = tuple(sorted({topic for topic, _ in found}))
        return newest

    async def _settle(self, connection: Connection) -> None:
        """Brokers before 2.5 do not say that an offset of a transaction is just being taken over."""
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
                f"transactional id {self.transactional_id!r} is that of query {query}, from another checkpoint: query"
                f" {self._query}, whose micro-batches are others, needs a transactionalId of its own"
            )

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions the topics have. A topic that is not there is an error: none is made."""
        wanted = sorted(set(topics))
        return self._told("the topics to write to", lambda cluster: _counts(cluster, wanted, self._patience_s))

    # -- filling

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions into the transaction: before any task writes to them."""
        grant, wanted = self._open(), {(str(topic), int(number)) for topic, number in partitions}
        self._add(grant, wanted - self._added)

    def _add(self, grant: Grant, wanted: set[TopicPartition]) -> None:
        standing = _standing(grant)

        async def ask(connection: Connection) -> tuple[int, Any]:
            codes = await calls.add_partitions(connection, self.transactional_id, standing, wanted)
            missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return calls.worst(codes.get(where, missing) for where in wanted), True

        if wanted:
            self._coordinator(Call.ADD, ask, standing, self._patience_s)
            self._added |= wanted

    # -- ending

    def commit(self, batch_id: int) -> None:
        """Commits what the tasks wrote, and that this micro-batch is done, both or none.

        Asked until it is known; if that takes longer than delivery.timeout.ms, the error says that it is not known,
        and `committed_batch` tells after the next `begin`.
        """
        grant = self._open()
        homes = [self._options.topic] if self._options.topic else sorted({topic for topic, _ in self._added})
        homes = homes or list(self._homes)
        if not homes:
            return  # nothing was written, to no topic
        self._commit_offset(grant, {(topic, 0) for topic in homes}, batch_id)
        self._end_asked = True
        standing = _standing(grant)

        async def ask(connection: Connection) -> tuple[int, Any]:
            return await calls.end(connection, self.transactional_id, standing, is_commit=True)

        self._coordinator(Call.COMMIT, ask, standing, self._commit_patience_s)
        self._grant = None
        self._homes = tuple(homes)

    def _commit_offset(self, grant: Grant, homes: set[TopicPartition], batch_id: int) -> None:
        standing, group = _standing(grant), self.transactional_id
        metadata = {_MARK: batch_id} | ({} if self._query is None else {_QUERY: self._query})
        told = OffsetAndMetadata(batch_id + 1, json.dumps(metadata))

        async def add(connection: Connection) -> tuple[int, Any]:
            return await calls.add_offsets(connection, self.transactional_id, standing, group), True

        async def put(connection: Connection) -> tuple[int, Any]:
            offsets = dict.fromkeys(homes, told)
            member = GroupMetadata(group)
            codes = await calls.commit_offsets(connection, self.transactional_id, standing, member, offsets)
            missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return calls.worst(codes.get(where, missing) for where in homes), True

        self._added |= homes  # so that an abort knows that there is something
        met = Met()
        self._coordinator(Call.OFFSETS, add, standing, self._patience_s)
        self._coordinator(Call.OFFSETS, put, standing, self._patience_s, GROUP, met)
        if met.was_lost:
            # A copy that came after the end would be of no transaction, and pending until there is another.
            self._asker.run(lambda _: asyncio.sleep(self.copies_live_s))

    def abort(self) -> None:
        """Drops what was written, and fences the tasks that may still write. Nothing happens without a transaction,
        and after a commit was asked for: whether that is done is found out by the next `begin`."""
        grant, self._grant = self._grant, None
        if grant is None or self._end_asked or not self._added:
            return
        # Whoever has taken over must not be fenced by this: only the owner of the epoch is told that all is there.
        checked = {min(self._added)}
        self._added.clear()
        try:
            self._grant = grant
            self._add(grant, checked)
        except SinkTimedOut:
            return  # the brokers have aborted it, and fenced the tasks
        finally:
            self._grant = None
        self.begin()
        self._grant = None

    # -- asking

    def _open(self) -> Grant:
        if self._grant is None:
            raise SinkError(f"no transaction of {self.transactional_id!r} is open: begin comes first")
        if self._end_asked:
            raise SinkError(f"the transaction of {self.transactional_id!r} is being committed: begin comes first")
        return self._grant

    def _coordinator(
        self,
        call: Call,
        ask: Any,
        standing: Standing,
        patience_s: float,
        kind: int = TRANSACTION,
        met: Met | None = None,
    ) -> Any:
        async def work(cluster: Cluster) -> Any:
            return await ask_until(cluster, self.transactional_id, ask, standing, call, patience_s, kind, met)

        try:
            return self._told(_WHAT[call], work, is_commit=call is Call.COMMIT)
        except Refused as refused:
            self._refused(call, refused)

    def _told(self, what: str, work: Any, *, is_commit: bool = False) -> Any:
        """Runs it, and makes a sentence of what the client raises."""
        try:
            return self._asker.run(work)
        except UnsupportedVersion as error:
            raise SinkError(f"the brokers have no transactions, which are there since 0.11: {error}") from error
        except ClientError as error:
            text = f"{what} cannot be had for transactional id {self.transactional_id!r}: {self._asker.told(error)}"
            if is_commit:
                text = f"whether the micro-batch is committed is not known: {text}"
            raise SinkError(text) from error

    def _refused(self, call: Call, refused: Refused) -> NoReturn:
        owner, code = f"transactional id {self.transactional_id!r}", refused.code
        limit_ms = self._options.client.transaction_timeout_ms
        if code in _FENCED and call is not Call.INIT:
            if self._clock() - self._begun_s >= limit_ms / 1000:
                raise SinkTimedOut(
                    f"the transaction of {owner} took longer than kafka.transaction.timeout.ms, {limit_ms} ms, and was"
                    " aborted by the brokers: nothing of it counts"
                ) from refused
            raise SinkFenced(f"another query with {owner} took over: this one writes no more") from refused
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise SinkError(
                f"kafka.transaction.timeout.ms is {limit_ms}, more than the brokers allow (transaction.max.timeout.ms)"
            ) from refused
        if code in _LOST_ID:
            raise SinkError(f"the brokers do not know {owner} any more: begin anew ({refused})") from refused
        if call is Call.COMMIT and refused.verdict is Verdict.FATAL:
            raise SinkError(
                f"whether the micro-batch is committed is not known: it was refused to {owner}: {refused}"
            ) from refused
        raise SinkError(f"{_WHAT[call]} was refused to {owner}: {refused}") from refused


def idempotent_grant(options: SinkOptions) -> Grant:
    """A producer id without transactions, for tasks that share it: each partition has one task. SinkError."""

    async def work(cluster: Cluster) -> Grant:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)

        async def attempt() -> Grant:
            found = await (await cluster.any_connection()).request(request)
            if found.error_code:
                raise KafkaError(found.error_code)
            return Grant(None, found.producer_id, found.producer_epoch)

        return await retry(attempt, cluster.retry_backoff_s, attempts=ID_ATTEMPTS)

    asker = Asker(options)
    try:
        return asker.run(work)
    except ClientError as error:
        raise SinkError(f"no producer id is to be had: {asker.told(error)}") from error
    finally:
        asker.close()


def _standing(grant: Grant) -> Standing:
    """What the client's table needs to know: transactions of the first version, begun for all it knows."""
    return Standing(producer_id=grant.producer_id, epoch=grant.producer_epoch, has_begun=True)


async def _committed(connection: Connection, group: str) -> tuple[int, Mapping[TopicPartition, tuple[int, str]]]:
    """(error code, offset and metadata of each partition that the group has one of)."""
    version = connection.version_of(OffsetFetchRequest, FETCH_WITHOUT_IDS)
    stable = version >= FETCH_STABLE
    if version >= FETCH_OF_GROUPS:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(groups=[asked], require_stable=stable)
    else:
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=stable)
    response = await connection.request(request, version)
    answer = response.groups[0] if version >= FETCH_OF_GROUPS and response.groups else response
    found = {(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions}
    code = answer.error_code or calls.worst(one.error_code for one in found.values())
    return code, {
        where: (one.committed_offset, one.metadata or "") for where, one in found.items() if one.committed_offset >= 0
    }


async def _counts(cluster: Cluster, wanted: list[str], patience_s: float) -> dict[str, int]:
    attempts = itertools.count(1)

    async def attempt() -> dict[str, int]:
        number = next(attempts)
        told = (await cluster.metadata(wanted)).topics if wanted else []
        topics = {one.name: topic_of(one) for one in told if one.name is not None}
        for name in wanted:
            topic = topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and number >= MISSING_ATTEMPTS:
                raise SinkError(f"topic {name!r} does not exist: the sink makes no topics")
            if code:
                raise KafkaError(code, f"topic {name!r}")
        return {name: len(topics[name].partitions) for name in wanted}

    return await retry(attempt, cluster.retry_backoff_s, patience_s)
