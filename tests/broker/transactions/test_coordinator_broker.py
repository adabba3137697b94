"""The transaction coordinator in a broker: on real logs, failing disks, deleted and extended topics, and Kafka's
directories.
"""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.transactions.coordinator import RETRY_MS
from ottla.broker.transactions.state import Partition, Response
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import steps
from ottla_testing import GOLDEN
from ottla_testing.broker.harness import Broker, records, running
from ottla_testing.broker.held_syncs import holding
from ottla_testing.broker.transaction_world import committed_values
from ottla_testing.patience import PATIENCE_S
from ottla_testing.storage.failing_files import FailingFiles

DIRECTORIES = GOLDEN / "directories"
NONE = ErrorCode.NONE
OVERRIDES = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "1"}
ABORT_MS = 10_000  # the check for timeouts


class Producer:
    """A transactional producer that calls the broker's parts directly; each call fails unless it succeeds at once,
    except those that return a response.
    """

    def __init__(self, broker: Broker, name: str = "tx", version: int = 2) -> None:
        self.broker, self.name, self.version = broker, name, version
        self.owner: tuple[int, int] = (-1, -1)
        self.sequences: dict[tuple[Partition, int, int], int] = {}

    @property
    def coordinator(self) -> Any:
        return self.broker.state.transactions

    def send_init(self) -> Any:
        return self.coordinator.init_producer_id(self.name, timeout_ms=60_000)

    def init(self) -> Producer:
        response = self.send_init()
        assert response.error is NONE
        self.owner = response.producer_id, response.producer_epoch
        return self

    def add(self, *partitions: Partition) -> Any:
        return self.coordinator.add_partitions(self.name, *self.owner, partitions, client_version=self.version)

    def send(self, value: bytes, topic: str = "t", index: int = 0) -> None:
        key = (topic, index), *self.owner
        sequence = self.sequences.get(key, 0)
        data = records(
            value,
            producer_id=self.owner[0],
            producer_epoch=self.owner[1],
            base_sequence=sequence,
            transactional=True,
        )
        self.broker.state.topics.partition(topic, index).append(data, self.broker.clock.now_ms(), 9)
        self.sequences[key] = sequence + 1

    def write(self, value: bytes, *partitions: Partition) -> None:
        assert self.add(*partitions) == Response(NONE)
        for topic, index in partitions:
            self.send(value, topic, index)

    def commit_offset(self, offset: int, group: str = "g") -> None:
        added = self.coordinator.add_offsets(self.name, *self.owner, group, client_version=self.version)
        assert added == Response(NONE)
        code = self.broker.state.groups.commit(
            group,
            member_id="",
            instance_id=None,
            generation_id=-1,
            commits=[(("t", 0), CommittedOffset(offset))],
            producer=self.owner,
        )
        assert code is NONE

    def send_end(self, committed: bool = True) -> Any:
        return self.coordinator.end(self.name, *self.owner, committed=committed, client_version=self.version)

    def end(self, committed: bool = True) -> None:
        response = self.send_end(committed)
        assert response.error is NONE
        if self.version == 2:
            self.owner = response.producer_id, response.producer_epoch

    def state(self) -> str:
        return self.coordinator.describe(self.name)[1].state.value


def read(broker: Broker, topic: str = "t", index: int = 0) -> list[bytes]:
    """Returns the values that a read_committed consumer gets."""
    return committed_values(broker.log(topic, index))


def is_settled(broker: Broker, topic: str = "t", index: int = 0) -> bool:
    log = broker.log(topic, index)
    return not log.open_transactions() and log.last_stable_offset == log.high_watermark


def offset_of(broker: Broker, group: str = "g") -> int | None:
    found = broker.state.groups.offsets(group).get(("t", 0))
    return found.offset if found else None


A, B = ("t", 0), ("t", 1)


