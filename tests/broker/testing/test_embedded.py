"""A broker in the process of a test: start and stop, topics, records, groups and producers."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.config.serve_options import StartupError
from ottla.broker.releases.profiles import PROFILE_NAMES
from ottla.broker.testing.embedded import AlreadyExists, BrokerFailed, NotFound, OperationError
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, assignment_bytes, subscription_bytes
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla_testing.broker.harness import Client, produce, records
from ottla_testing.broker.transacting import Owner
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    return host.strip("[]"), int(port)


def connects(bootstrap: str) -> bool:
    try:
        socket.create_connection(address(bootstrap)).close()
    except ConnectionRefusedError:
        return False
    return True


async def client_of(broker: Embedded) -> Client:
    host, port = address(broker.bootstrap)
    return await Client.connect(port, host)


# Topics and records


def test_records_are_in_the_partitions_they_were_sent_to():
    with Embedded() as broker:
        topic = broker.create_topic("orders", partitions=3)
        assert broker.send(topic, "first", key="a", headers=[("h", "1"), ("n", None)]) == 0
        assert broker.send(topic, b"\xff", partition=2) == 0
        assert broker.send(topic, None, key=b"a", timestamp_ms=5) == 1
        found = broker.records(topic)
        assert [(r.key, r.value) for r in found] == [(b"a", b"first"), (b"a", None), (None, b"\xff")]
        assert found[0].headers == (("h", b"1"), ("n", None)) and found[1].timestamp_ms == 5
        assert broker.records(topic, 2) == found[2:]
        assert [(t.name, len(t.partitions)) for t in broker.topics()] == [("orders", 3)]
        ends = [(p.start_offset, p.end_offset, p.stable_offset) for p in broker.topic("orders").partitions]
        assert ends == [(0, 0, 0), (0, 2, 2), (0, 1, 1)]
        broker.delete_topic(topic)
        assert broker.topics() == []
        with pytest.raises(NotFound, match="UNKNOWN_TOPIC_OR_PARTITION"):
            broker.records(topic)


def test_many_records_are_sent_in_few_batches():
    with Embedded() as broker:
        topic = broker.create_topic(partitions=4)
        sent = [(None if number % 3 else f"k{number % 7}", bytes([number % 256]) * 500) for number in range(3000)]
        offsets = broker.send_many(topic, sent)
        found = broker.records(topic)
        at = {(r.partition, r.offset): r.value for r in found}
        assert len(at) == 3000 and sorted(offsets) == sorted(r.offset for r in found)
        assert len({r.partition for r in found if r.key == b"k3"}) == 1
        assert all(count > 400 for count in (sum(r.partition == p for r in found) for p in range(4)))
        broker.assert_produced(topic, sent, ordered=False)
        assert broker.send_many(topic, []) == []


def test_assert_produced_compares_the_records():
    with Embedded() as broker:
        broker.send_many("t", [("k", "1"), "2"])
        broker.assert_produced("t", ["1", "2"])
        broker.assert_produced("t", ["2", ("k", "1")], ordered=False)
        with pytest.raises(AssertionError) as caught:
            broker.assert_produced("t", ["1", "3"])
        assert str(caught.value) == "topic t: expected 2 (-), found 2 (+)\n    b'1'\n  - b'3'\n  + b'2'"


def test_refused_operations_raise_one_line():
    with Embedded(configs={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("t")
        with pytest.raises(AlreadyExists, match=r"TOPIC_ALREADY_EXISTS: Topic 't' already exists"):
            broker.create_topic("t")
        for arguments, text in (
            ({"name": "a b"}, "INVALID_TOPIC_EXCEPTION"),
            ({"configs": {"retention": 1}}, "INVALID_CONFIG: Unknown topic config name: retention"),
            ({"partitions": 0}, "INVALID_PARTITIONS"),
            ({"replication_factor": 2}, "INVALID_REPLICATION_FACTOR"),
        ):
            with pytest.raises(OperationError, match=text):
                broker.create_topic(**arguments)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            broker.send("u", "x")
        with pytest.raises(NotFound, match="no partition 1"):
            broker.send("t", "x", partition=1)
        with pytest.raises(NotFound):
            broker.records("t", 1)
        with pytest.raises(NotFound):
            broker.delete_topic("u")
        with pytest.raises(OperationError, match="MESSAGE_TOO_LARGE"):
            broker.send("t", bytes(2_000_000))
        with pytest.raises(TypeError):
            broker.send("t", 5)  # type: ignore[arg-type]
        assert [topic.name for topic in broker.topics()] == ["t"] and broker.records("t") == []


@each("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@each("format", ["0.9.0", "0.10.2", "3.0"])
def test_records_of_every_format_and_codec_are_read(format: str, codec: str):
    configs = {"message.format.version": format, "compression.type": codec}
    sent = [(f"k{number}", f"value {number}" * 20) for number in range(50)]
    broker_configs = {"inter.broker.protocol.version": "2.8"}
    with Embedded("2.8", broker_configs) as broker:
        if codec == "zstd" and format != "3.0":
            configs["compression.type"] = "gzip"  # no old format has it
        if format == "3.0":
            del configs["message.format.version"]
        broker.create_topic("t", configs=configs)
        broker.send_many("t", sent)
        broker.assert_produced("t", sent)
        stored = broker.records("t")
        assert [r.offset for r in stored] == [*range(50)]
        assert all((r.timestamp_ms == -1) == (format == "0.9.0") for r in stored)


async def test_aborted_and_open_transactions_are_not_among_the_records():
    async with Embedded() as broker:
        broker.create_topic("t")
        client = await client_of(broker)
        owners = [Owner(client, name) for name in ("one", "two")]
        for owner in owners:
            await owner.init()
            await owner.add(("t", 0))
        for number in range(3):
            for owner in owners:
                assert await owner.send(b"%s %d" % (owner.name.encode(), number)) == 0
            broker.send("t", f"between {number}")
        assert broker.records("t") == []
        assert await owners[0].end(committed=False) == 0
        assert await owners[1].end(committed=True) == 0
        broker.clock.advance(0)
        broker.assert_produced("t", [text for number in range(3) for text in (f"two {number}", f"between {number}")])
        client.close()


# Groups and producers


async def test_group_has_members_offsets_and_lag():
    async with Embedded() as broker:
        broker.create_topic("t", partitions=2)
        broker.send_many("t", [("a", "1"), ("a", "2"), ("a", "3")])
        assert broker.groups() == [] and broker.group("g").state == "Dead"
        client = await client_of(broker)
        subscription = subscription_bytes(ConsumerProtocolSubscription(topics=["t"]))
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)]
        join = JoinGroupRequest(
            group_id="g", member_id="", protocol_type="consumer", protocols=protocols, session_timeout_ms=10_000
        )
        joined = await client.call(join, 3, "me")
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=assignment_bytes([("t", [0, 1])])
        )
        await client.call(
            SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=[assignment]),
            3,
        )
        at = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
        commits = [at(partition_index=p, committed_offset=1, committed_metadata="m") for p in (0, 1)]
        await client.call(
            OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=1,
                member_id=joined.member_id,
                topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=commits)],
            ),
            7,
        )
        group = broker.group("g")
        assert (group.state, group.protocol_type, group.protocol, group.generation) == (
            "Stable",
            "consumer",
            "range",
            1,
        )
        (member,) = group.members
        assert (member.client_id, member.client_host, member.session_timeout_ms) == ("me", "/127.0.0.1", 10_000)
        assert member.topics == ("t",) and member.assignment == (("t", 0), ("t", 1))
        assert group.leader == member.member_id == joined.member_id
        ends = [partition.end_offset for partition in broker.topic("t").partitions]
        assert group.committed == {("t", 0): 1, ("t", 1): 1} and group.offsets[0].metadata == "m"
        assert group.lag == sum(max(0, end - 1) for end in ends) == 2
        assert broker.groups() == [group]
        broker.delete_topic("t")
        assert broker.group("g").lag == 0
        client.close()


async def test_producers_are_listed_by_partition():
    async with Embedded() as broker:
        broker.create_topic("t", partitions=2)
        client = await client_of(broker)
        data = records(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0, timestamp=broker.clock.now_ms)
        await client.call(produce(data, "t", 1), 9)
        (known,) = broker.producers()
        assert (known.topic, known.partition, known.producer_id, known.producer_epoch) == ("t", 1, 7, 3)
        assert (known.last_sequence, known.transaction_start_offset) == (1, -1)
        assert broker.producers("t") == [known]
        with pytest.raises(NotFound):
            broker.producers("u")
        client.close()


# Starting and stopping


@each("release", PROFILE_NAMES, strided=True)
def test_every_release_starts(release: str):
    with Embedded(release) as broker:
        broker.create_topic("t")
        broker.send("t", "x", key="k")
        broker.assert_produced("t", [("k", "x")])


def test_failed_start_raises_in_the_caller(tmp_path: Path):
    with pytest.raises(ValueError, match=r"did you mean num\.partitions\?"):
        Embedded(configs={"num.partition": 1})
    with pytest.raises(ValueError, match=r"unknown release 5\.11; did you mean"):
        Embedded("5.11")
    with pytest.raises(ValueError, match=r"num\.partitions"):
        Embedded(configs={"num.partitions": "many"})
    with pytest.raises(ValueError, match="expected 1 to 100"):
        Embedded(brokers=0)
    with pytest.raises(ValueError, match="HOST:PORT"):
        Embedded(listeners="localhost:99999:1")
    before = threading.active_count()
    with Embedded(data_dir=tmp_path / "data") as broker:
        with pytest.raises(StartupError, match="in use by another broker"):
            Embedded(data_dir=tmp_path / "data").start()
        with pytest.raises(StartupError, match="cannot listen on"):
            Embedded(listeners=broker.bootstrap).start()
        with pytest.raises(OperationError, match="runs already"):
            broker.start()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartupError, match="cannot use"):
        Embedded(data_dir=tmp_path / "file").start()
    assert threading.active_count() == before


def test_stopped_broker_refuses_calls_and_keeps_its_data():
    broker = Embedded()
    broker.stop()
    with pytest.raises(OperationError, match="does not run"):
        broker.topics()
    with broker:
        broker.send("t", "x")
        snapshot = broker.snapshot()
        bootstrap = broker.bootstrap
    assert not connects(bootstrap)
    with pytest.raises(OperationError, match="does not run"):
        broker.send("t", "y")
    with broker:
        broker.assert_produced("t", ["x"])
        broker.send("t", "y")
        broker.restore(snapshot)
        broker.assert_produced("t", ["x"])
    broker.stop()


def test_data_directories_keep_records_for_the_next_broker(tmp_path: Path):
    folders = [tmp_path / "one", tmp_path / "two"]
    with Embedded(data_dir=folders) as broker:
        broker.create_topic("t", partitions=4)
        broker.send_many("t", ["a", "b", "c", "d"])
    assert all((folder / ".kafka_cleanshutdown").exists() for folder in folders)
    assert len([*tmp_path.glob("*/t-*")]) == 4
    with Embedded(data_dir=folders) as broker:
        broker.assert_produced("t", ["a", "b", "c", "d"], ordered=False)


def test_listeners_are_those_of_the_arguments():
    with Embedded(listeners=["127.0.0.1:0", "SECOND=0.0.0.0:0"], brokers=2) as broker:
        assert broker.bootstrap == broker.bootstraps["PLAINTEXT"] and set(broker.bootstraps) == {"PLAINTEXT", "SECOND"}
        every = ",".join(broker.bootstraps.values()).split(",")
        assert len(set(every)) == 4 and all(connects(one) for one in every)
        assert [node.port for node in broker.topology.describe().nodes] == [
            int(one.rpartition(":")[2]) for one in broker.bootstrap.split(",")
        ]
    with Embedded(configs={"listeners": "PLAINTEXT://localhost:0"}) as broker:
        assert broker.bootstrap.startswith("localhost:") and connects(broker.bootstrap)


def test_defaults_for_tests_apply_unless_given():
    with Embedded() as broker:
        config = broker.options.config
        assert config["group.initial.rebalance.delay.ms"] == 0 and config["offsets.topic.num.partitions"] == 4
    config = Embedded(configs={"group.initial.rebalance.delay.ms": 7, "log.cleaner.enable": False}).options.config
    assert config["group.initial.rebalance.delay.ms"] == 7 and config["log.cleaner.enable"] is False


async def test_broker_runs_beside_the_callers_event_loop():
    async with Embedded() as broker, Embedded() as other:
        client = await client_of(broker)
        waiting = asyncio.ensure_future(client.call(ApiVersionsRequest(), 0))
        broker.send("t", "x")
        assert (await waiting).error_code == 0 and other.topics() == []
        client.close()
        with pytest.raises(KeyError):
            async with Embedded():
                raise KeyError
        with pytest.raises(StartupError):
            async with Embedded(listeners=broker.bootstrap):
                raise AssertionError("it cannot have started")


def test_broker_is_used_by_many_threads():
    failures: list[BaseException] = []

    def work(broker: Embedded, number: int) -> None:
        try:
            topic = broker.create_topic(f"t{number}")
            for value in range(20):
                broker.send(topic, str(value))
            broker.assert_produced(topic, [str(value) for value in range(20)])
        except BaseException as error:
            failures.append(error)

    with Embedded() as broker:
        threads = [threading.Thread(target=work, args=(broker, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures and len(broker.topics()) == 8


def test_error_in_the_block_is_not_replaced_by_one_of_the_stop():
    with pytest.raises(KeyError), Embedded() as broker:
        broker.send("t", "x")
        broker.faults.disk_error()
        raise KeyError
    with pytest.raises(OperationError, match="not everything could be written"), Embedded() as broker:
        broker.send("t", "x")
        broker.faults.disk_error()
    broker.stop()


def test_call_in_the_brokers_own_thread_is_refused():
    found: list[BaseException] = []

    def within(broker: Embedded) -> None:
        for call in (broker.topics, broker.stop):
            try:
                call()
            except RuntimeError as error:
                found.append(error)

    with Embedded() as broker:
        loop = broker._thread.loop
        assert loop is not None
        loop.call_soon_threadsafe(within, broker)
        broker.topics()
        assert ["own thread" in str(error) for error in found] == [True, True]


# Resources


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_stopped_brokers_leave_no_threads_or_descriptors(scaled: Callable[[int], int]):
    def one(number: int) -> None:
        with Embedded(brokers=1 + number % 3) as broker:
            broker.send("t", "x")
            broker.restore(broker.snapshot())
            assert connects(broker.bootstrap)

    one(0)
    gc.collect()
    threads, files, objects = threading.active_count(), open_files(), len(gc.get_objects())
    others = {id(found) for found in gc.get_objects() if type(found) is Embedded}  # of tests before this one
    for number in range(scaled(40)):
        one(number)
    gc.collect()
    assert threading.active_count() == threads and open_files() == files
    assert len(gc.get_objects()) < objects + 2000
    assert not [found for found in gc.get_objects() if type(found) is Embedded and id(found) not in others]


def test_broker_logs_only_warnings_and_does_not_configure_structlog():
    program = """
