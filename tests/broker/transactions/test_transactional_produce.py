"""Transactional batches in Produce: verification by release and version, and errors (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.transactions.state import Response
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.records import batch, formats
from ottla.storage.errors import StorageError
from ottla_testing.broker.harness import Broker, Client, fetch, only, produce, records, running
from ottla_testing.broker.held_syncs import holding, set_config, still_waits
from ottla_testing.patience import PATIENCE_S

NOW = 1_700_000_000_000
UNKNOWN = 49
# (release, version of Produce): whether the broker verifies, whether it adds the partition itself
NEITHER = [("2.8", 8), ("3.5", 9)]
CHECKS = [("3.6", 9), ("3.9", 10), ("3.9", 11), ("4.0.0", 9), ("4.3", 11), ("ottla", 11)]
ADDS = [("4.0.0", 12), ("4.3", 13), ("ottla", 13)]


class Producer:
    """A transactional producer whose transaction requests bypass the wire."""

    def __init__(self, broker: Broker, client: Client, version: int = 9, name: str = "x") -> None:
        self.broker, self.client, self.version, self.name = broker, client, version, name
        self.id, self.epoch, self.sequence = -1, -1, 0
        self.bumps = version >= 12

    def begin(self) -> None:
        response = self.broker.state.transactions.init_producer_id(self.name, timeout_ms=60_000)
        self.take(response)

    def take(self, response: Any) -> None:
        assert isinstance(response, Response) and response.error is ErrorCode.NONE, response
        if response.producer_epoch >= 0 and (response.producer_id, response.producer_epoch) != (self.id, self.epoch):
            self.id, self.epoch, self.sequence = response.producer_id, response.producer_epoch, 0

    def add(self, *partitions: tuple[str, int]) -> None:
        version = 2 if self.bumps else 0
        response = self.broker.state.transactions.add_partitions(
            self.name, self.id, self.epoch, partitions or [("t", 0)], client_version=version
        )
        assert isinstance(response, Response) and response.error is ErrorCode.NONE, response

    def end(self, committed: bool = True) -> None:
        version = 2 if self.bumps else 0
        self.take(
            self.broker.state.transactions.end(
                self.name, self.id, self.epoch, committed=committed, client_version=version
            )
        )

    def batch(self, *values: bytes, sequence: int | None = None, **more: Any) -> bytearray:
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, "transactional": True, **more}
        made = records(*(values or (b"v",)), base_sequence=self.sequence if sequence is None else sequence, **fields)
        if sequence is None:
            self.sequence += len(values) or 1
        return made

    def request(self, data: Any, topic: str = "t", partition: int = 0, **more: Any) -> ProduceRequest:
        topic_id = self.broker.state.topics.get(topic).id  # type: ignore[union-attr]
        fields = {"transactional_id": self.name, **more}
        return produce(data, "" if self.version >= 13 else topic, partition, topic_id=topic_id, **fields)

    async def send(self, data: Any, topic: str = "t", partition: int = 0, **more: Any) -> Any:
        return only(await self.client.call(self.request(data, topic, partition, **more), self.version))


async def producing(broker: Broker, version: int = 9, name: str = "x") -> Producer:
    if broker.state.topics.get("t") is None:
        await broker.topic("t", 2)
    producer = Producer(broker, await broker.client(), version, name)
    producer.begin()
    return producer


def stored(broker: Broker, partition: int = 0) -> list[str]:
    """Returns the content of the log: committed values, aborted values, and all others."""
    found = []
    log = broker.log("t", partition)
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20).records)
        for position, header in formats.headers(data):
            for record in batch.records(data, position):
                ended = ("abort", "commit")[(record.key or b"")[3]] if header.is_control else None
                found.append(ended or (record.value or b"").decode())
            offset = header.next_offset
    return found


# -- verification


@pytest.mark.parametrize(("release", "version"), NEITHER)
async def test_produce_up_to_3_5_is_not_verified(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, version)
        assert (await producer.send(producer.batch())).error_code == 0
        assert broker.log("t").open_transactions() == {producer.id: 0}
        assert broker.log("t").last_stable_offset == 0


@pytest.mark.parametrize(("release", "version"), CHECKS)
async def test_produce_from_3_6_on_requires_an_added_partition(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, version)
        response = await producer.send(producer.batch(sequence=0))
        reported = 120 if version == 11 else 48
        assert (response.error_code, response.base_offset, response.log_start_offset) == (reported, -1, -1)
        assert (response.error_message is None) == (reported == 120)
        assert broker.log("t").log_end_offset == 0
        producer.add(("t", 1))
        assert (await producer.send(producer.batch(sequence=0))).error_code == reported
        producer.add(("t", 0))
        response = await producer.send(producer.batch(sequence=0))
        assert (response.error_code, response.base_offset) == (0, 0)


@pytest.mark.parametrize(("release", "version"), ADDS)
async def test_produce_v12_adds_the_partition(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, version)
        assert (await producer.send(producer.batch(b"a"))).error_code == 0
        assert (await producer.send(producer.batch(b"b"))).error_code == 0
        _, transaction = broker.state.transactions.describe("x")
        assert transaction is not None and transaction.partitions == (("t", 0),)
        before = producer.epoch
        producer.end()
        assert producer.epoch == before + 1
        assert (await producer.send(producer.batch(b"c"), partition=1)).error_code == 0
        producer.end(committed=False)
        assert (await producer.send(producer.batch(b"d"))).error_code == 0
        assert stored(broker) == ["a", "b", "commit", "d"] and stored(broker, 1) == ["c", "abort"]


async def test_produce_before_v12_adds_no_partition(tmp_path: Path) -> None:
    """The config disables verification, but not the implicit addition of transaction.version 2."""
    overrides = {"transaction.partition.verification.enable": "false"}
    async with running(tmp_path / "data", overrides=overrides, release="4.3") as broker:
        producer = await producing(broker, 11)
        assert (await producer.send(producer.batch())).error_code == 0
        _, transaction = broker.state.transactions.describe("x")
        assert transaction is not None and transaction.partitions == ()
        adding = await producing(broker, 12, "y")
        assert (await adding.send(adding.batch())).error_code == 0
        _, transaction = broker.state.transactions.describe("y")
        assert transaction is not None and transaction.partitions == (("t", 0),)


async def test_transaction_open_in_the_partition_is_not_verified_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker)
        producer.add()
        requested: list[Any] = []
        verify = broker.state.transactions.verify

        def counting(*arguments: Any) -> Response:
            requested.append(arguments)
            return verify(*arguments)

        monkeypatch.setattr(broker.state.transactions, "verify", counting)
        for _ in range(3):
            assert (await producer.send(producer.batch())).error_code == 0
        assert requested == [("x", producer.id, producer.epoch, [("t", 0)])]
        producer.end()
        producer.add()
        assert (await producer.send(producer.batch())).error_code == 0
        assert len(requested) == 2


# -- errors of the whole request


def to_both(producer: Producer, first: Any, second: Any, **more: Any) -> ProduceRequest:
    request = producer.request(first, **more)
    request.topic_data[0].partition_data += producer.request(second, partition=1).topic_data[0].partition_data
    return request


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3", "ottla"])
async def test_transactional_batch_without_transactional_id_is_refused(release: str, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, 8)
        request = to_both(producer, records(b"plain"), producer.batch(), transactional_id=None)
        responses = (await producer.client.call(request, 8)).responses[0].partition_responses
        assert [one.error_code for one in responses] == [53, 53]
        assert stored(broker) == [] == stored(broker, 1)
        request.acks = 0
        await producer.client.send(request, 8)
        assert await producer.client.is_closed()


async def test_two_producers_in_one_request_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker)
        producer.add(("t", 0), ("t", 1))
        request = to_both(producer, producer.batch(sequence=0), producer.batch(sequence=0, producer_id=producer.id + 1))
        responses = (await producer.client.call(request, 9)).responses[0].partition_responses
        assert [one.error_code for one in responses] == [UNKNOWN, UNKNOWN] and responses[0].error_message
        assert stored(broker) == [] == stored(broker, 1)
        request = to_both(producer, producer.batch(b"a", sequence=0), producer.batch(b"b", sequence=0))
        responses = (await producer.client.call(request, 9)).responses[0].partition_responses
        assert [one.error_code for one in responses] == [0, 0]


async def test_a_transaction_is_checked_before_its_batches(tmp_path: Path) -> None:
    """Kafka verifies with the coordinator before the log validates the batch."""
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker)
        data = producer.batch(sequence=0)
        data[-1] ^= 1
        control = producer.batch(sequence=0, control=True)
        for one in (data, control):
            assert (await producer.send(one, transactional_id=None)).error_code == 53
            assert (await producer.send(one, transactional_id="unknown")).error_code == 49
            assert (await producer.send(one)).error_code == 48
            assert (await producer.send(records(b"plain"))).error_code == 0  # with a transactional id nevertheless
        producer.add(("t", 0))
        for one, code in ((data, 2), (control, 87)):
            assert (await producer.send(one)).error_code == code


@pytest.mark.parametrize("release", ["0.11", "2.0", "2.3", "2.8", "3.5", "3.6", "3.9", "4.3", "ottla"])
async def test_a_control_batch_without_a_transactional_id_is_refused_as_kafka_does(
    release: str, tmp_path: Path
) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, 3)
        control = producer.batch(sequence=0, control=True)
        request = to_both(producer, records(b"plain"), control, transactional_id=None)
        responses = (await producer.client.call(request, 3)).responses[0].partition_responses
        assert [one.error_code for one in responses] == [53, 53]
        plain = records(b"v", control=True)
        request = to_both(producer, records(b"plain"), plain, transactional_id=None)
        responses = (await producer.client.call(request, 3)).responses[0].partition_responses
        assert [one.error_code for one in responses] == [0, 87 if release not in ("0.11", "2.0", "2.3") else 2]
        assert len(stored(broker)) == 1 and stored(broker, 1) == []


async def test_missing_partition_does_not_affect_other_partitions(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker)
        producer.add(("t", 1))
        request = to_both(producer, producer.batch(sequence=0), producer.batch(b"b", sequence=0))
        request.topic_data[0].partition_data += (
            producer.request(producer.batch(sequence=0), partition=7).topic_data[0].partition_data
        )
        responses = (await producer.client.call(request, 9)).responses[0].partition_responses
        assert [one.error_code for one in responses] == [48, 0, 3]
        assert stored(broker, 1) == ["b"]


# -- error codes of the coordinator


@pytest.mark.parametrize(
    ("error", "to_old", "to_new"),
    [
        (ErrorCode.PRODUCER_FENCED, 47, 47),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 49, 49),
        (ErrorCode.INVALID_TXN_STATE, 48, 48),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 19, 51),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 19, 19),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 19, 19),
        (ErrorCode.NOT_COORDINATOR, 19, 19),
        (ErrorCode.TRANSACTION_ABORTABLE, 48, 120),
    ],
)
async def test_verification_error_codes(
    error: ErrorCode, to_old: int, to_new: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as broker:
        old = await producing(broker)
        new = Producer(broker, old.client, 12)
        new.id, new.epoch = old.id, old.epoch
        monkeypatch.setattr(broker.state.transactions, "verify", lambda *_: Response(error))
        monkeypatch.setattr(broker.state.transactions, "add_partitions", lambda *_, client_version: Response(error))
        assert (await old.send(old.batch(sequence=0))).error_code == to_old
        assert (await new.send(new.batch(sequence=0))).error_code == to_new
        assert stored(broker) == []


async def test_verification_guard_is_kept_for_retriable_errors_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise clients could fill the memory with producer ids."""
    async with running(tmp_path / "data", release="4.3") as broker:
        producer = await producing(broker)
        guards = broker.log("t")._guards
        for number in range(5):
            await producer.send(producer.batch(sequence=0, producer_id=1000 + number))
        assert len(guards) == 0
        responses = [Response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        monkeypatch.setattr(broker.state.transactions, "verify", lambda *_: responses[0])
        assert (await producer.send(producer.batch(sequence=0))).error_code == 19
        assert len(guards) == 1
        responses[0] = Response(ErrorCode.NONE)
        # A batch sent after the refused one must not be accepted in its place.
        assert (await producer.send(producer.batch(sequence=1))).error_code == 45
        assert (await producer.send(producer.batch(sequence=0))).error_code == 0
        assert (await producer.send(producer.batch(sequence=1))).error_code == 0


# -- errors of the log


@pytest.mark.parametrize(("release", "version"), [*NEITHER, *CHECKS])
async def test_fenced_producer_gets_its_error(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        zombie = await producing(broker, version)
        zombie.add()
        assert (await zombie.send(zombie.batch(b"a"))).error_code == 0
        zombie.end()
        producer = Producer(broker, zombie.client, version)
        producer.begin()
        assert producer.epoch == zombie.epoch + 1
        producer.add()
        assert (await producer.send(producer.batch(b"b"))).error_code == 0
        assert (await zombie.send(zombie.batch(b"c"))).error_code == 47
        assert stored(broker) == ["a", "commit", "b"]


@pytest.mark.parametrize(("release", "version"), [*NEITHER, *CHECKS, *ADDS])
async def test_plain_batch_in_a_transaction_is_refused(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, version)
        if not producer.bumps:
            producer.add()
        assert (await producer.send(producer.batch())).error_code == 0
        response = await producer.send(producer.batch(sequence=1, transactional=False))
        assert (response.error_code, response.log_start_offset) == (48, 0)


@pytest.mark.parametrize(("release", "version"), [*NEITHER, *CHECKS, *ADDS])
async def test_duplicate_batch_gets_the_original_response(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, version)
        if not producer.bumps:
            producer.add()
        sent = [producer.batch(b"%d" % number) for number in range(3)]
        offsets = [(await producer.send(data)).base_offset for data in sent]
        assert offsets == [0, 1, 2]
        for data, offset in zip(sent, offsets, strict=True):
            again = await producer.send(data)
            assert (again.error_code, again.base_offset) == (0, offset)
        producer.end()
        late = await producer.send(sent[2])  # its response was lost, and the transaction has ended since
        if version >= 12:
            assert late.error_code == 47
        elif release in ("2.8", "3.5"):
            assert (late.error_code, late.base_offset) == (0, 2)
        else:
            assert late.error_code in (48, 120)
        assert stored(broker) == ["0", "1", "2", "commit"]


@pytest.mark.parametrize(("release", "version"), [("4.0", 12), ("4.1", 12), ("4.3", 13)])
async def test_transaction_of_version_2_begins_with_sequence_0(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        producer = await producing(broker, version)
        stranger = await producing(broker, version, "z")  # a producer without state in this log
        assert (await stranger.send(stranger.batch(b"z", sequence=3), partition=1)).error_code == (
            0 if release == "4.0" else 45
        )
        assert (await producer.send(producer.batch(b"a"))).error_code == 0
        producer.end()
        assert (await producer.send(producer.batch(sequence=1))).error_code == 45
        assert (await producer.send(producer.batch(b"b"))).error_code == 0
        old = await producing(broker, 11, "y")
        old.add()
        assert (await old.send(old.batch(b"c", sequence=7))).error_code == 0  # the behaviour since 2.5


# -- order


LARGE = [b"%d" % number for number in range(8_000)]  # of several steps


async def begun(broker: Broker) -> None:
    partition = broker.state.topics.partition("t", 0)
    async with asyncio.timeout(PATIENCE_S):
        while not partition.unfinished:
            await asyncio.sleep(0)


@pytest.mark.parametrize("was_open", [False, True])
async def test_slow_append_overtaken_by_an_abort_is_refused(was_open: bool, tmp_path: Path) -> None:
    """Otherwise it would be an open transaction after the marker, and block read_committed consumers forever."""
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker)
        producer.add()
        if was_open:
            assert (await producer.send(producer.batch(b"a"))).error_code == 0
        large = producer.batch(*LARGE, codec=1)
        sent = asyncio.create_task(producer.send(large))
        await begun(broker)
        producer.end(committed=False)
        response = await sent
        assert (response.error_code, response.log_start_offset) == (48, 0)
        assert stored(broker) == (["a"] if was_open else []) + ["abort"]
        assert broker.log("t").open_transactions() == {}


async def test_slow_append_needs_its_own_verification_guard(tmp_path: Path) -> None:
    """The transaction that it was verified for has ended; the next one also contains the partition, which does not
    help.
    """
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker)
        producer.add()
        sent = asyncio.create_task(producer.send(producer.batch(*LARGE, codec=1, sequence=0)))
        await begun(broker)
        producer.end(committed=False)
        producer.add()
        assert (await sent).error_code == 48
        assert (await producer.send(producer.batch(b"a", sequence=0))).error_code == 0


@pytest.mark.parametrize("version", [9, 12])
async def test_pipelined_requests_keep_their_order(version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker, version)
        if not producer.bumps:
            producer.add()
        sent = [producer.batch(*LARGE, codec=1), *(producer.batch(b"%d" % number) for number in range(4))]
        for data in sent:
            await producer.client.send(producer.request(data), version)
        responses = [only((await producer.client.receive())[1]) for _ in sent]
        assert [response.error_code for response in responses] == [0] * 5
        assert [response.base_offset for response in responses] == [0, *(len(LARGE) + n for n in range(4))]


async def test_append_waits_for_the_durable_addition_of_its_partition(tmp_path: Path) -> None:
    """With flush.messages the addition takes a sync; other appends to the partition and the next request of the
    connection wait too.
    """
    async with holding(tmp_path / "data") as (broker, syncs):
        syncs.prefix = "__transaction_state-"
        producer = await producing(broker, 12)
        await set_config(producer.client, 2, "__transaction_state", "flush.messages", "1")
        tasks = []
        for data in [producer.batch(b"a"), producer.batch(b"b")]:
            await producer.client.send(producer.request(data), 12)
        other = Producer(broker, await broker.client(), 12, "plain")
        await syncs.until(1)
        tasks.append(asyncio.create_task(other.send(records(b"c"), transactional_id=None)))
        await still_waits(broker, *tasks)
        assert broker.log("t").log_end_offset == 0
        syncs.let_all()
        responses = [only((await producer.client.receive())[1]) for _ in range(2)]
        assert (await tasks[0]).error_code == 0
        assert [response.error_code for response in responses] == [0, 0]
        assert stored(broker) == ["a", "c", "b"]


async def settled_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> asyncio.Future[Any]:
    """Lets the test decide when the coordinator responds to requests for partitions."""
    response = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(broker.state.transactions, "add_partitions", lambda *_, client_version: response)
    return response


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda response: response.set_result(Response(ErrorCode.NONE)), 0),
        (lambda response: response.set_result(Response(ErrorCode.PRODUCER_FENCED)), 47),
        (lambda response: response.set_exception(StorageError("no disk")), 56),
        (lambda response: response.cancel(), 19),
    ],
)
async def test_late_verification_counts_like_an_immediate_one(
    end: Callable[[asyncio.Future[Any]], Any], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker, 12)
        response = await settled_later(broker, monkeypatch)
        sent = asyncio.create_task(producer.client.call(to_both(producer, producer.batch(), producer.batch()), 12))
        await still_waits(broker, sent)
        end(response)
        responses = (await sent).responses[0].partition_responses
        # Two batches of the producer, with sequences 0 and 1, for two partitions.
        assert [one.error_code for one in responses] == ([0, 59] if code == 0 else [code, code])
        assert len(broker.log("t")._guards) == (code in (0, 19))