@pytest.mark.parametrize("version", [0, 2])
async def test_records_and_offsets_are_visible_after_end_txn(tmp_path: Path, version: int) -> None:
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        await broker.topic("t", 2)
        producer = Producer(broker, version=version).init()
        producer.write(b"one", A, B)
        producer.commit_offset(7)
        assert (read(broker), read(broker, index=1), offset_of(broker)) == ([], [], None)
        producer.end()
        assert (read(broker), read(broker, index=1), offset_of(broker)) == ([b"one"], [b"one"], 7)
        producer.write(b"two", A)
        producer.commit_offset(8)
        producer.end(False)
        assert (read(broker), offset_of(broker)) == ([b"one"], 7)
        producer.write(b"three", A)
        producer.end()
        assert read(broker) == [b"one", b"three"]
        assert is_settled(broker)
        assert is_settled(broker, GROUP_OFFSETS_TOPIC)
        assert producer.state() == "CompleteCommit"
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        assert (read(broker), read(broker, index=1), offset_of(broker)) == ([b"one", b"three"], [b"one"], 7)
        assert broker.state.transactions.describe("tx")[1].state.value == "CompleteCommit"  # type: ignore[union-attr]


async def test_transactional_offsets_of_an_open_transaction_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        await broker.topic("t", 2)
        producer = Producer(broker).init()
        producer.write(b"one", A)
        producer.commit_offset(7)
        owner = producer.owner
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        assert broker.state.groups.fetch("g", [("t", 0)], require_stable=True)[1][0].error == (
            ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
        again = Producer(broker)
        again.owner = owner
        again.end()
        assert (read(broker), offset_of(broker)) == ([b"one"], 7)


async def test_a_transaction_times_out(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        await broker.topic("t", 2)
        producer = Producer(broker).init()
        producer.write(b"one", A, B)
        producer.commit_offset(7)
        broker.clock.advance(60_000 + ABORT_MS)
        assert producer.send_end().error is ErrorCode.INVALID_TXN_STATE
        assert is_settled(broker) and is_settled(broker, index=1) and is_settled(broker, GROUP_OFFSETS_TOPIC)
        assert (read(broker), offset_of(broker)) == ([], None)
        producer.init().write(b"two", A)
        producer.end()
        assert read(broker) == [b"two"]


async def test_two_hundred_transactions_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        await broker.topic("t", 4)
        producers = [Producer(broker, f"tx{n}", version=n % 2 * 2).init() for n in range(200)]
        for step in range(2):
            for n, producer in enumerate(producers):
                producer.write(b"%d-%d" % (n, step), ("t", (n + step) % 4))
        for n, producer in enumerate(producers):
            producer.end(n % 3 != 0)
        for index in range(4):
            wanted = [(n, s) for s in range(2) for n in range(200) if n % 3 and (n + s) % 4 == index]
            assert read(broker, index=index) == [b"%d-%d" % one for one in wanted]
            assert is_settled(broker, index=index)
        assert {one.state.value for one in broker.state.transactions.list()[2]} == {"CompleteCommit", "CompleteAbort"}


# --- deleted and extended topics


async def test_a_topic_is_deleted_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        topics = broker.state.topics
        await broker.topic("t", 2)
        await broker.topic("u")
        producer = Producer(broker).init()
        producer.write(b"one", A, ("u", 0))
        topics.delete(topics.named("u"), broker.clock.now_ms())
        producer.end()
        assert producer.state() == "CompleteCommit"
        assert read(broker) == [b"one"]
        producer.write(b"two", A)
        await broker.topic("u")
        producer.write(b"three", ("u", 0))
        topics.delete(topics.named("u"), broker.clock.now_ms())
        await broker.topic("u")  # a recreated topic: it gets a marker that ends nothing
        producer.end()
        assert producer.state() == "CompleteCommit"
        assert (read(broker), read(broker, "u")) == ([b"one", b"two"], [])
        assert is_settled(broker, "u")


async def test_a_topic_is_deleted_between_a_crash_and_the_end(tmp_path: Path) -> None:
    files = FailingFiles()
    async with running(tmp_path, overrides=OVERRIDES, files=files) as broker:
        topics = broker.state.topics
        await broker.topic("t", 2)
        await broker.topic("u")
        producer = Producer(broker).init()
        producer.write(b"one", A, ("u", 0))
        files.break_down(tmp_path / "u-0", errno.ENOSPC, {"write"})
        producer.end()
        files.repair()
        assert producer.state() == "PrepareCommit"
        topics.delete(topics.named("u"), broker.clock.now_ms())
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        assert Producer(broker).state() == "CompleteCommit"
        assert read(broker) == [b"one"]


async def test_partitions_are_added_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    """Partitions of a topic in the transaction, and of the coordinator's log."""
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        topics = broker.state.topics
        await broker.topic("t", 2)
        producers = [Producer(broker, f"tx{n}").init() for n in range(10)]
        for producer in producers:
            producer.write(b"one", A)
        steps.run(topics.adding_partitions(topics.named("t"), 4, broker.clock.now_ms()))
        steps.run(topics.adding_partitions(topics.named(TRANSACTION_STATE_TOPIC), 7, broker.clock.now_ms()))
        for producer in producers:
            producer.write(b"two", ("t", 3))
        for producer in producers[:5]:
            producer.end()
        owners = [producer.owner for producer in producers]
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        for n, owner in list(enumerate(owners))[5:]:
            producer = Producer(broker, f"tx{n}")
            producer.owner = owner
            producer.end()
        assert read(broker) == [b"one"] * 10
        assert read(broker, index=3) == [b"two"] * 10
        for n, owner in enumerate(owners):
            assert Producer(broker, f"tx{n}").init().owner[0] == owner[0]


async def test_transaction_log_is_recreated_with_fewer_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        topics = broker.state.topics
        await broker.topic("t", 2)
        producers = [Producer(broker, f"tx{n}").init() for n in range(4)]
        assert {producer.coordinator.partition_of(producer.name) for producer in producers} == {0, 1}
        topics.delete(topics.named(TRANSACTION_STATE_TOPIC), broker.clock.now_ms())
        topics.create(TRANSACTION_STATE_TOPIC, 1, {}, broker.clock.now_ms())
        for producer in producers:
            index = producer.coordinator.partition_of(producer.name)
            assert producer.send_init().error is (ErrorCode.COORDINATOR_NOT_AVAILABLE if index else NONE)


async def test_the_coordinators_log_is_deleted_before_a_marker_is_written(tmp_path: Path) -> None:
    """Only the deletion of the marker's own partition makes its marker unnecessary."""
    files = FailingFiles()
    async with running(tmp_path, overrides=OVERRIDES, files=files) as broker:
        topics = broker.state.topics
        await broker.topic("t", 2)
        producer = Producer(broker).init()
        producer.write(b"one", A)
        files.break_down(tmp_path / "t-0", errno.ENOSPC, {"write"})
        producer.end()
        files.repair()
        topics.delete(topics.named(TRANSACTION_STATE_TOPIC), broker.clock.now_ms())
        broker.clock.advance(RETRY_MS)
        assert (producer.state(), read(broker), is_settled(broker)) == ("CompleteCommit", [b"one"], True)


async def test_the_log_of_offsets_is_deleted_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    """The groups keep their state until the next start, so committed offsets apply, and the transaction completes."""
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        topics = broker.state.topics
        await broker.topic("t", 2)
        producer = Producer(broker).init()
        producer.commit_offset(7)
        topics.delete(topics.named(GROUP_OFFSETS_TOPIC), broker.clock.now_ms())
        producer.end()
        assert (producer.state(), offset_of(broker)) == ("CompleteCommit", 7)
        _, (found,) = broker.state.groups.fetch("g", [A], require_stable=True)
        assert found.error is NONE


# --- failing disks


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("step", ["init", "add", "prepare"])
async def test_a_full_disk_at_each_append_of_the_coordinator(tmp_path: Path, step: str, code: int) -> None:
    """The client gets an error, and its retry succeeds once there is space."""
    files = FailingFiles()
    async with running(tmp_path, overrides=OVERRIDES, files=files) as broker:
        await broker.topic("t", 2)
        producer = Producer(broker).init()
        if step == "prepare":
            producer.write(b"one", A, B)
        requested = {"init": producer.send_init, "add": lambda: producer.add(A), "prepare": producer.send_end}[step]
        files.fails = lambda operation, path: code if operation == "write" and TRANSACTION_STATE_TOPIC in path else 0
        for _ in range(2):
            assert requested() == Response(ErrorCode.NOT_COORDINATOR)
        assert is_settled(broker) == (step != "prepare")
        files.repair()
        assert requested().error is NONE
        if step == "prepare":
            assert (read(broker), read(broker, index=1)) == ([b"one"], [b"one"])
            assert producer.state() == "CompleteCommit"


async def test_a_full_disk_at_the_completion(tmp_path: Path) -> None:
    files = FailingFiles()
    async with running(tmp_path, overrides=OVERRIDES, files=files) as broker:
        await broker.topic("t", 2)
        producer = Producer(broker).init()
        producer.write(b"one", A)
        folder = f"{TRANSACTION_STATE_TOPIC}-{producer.coordinator.partition_of('tx')}"
        files.fail_once(tmp_path / folder, errno.ENOSPC, "write", ".log", 1)  # the append after the decision
        producer.end()
        assert files.failed
        assert (producer.state(), read(broker)) == ("PrepareCommit", [b"one"])
        assert producer.send_init().error is ErrorCode.CONCURRENT_TRANSACTIONS
        broker.clock.advance(ABORT_MS)
        assert producer.state() == "CompleteCommit"
        producer.write(b"two", A)
        producer.end()
        assert read(broker) == [b"one", b"two"]


@pytest.mark.parametrize("after", ["repair", "start"])
async def test_a_full_disk_at_a_marker(tmp_path: Path, after: str) -> None:
    """The marker is written once there is space, while the broker runs or after its restart."""
    files = FailingFiles()
    async with running(tmp_path, overrides=OVERRIDES, files=files) as broker:
        await broker.topic("t", 2)
        producer = Producer(broker).init()
        producer.write(b"one", A, B)
        producer.commit_offset(7)
        files.break_down(tmp_path / "t-1", errno.ENOSPC, {"write"})
        producer.end()
        broker.clock.advance(3 * RETRY_MS)
        assert (read(broker), read(broker, index=1), offset_of(broker)) == ([b"one"], [], 7)
        assert producer.state() == "PrepareCommit"
        files.repair()
        if after == "repair":
            broker.clock.advance(RETRY_MS)
            assert producer.state() == "CompleteCommit"
            assert read(broker, index=1) == [b"one"]
    async with running(tmp_path, overrides=OVERRIDES) as broker:
        assert Producer(broker).state() == "CompleteCommit"
        assert (read(broker), read(broker, index=1), offset_of(broker)) == ([b"one"], [b"one"], 7)


async def test_offline_partition_delays_only_its_transactions(tmp_path: Path) -> None:
    """Four transactions are decided but lack their markers when a directory fails; it works again after a restart."""
    folders = [tmp_path / "one", tmp_path / "two"]
    files = FailingFiles()
    owners: dict[str, int] = {}
    async with running(*folders, overrides=OVERRIDES, files=files) as broker:
        await broker.topic("t", 4)
        producers = [Producer(broker, f"tx{n}").init() for n in range(4)]
        for n, producer in enumerate(producers):
            producer.write(b"%d" % n, *(("t", index) for index in range(4)))
            owners[producer.name] = producer.coordinator.partition_of(producer.name)
        files.fails = lambda operation, path: errno.ENOSPC if operation == "write" and "/t-" in path else 0
        for producer in producers:
            producer.end()
            assert producer.state() == "PrepareCommit"
        files.repair()
    kept = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
    served = {name for name, index in owners.items() if (kept / f"{TRANSACTION_STATE_TOPIC}-{index}").exists()}
    files.break_down(next(folder for folder in folders if folder != kept))
    async with running(*folders, overrides=OVERRIDES, files=files) as broker:
        for name in owners:
            response = Producer(broker, name).send_init()
            wanted = ErrorCode.CONCURRENT_TRANSACTIONS if name in served else ErrorCode.NOT_COORDINATOR
            assert response.error is wanted
            assert broker.state.transactions.has_resigned(name) == (name not in served)
        here = broker.state.topics.named("t").online_partitions()
        assert 0 < len(here) < 4
        for partition in here:
            assert len(partition.log.open_transactions()) == len(owners) - len(served)
    async with running(*folders, overrides=OVERRIDES) as broker:
        for name in owners:
            assert Producer(broker, name).state() == "CompleteCommit"
        for index in range(4):
            assert is_settled(broker, index=index)
            assert sorted(read(broker, index=index)) == [b"0", b"1", b"2", b"3"]


async def test_failed_directory_makes_its_ids_unavailable(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    files = FailingFiles()
    async with running(*folders, overrides=OVERRIDES, files=files) as broker:
        await broker.topic("t", 2)
        producers = [Producer(broker, f"tx{n}").init() for n in range(8)]
        metadata = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
        failing = next(folder for folder in folders if folder != metadata)
        index = next(n for n in range(2) if (failing / f"{TRANSACTION_STATE_TOPIC}-{n}").exists())
        of_it = [one for one in producers if one.coordinator.partition_of(one.name) == index]
        files.break_down(failing)
        assert of_it[0].send_init().error is ErrorCode.NOT_COORDINATOR
        await broker.settle()
        for producer in producers:
            resigned = producer in of_it
            assert producer.coordinator.has_resigned(producer.name) == resigned
            assert producer.send_init().error is (ErrorCode.NOT_COORDINATOR if resigned else NONE)


# --- syncs


async def test_responses_and_markers_wait_for_syncs(tmp_path: Path) -> None:
    overrides = {**OVERRIDES, "transaction.state.log.num.partitions": "1"}
    async with holding(tmp_path, overrides=overrides) as (broker, syncs):
        topics = broker.state.topics
        await broker.topic("t", 2, {"flush.messages": "1"})
        topics.set_configs(
            broker.state.internal_topic(TRANSACTION_STATE_TOPIC, broker.clock.now_ms()),
            {"flush.messages": "1"},
            broker.clock.now_ms(),
        )
        syncs.prefix = TRANSACTION_STATE_TOPIC
        producer = Producer(broker)
        first = producer.send_init()
        assert isinstance(first, asyncio.Future)
        await syncs.until(1)
        assert producer.send_init().error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert not first.done()
        syncs.let()
        response = await first
        producer.owner = response.producer_id, response.producer_epoch
        added = producer.add(A, B)
        syncs.let()
        assert (await added).error is NONE
        syncs.prefix = "t-"
        syncs.let(2)
        for topic, index in (A, B):
            producer.send(b"one", topic, index)
        await broker.state.durability.idle()
        begun, syncs.prefix = len(syncs.begun), TRANSACTION_STATE_TOPIC
        ended = producer.send_end()
        await syncs.until(begun + 1)
        assert len(broker.log("t").open_transactions()) == 1  # no marker before the decision is durable
        syncs.prefix = "t-"
        syncs.let()
        assert (await ended).error is NONE
        await syncs.until(begun + 3)
        assert not broker.log("t").open_transactions()
        assert producer.state() == "PrepareCommit"
        assert read(broker) == []  # the marker is not durable
        syncs.let_all()
        await broker.state.durability.idle()
        async with asyncio.timeout(PATIENCE_S):
            while producer.state() != "CompleteCommit":
                await asyncio.sleep(0.001)
        assert (read(broker), read(broker, index=1)) == ([b"one"], [b"one"])


# --- directories of Kafka


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.1"])
async def test_open_transactions_of_a_kafka_directory_continue(tmp_path: Path, release: str) -> None:
    """Their ids keep their producers, and transactions left open by Kafka are aborted at their timeout."""
    root = shutil.copytree(DIRECTORIES / release, tmp_path / "data")
    reported = json.loads((DIRECTORIES / f"{release}.json").read_text())["open-transaction"]
    clock = ManualClock(1_795_000_000_000)
    async with running(root, clock=clock) as broker:
        found = {one.transactional_id: one for one in broker.state.transactions.list()[2]}
        assert {name: one.state.value for name, one in found.items()} == {
            "one": "CompleteCommit",
            "two": "CompleteCommit",
            "three": "Ongoing",
            "cleaned": "CompleteAbort",
        }
        three = found["three"]
        assert three.partitions == (("open-transaction", 0),)
        log = broker.log("open-transaction")
        assert set(log.open_transactions()) == {three.producer_id}
        before = read(broker, "open-transaction")
        assert log.last_stable_offset == reported["last_stable_offset"]
        clock.leap(three.start_ms + 60_000 - clock.now_ms())
        assert not is_settled(broker, "open-transaction")
        clock.advance(ABORT_MS)
        assert is_settled(broker, "open-transaction")
        after = read(broker, "open-transaction")
        assert after[: len(before)] == before and len(after) > len(before)
        response = broker.state.transactions.end(
            "three", three.producer_id, three.producer_epoch, committed=True, client_version=0
        )
        assert isinstance(response, Response)
        assert response.error is ErrorCode.PRODUCER_FENCED
        await broker.topic("t")
        for name, one in found.items():
            producer = Producer(broker, name).init()
            assert producer.owner[0] == one.producer_id and producer.owner[1] > one.producer_epoch
            producer.write(name.encode(), ("t", 0))
            producer.end()
        assert read(broker) == [name.encode() for name in found]
