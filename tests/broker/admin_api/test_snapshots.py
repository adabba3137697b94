"""Snapshots and restores of a broker's whole state: data, ids, groups, producers, transactions, clock and nodes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import Embedded
from ottla.broker.admin_api import operations
from ottla.broker.broker_state import BrokerState
from ottla.broker.testing.embedded import BrokerFailed, OperationError, TopicInfo
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.configuring import GROUP, LOGGER, SET, change, listed, shown
from ottla_testing.broker.harness import Client, Closed, fetch, produce, records
from ottla_testing.broker.transacting import Owner

DAY_MS = 86_400_000


async def client_of(broker: Embedded, node: int = 1) -> Client:
    host, _, port = broker.bootstrap.split(",")[node - 1].rpartition(":")
    return await Client.connect(int(port), host)


def connects(broker: Embedded, node: int = 1) -> bool:
    host, _, port = broker.bootstrap.split(",")[node - 1].rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True


def values(broker: Embedded, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def topics_of(broker: Embedded) -> list[TopicInfo]:
    """Returns all topics without leader epochs: these never go back, since clients have seen them."""
    return [
        replace(topic, partitions=tuple(replace(one, leader_epoch=0) for one in topic.partitions))
        for topic in broker.topics()
    ]


def leaders_of(broker: Embedded) -> Any:
    """Returns the topology without leader epochs."""
    described = broker.topology.describe()
    return replace(described, partitions=tuple(replace(one, leader_epoch=0) for one in described.partitions))


def commit(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


@pytest.mark.parametrize("on_disk", [False, True])
def test_snapshot_can_be_restored_any_number_of_times(tmp_path: Path, on_disk: bool):
    with Embedded(data_dir=tmp_path / "data" if on_disk else None) as broker:
        broker.create_topic("kept", partitions=2, configs={"retention.ms": 5000})
        broker.send_many("kept", [("a", "1"), ("b", "2"), ("c", "3")])
        first, topics = broker.snapshot(), topics_of(broker)
        found = broker.records("kept")
        broker.send("kept", "4", key="a")
        broker.create_topic("late")
        second = broker.snapshot()
        broker.delete_topic("kept")
        for _ in range(2):
            broker.restore(first)
            assert topics_of(broker) == topics and broker.records("kept") == found
            assert broker.send("kept", "5", partition=0) == sum(record.partition == 0 for record in found)
            broker.restore(second)
            assert {topic.name for topic in broker.topics()} == {"kept", "late"}
            assert sorted(value for value in values(broker, "kept") if value) == [b"1", b"2", b"3", b"4"]
        broker.reset()
        assert broker.topics() == []
        broker.send("kept", "anew")
    if on_disk:
        with Embedded(data_dir=tmp_path / "data") as broker:
            assert values(broker, "kept") == [b"anew"]


async def test_restore_disconnects_clients_and_keeps_cluster_id_and_port():
    async with Embedded() as broker:
        broker.create_topic("t")
        broker.send("t", "x")
        snapshot = broker.snapshot()
        client = await client_of(broker)
        before = await client.call(MetadataRequest(topics=None), 12)
        waiting = asyncio.ensure_future(client.call(fetch(("t", 0, 1), max_wait_ms=60_000), 12))
        await asyncio.sleep(0)
        joining = await client_of(broker)
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")]
        join = JoinGroupRequest(
            group_id="g", member_id="", protocol_type="consumer", protocols=protocols, session_timeout_ms=10_000
        )
        await joining.call(join, 3)
        await joining.send(join, 3)
        broker.restore(snapshot)
        with pytest.raises(Closed):
            await waiting
        assert await joining.is_closed()
        assert broker.group("g").state == "Dead"
        for one in (client, joining):
            one.close()
        client = await client_of(broker)
        after = await client.call(MetadataRequest(topics=None), 12)
        client.close()
        assert after == before


async def test_groups_and_producers_continue_from_the_snapshot():
    async with Embedded() as broker:
        broker.create_topic("t")
        client = await client_of(broker)
        owner = Owner(client)
        assert await owner.init() == 0
        now_ms = broker.clock.now_ms  # entries older than a day expire
        identity: dict[str, Any] = {"producer_id": owner.id, "producer_epoch": owner.epoch, "timestamp": now_ms}
        first = produce(records(b"0", base_sequence=0, **identity))
        second = produce(records(b"1", base_sequence=1, **identity))
        assert (await client.call(first, 9)).responses[0].partition_responses[0].error_code == 0
        await client.call(commit("g", "t", 1), 8)
        snapshot = broker.snapshot()
        assert broker.group("g").committed == {("t", 0): 1} and broker.group("g").lag == 0
        await client.call(second, 9)
        await client.call(commit("g", "t", 2), 8)
        assert broker.producers("t")[0].last_sequence == 1
        broker.restore(snapshot)
        assert broker.producers("t")[0].last_sequence == 0
        assert broker.group("g").committed == {("t", 0): 1} and broker.group("g").lag == 0
        client.close()
        client = await client_of(broker)
        again = (await client.call(second, 9)).responses[0].partition_responses[0]
        assert (again.error_code, again.base_offset) == (0, 1)
        repeated = (await client.call(first, 9)).responses[0].partition_responses[0]
        assert (repeated.error_code, repeated.base_offset) == (0, 0)  # a copy
        assert values(broker, "t") == [b"0", b"1"] and broker.group("g").lag == 1
        client.close()


@pytest.mark.parametrize("committed", [True, False])
async def test_restore_reopens_a_transaction_that_was_open(committed: bool):
    async with Embedded() as broker:
        broker.create_topic("t")
        client = await client_of(broker)
        owner = Owner(client)
        await owner.init()
        await owner.add(("t", 0))
        assert await owner.send(b"in the transaction") == 0
        snapshot = broker.snapshot()
        assert await owner.end(committed=not committed) == 0
        assert values(broker, "t") == ([] if committed else [b"in the transaction"])
        broker.restore(snapshot)
        assert values(broker, "t") == [] and broker.producers("t")[0].transaction_start_offset == 0
        client.close()
        owner.client = client = await client_of(broker)
        assert await owner.end(committed=committed) == 0
        broker.clock.advance(0)
        assert values(broker, "t") == ([b"in the transaction"] if committed else [])
        client.close()


async def test_restore_drops_later_broker_configs():
    async with Embedded() as broker:
        snapshot = broker.snapshot()
        change = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
            name="log.retention.ms", config_operation=0, value="12345"
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4, resource_name="1", configs=[change]
        )
        requested = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=4, resource_name="1", configuration_keys=["log.retention.ms"]
                )
            ]
        )

        async def state_of() -> Any:
            client = await client_of(broker)
            try:
                return (await client.call(requested, 4)).results[0].configs[0].value
            finally:
                client.close()

        client = await client_of(broker)
        before = await state_of()
        await client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        client.close()
        later = broker.snapshot()
        assert await state_of() == "12345" != before
        broker.restore(snapshot)
        assert await state_of() == before
        broker.restore(later)
        assert await state_of() == "12345"


async def test_restore_drops_later_group_configs_and_logger_levels():
    async def set_all(client: Any, timeout_ms: str, level: str) -> None:
        session = ("consumer.session.timeout.ms", SET, timeout_ms)
        assert await change(client, GROUP, "g", session) == (0, None)
        assert await change(client, LOGGER, "1", ("root", SET, level)) == (0, None)

    async def state_of(broker: Embedded) -> tuple[Any, Any]:
        client = await client_of(broker)
        try:
            found = await listed(client, GROUP), await shown(client, GROUP, "g", "consumer.session.timeout.ms")
            (level,) = (await shown(client, LOGGER, "1", "root")).values()
            return (found[0][1], found[1]["consumer.session.timeout.ms"]), level
        finally:
            client.close()

    async with Embedded() as broker:
        client = await client_of(broker)
        await set_all(client, "46000", "ERROR")
        snapshot = broker.snapshot()
        await set_all(client, "47000", "DEBUG")
        client.close()
        assert await state_of(broker) == (([(GROUP, "g")], ("47000", 8)), ("DEBUG", 6))
        broker.restore(snapshot)
        assert await state_of(broker) == (([(GROUP, "g")], ("46000", 8)), ("WARN", 6))
        broker.reset()
        assert await state_of(broker) == (([], ("45000", 5)), ("WARN", 6))


def test_restore_brings_back_clock_and_nodes():
    with Embedded(brokers=3) as broker:
        broker.create_topic("t", partitions=3)
        broker.clock.freeze()
        broker.clock.advance(DAY_MS)
        broker.topology.move_leader("t", 0, 2) if broker.topology.leader("t") != 2 else None
        broker.topology.stop_node(3)
        at_ms, nodes = broker.clock.now_ms, leaders_of(broker)
        snapshot = broker.snapshot()
        broker.topology.start_node(3)
        broker.clock.run()
        broker.clock.advance(7 * DAY_MS)
        broker.restore(snapshot)
        assert broker.clock.is_frozen and broker.clock.now_ms == at_ms
        assert leaders_of(broker) == nodes and broker.bootstrap.count(",") == 2
        assert [connects(broker, node) for node in (1, 2, 3)] == [True, True, False]
        broker.topology.start_node(3)
        assert connects(broker, 3)
        broker.reset()
        assert not broker.clock.is_frozen and abs(broker.clock.offset_ms) < 1000
        assert all(node.running for node in broker.topology.describe().nodes)


def test_timers_set_before_a_restore_do_not_fire_after_it():
    with Embedded(configs={"log.retention.check.interval.ms": 1000}) as broker:
        broker.create_topic("t", configs={"retention.ms": DAY_MS, "segment.ms": 1000, "file.delete.delay.ms": 0})
        broker.clock.freeze()
        broker.send("t", "old")
        snapshot = broker.snapshot()
        for _ in range(2):
            broker.clock.advance(DAY_MS - 10)
            assert values(broker, "t") == [b"old"]
            broker.clock.advance(2000)
            assert values(broker, "t") == []
            broker.restore(snapshot)
            assert values(broker, "t") == [b"old"]


def test_snapshot_is_restored_into_another_broker_in_memory():
    with Embedded() as one, Embedded() as other, Embedded("3.9") as older, Embedded(brokers=2) as two:
        one.send("t", "x")
        snapshot = one.snapshot()
        other.restore(snapshot)
        one.send("t", "y")
        other.send("t", "z")
        assert values(one, "t") == [b"x", b"y"] and values(other, "t") == [b"x", b"z"]
        for misfit in (older, two):
            with pytest.raises(OperationError, match="the snapshot is of"):
                misfit.restore(snapshot)
            assert misfit.topics() == []


def test_snapshot_in_memory_is_refused_by_a_broker_on_disk(tmp_path: Path):
    with Embedded() as one, Embedded(data_dir=tmp_path / "data") as other:
        for first, second in ((one, other), (other, one)):
            with pytest.raises(OperationError, match="cannot replace data directories"):
                first.restore(second.snapshot())


def test_copy_on_disk_is_removed_with_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.send("t", "x")
        kept = set(tmp_path.glob("ottla-snapshot-*"))
        snapshot = broker.snapshot()
        assert len(set(tmp_path.glob("ottla-snapshot-*")) - kept) == 1
        del snapshot
        broker.send("t", "y")  # until then the thread of the broker may have the result of the last call
        assert set(tmp_path.glob("ottla-snapshot-*")) == kept
    del broker
    assert not set(tmp_path.glob("ottla-snapshot-*"))


class BadDisk(MemoryFiles):
    """Files in memory whose syncs can fail."""

    is_bad = False

    def sync_directory(self, path: str) -> None:
        if self.is_bad:
            raise OSError(errno.EIO, "injected", path)
        super().sync_directory(path)


def test_restore_starts_a_broker_whose_disk_failed(capfd: pytest.CaptureFixture[str]):
    broker = Embedded()
    broker._thread._files = files = BadDisk(broker._thread._now_ns)
    with broker:
        broker.send("t", "x")
        snapshot = broker.snapshot()
        files.is_bad = True
        broker.delete_topic("t")
        for call in (broker.topics, lambda: broker.send("t", "y"), broker.snapshot, broker.clock.state):
            with pytest.raises(BrokerFailed, match="injected"):
                call()
        assert not connects(broker)
        broker.restore(snapshot)
        assert values(broker, "t") == [b"x"] and connects(broker)
    assert "log directory failed" in capfd.readouterr().err


def test_broker_whose_disk_failed_can_be_stopped():
    broker = Embedded()
    broker._thread._files = files = BadDisk(broker._thread._now_ns)
    with broker:
        broker.create_topic("t")
        files.is_bad = True
        broker.delete_topic("t")
    with pytest.raises(OperationError, match="does not run"):
        broker.topics()


def test_restore_brings_a_failed_directory_back_online(capfd: pytest.CaptureFixture[str]):
    with Embedded(configs={"log.dirs": "/one,/two"}) as broker:
        broker.create_topic("t", partitions=4)
        broker.send_many("t", ["a", "b", "c", "d"])
        snapshot = broker.snapshot()
        with broker.faults.disk_error(path="/two/*", on="write"):
            for partition in range(4):
                with contextlib.suppress(OperationError):
                    broker.send("t", "e", partition=partition)
        offline = [p.partition for p in broker.topic("t").partitions if p.offline is not None]
        assert len(offline) == 2 and all("/two/" in (p.offline or "/two/") for p in broker.topic("t").partitions)
        with pytest.raises(OperationError, match="KAFKA_STORAGE_ERROR"):
            broker.records("t")
        with pytest.raises(OperationError, match="a log directory has failed, /two"):
            broker.snapshot()
        broker.restore(snapshot)
        broker.assert_produced("t", ["a", "b", "c", "d"], ordered=False)
    assert "log directory failed" in capfd.readouterr().err


def test_reset_is_refused_if_the_start_was_too_large_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.send("t", "x")
    monkeypatch.setattr(operations, "START_BYTES", 10)
    with Embedded(data_dir=tmp_path / "data") as broker:
        with pytest.raises(OperationError, match="too large to be kept"):
            broker.reset()
        broker.restore(broker.snapshot())
        assert values(broker, "t") == [b"x"]


def test_replaced_states_are_garbage_collected():
    with Embedded() as broker:
        broker.send("t", "x")
        snapshot = broker.snapshot()
        for _ in range(6):
            broker.restore(snapshot)
            broker.send("t", "y")
        gc.collect()
        assert sum(type(found) is BrokerState and found.loop is broker._thread.loop for found in gc.get_objects()) == 1
        assert values(broker, "t") == [b"x", b"y"]


def tree(files: Any, path: str = "/ottla") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.list(path):
        below = f"{path}/{name}"
        try:
            found[below] = files.read_bytes(below)
        except IsADirectoryError:
            found |= tree(files, below)
    return found


async def test_restored_files_equal_those_of_the_snapshot():
    async with Embedded(brokers=2) as broker:
        broker.clock.freeze()
        broker.create_topic("t", configs={"segment.ms": 1000})
        broker.create_topic("u", configs={"cleanup.policy": "compact"})
        client = await client_of(broker)
        for number in range(4):
            broker.send("t", str(number))
            broker.clock.advance(1500)
            broker.send("u", str(number), key="k")
            await client.call(commit("g", "t", number), 8)
            broker.snapshot()
        owner = Owner(client)
        await owner.init()
        await owner.add(("t", 0))
        await owner.send(b"open")
        broker.topology.move_leader("t", 0, 2)
        snapshot = broker.snapshot()
        client.close()
        kept = tree(snapshot.store)
        for _ in range(2):
            broker.restore(snapshot)
            assert tree(broker.snapshot().store) == kept
        broker.send("t", "more")
        assert tree(snapshot.store) == kept


NAMES = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.just("send"), NAMES, st.integers(1, 40)),
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("advance"), st.sampled_from([1, 999, DAY_MS])),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("reset")),
)


@given(st.lists(STEPS, max_size=20))
def test_random_operations_between_snapshot_and_restore_leave_the_same_state(steps: list[tuple[Any, ...]]):
    """Against a dict: whatever operations precede and follow a snapshot, restoring it gives the state of its time."""
    with Embedded(configs={"log.retention.ms": -1}) as broker:
        broker.clock.freeze()
        now: dict[str, list[bytes]] = {}
        at_ms = broker.clock.now_ms
        kept: list[tuple[Any, dict[str, list[bytes]], int]] = []
        for number, (step, *arguments) in enumerate(steps):
            if step == "send":
                sent = [b"%d-%d" % (number, one) for one in range(arguments[1])]
                broker.send_many(arguments[0], sent)
                now = {**now, arguments[0]: [*now.get(arguments[0], []), *sent]}
            elif step == "create" and arguments[0] not in now:
                broker.create_topic(arguments[0])
                now = {**now, arguments[0]: []}
            elif step == "delete" and arguments[0] in now:
                broker.delete_topic(arguments[0])
                now = {name: found for name, found in now.items() if name != arguments[0]}
            elif step == "advance":
                at_ms = broker.clock.advance(arguments[0]).now_ms
            elif step == "snapshot":
                kept.append((broker.snapshot(), now, at_ms))
            elif step == "restore" and kept:
                snapshot, now, at_ms = kept[arguments[0] % len(kept)]
                broker.restore(snapshot)
            elif step == "reset":
                broker.reset()
                broker.clock.freeze()
                now, at_ms = {}, broker.clock.now_ms
            assert {topic.name: values(broker, topic.name) for topic in broker.topics()} == now
            assert broker.clock.now_ms == at_ms


async def test_requests_held_by_faults_end_with_the_state():
    async with Embedded() as broker:
        broker.create_topic("t")
        snapshot = broker.snapshot()
        broker.faults.stall("Produce")
        broker.faults.delay("Fetch", 60_000)
        clients = [await client_of(broker) for _ in range(2)]
        await clients[0].send(produce(records(b"x")), 9)
        await clients[1].send(fetch(("t", 0, 0)), 12)
        for rule in broker.faults.list():
            await asyncio.to_thread(rule.wait_fired)
        broker.restore(snapshot)
        for client in clients:
            assert await client.is_closed()
            client.close()
        assert values(broker, "t") == [] and len(broker.faults.list()) == 2


def test_broker_stops_during_restores():
    broker = Embedded().start()
    broker.send("t", "x")
    snapshot = broker.snapshot()
    state_of: list[str] = []

    def restoring() -> None:
        while not state_of:
            try:
                broker.restore(snapshot)
            except OperationError as error:
                state_of.append(str(error))

    threads = [threading.Thread(target=restoring) for _ in range(3)]
    for thread in threads:
        thread.start()
    broker.clock.advance(1)
    broker.stop()
    for thread in threads:
        thread.join()
    assert state_of
    with broker:
        assert values(broker, "t") == [b"x"]


def test_compaction_continues_after_a_restore():
    with Embedded() as broker:
        broker.clock.freeze()
        configs = {"cleanup.policy": "compact", "segment.ms": 1000, "min.cleanable.dirty.ratio": 0.01}
        broker.create_topic("t", configs=configs)
        for number in range(6):
            broker.send("t", str(number), key="k")
            broker.clock.advance(2000)
        broker.send("t", "last", key="other")
        snapshot = broker.snapshot()
        for _ in range(2):
            broker.clock.advance(60_000)
            assert values(broker, "t") == [b"5", b"last"]
            broker.restore(snapshot)