async def test_marker_overtakes_an_append_that_waits_for_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verification result is of a transaction that has ended."""
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker, 12)
        response = await settled_later(broker, monkeypatch)
        sent = asyncio.create_task(producer.send(producer.batch()))
        await still_waits(broker, sent)
        partition = broker.state.topics.partition("t", 0)
        fields = {"coordinator_epoch": 0, "now_ms": NOW}
        partition.log.append_marker(producer.id, producer.epoch, committed=False, **fields)
        response.set_result(Response(ErrorCode.NONE))
        assert (await sent).error_code == 48 and stored(broker) == ["abort"]


# -- markers and visibility


async def test_marker_completes_delayed_read_committed_fetches(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker, 12)
        assert (await producer.send(producer.batch(b"a"))).error_code == 0
        reader = await broker.client()
        waits = asyncio.create_task(reader.call(fetch(("t", 0, 0), max_wait_ms=100_000, isolation_level=1), 11))
        await still_waits(broker, waits)
        producer.end()
        found = (await waits).responses[0].partitions[0]
        assert found.last_stable_offset == 2 and found.records


async def test_transaction_is_visible_once_its_marker_is_durable(tmp_path: Path) -> None:
    async with holding(tmp_path / "data") as (broker, syncs):
        syncs.prefix = "none"
        producer = await producing(broker, 12)
        assert (await producer.send(producer.batch(b"a"))).error_code == 0
        await set_config(producer.client, 2, "t", "flush.messages", "1")
        syncs.prefix = "t-"
        log = broker.log("t")
        producer.end()
        await syncs.until(1)
        assert (log.log_end_offset, log.last_stable_offset) == (2, 0)
        assert not broker.state.transactions.describe("x")[1].state.name.startswith("COMPLETE")  # type: ignore[union-attr]
        syncs.let_all()
        async with asyncio.timeout(PATIENCE_S):
            while log.last_stable_offset < 2:
                await asyncio.sleep(0)


@pytest.mark.parametrize("version", [9, 12])
async def test_transaction_continues_after_a_restart(version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker, version)
        if not producer.bumps:
            producer.add()
        first = producer.batch(b"a")
        assert (await producer.send(first)).error_code == 0
    async with running(tmp_path / "data") as broker:
        producer.broker, producer.client = broker, await broker.client()
        assert broker.log("t").last_stable_offset == 0
        again = await producer.send(first)  # its response was lost
        assert (again.error_code, again.base_offset) == (0, 0)
        assert (await producer.send(producer.batch(b"b"))).error_code == 0
        producer.end(committed=False)
        assert stored(broker) == ["a", "b", "abort"] and broker.log("t").last_stable_offset == 3


async def test_delete_records_during_a_transaction(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        producer = await producing(broker)
        producer.add()
        for value in (b"a", b"b", b"c"):
            assert (await producer.send(producer.batch(value))).error_code == 0
        log = broker.log("t")
        log.delete_records_before(2)
        assert log.last_stable_offset == 2
        assert (await producer.send(producer.batch(b"d"))).error_code == 0
        log.delete_records_before(4)
        response = await producer.send(
            producer.batch(b"e")
        )  # no record of it is left, and the transaction is open nevertheless
        assert (response.error_code, response.base_offset, response.log_start_offset) == (0, 4, 4)
        producer.end()
        assert log.last_stable_offset == 6 and log.open_transactions() == {}