import structlog
from ottla.broker import Embedded
with Embedded() as broker:
    broker.create_topic("t")
    broker.delete_topic("t")
    broker.faults.disk_error(topic="u")
    try:
        broker.send("u", "x")
    except Exception:
        pass
assert not structlog.is_configured()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0 and done.stdout == "", done.stderr
    lines = done.stderr.splitlines()
    assert any("[error" in line for line in lines) and not any("[info" in line for line in lines)


def test_importing_the_package_does_not_import_embedded():
    program = (
        "import sys, ottla.broker; print([n for n in ('asyncio', 'ottla.broker.network.server') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "[]", done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'Embed'"):
        _: Any = __import__("ottla.broker").broker.Embed


def test_first_start_imports_nothing_that_takes_long_and_is_not_needed():
    late = "aiohttp construct cryptography encodings.idna importlib.metadata pdb platform re2 structlog uuid".split()
    program = (
        "import sys\nfrom ottla.broker import Embedded\n"
        f"with Embedded(): print([name for name in {late} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "[]", done.stderr + done.stdout


# Faults


def test_faults_apply_to_requests_disk_and_sockets():
    with Embedded() as broker:
        broker.create_topic("t")
        snapshot = broker.snapshot()
        with broker.faults.disk_error(topic="t", on="write") as fault:
            with pytest.raises(OperationError, match="KAFKA_STORAGE_ERROR"):
                broker.send("t", "x")
            assert fault.fired
        with pytest.raises(BrokerFailed):
            broker.send("t", "x")
        broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
        broker.restore(snapshot)
        assert broker.send("t", "x") == 0 and len(broker.faults.list()) == 1
        broker.faults.refuse()
        assert not connects(broker.bootstrap)
        broker.reset()
        assert broker.faults.list() == [] and broker.topics() == []
        assert connects(broker.bootstrap)


def test_faults_added_before_the_start_apply():
    broker = Embedded()
    fault = broker.faults.refuse()
    with broker:
        assert not connects(broker.bootstrap)
        fault.remove()
        assert connects(broker.bootstrap)


def test_records_without_a_timestamp_get_the_brokers_time():
    with Embedded("2.8", {"inter.broker.protocol.version": "2.8"}) as broker:
        configs = {"message.format.version": "0.9.0", "retention.ms": 3_600_000, "segment.ms": 1000}
        broker.create_topic("t", configs=configs)
        broker.clock.freeze()
        broker.clock.advance(50_000_000)
        broker.send("t", "x")
        broker.clock.advance(3_000_000)
        broker.assert_produced("t", ["x"])
        broker.clock.advance(1_000_000)
        broker.assert_produced("t", [])


def test_forked_process_does_not_wait_for_the_broker():
    with Embedded() as broker:
        broker._thread._process += 1  # as if a fork had made this process
        with pytest.raises(OperationError, match="the parent process"):
            broker.topics()
        broker._thread._process -= 1
        assert broker.topics() == []
