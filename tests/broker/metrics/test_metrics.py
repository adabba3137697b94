"""Metrics compared with exact counts of requests over the wire."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metrics.counters import RequestMetrics
from ottla.broker.metrics.histogram import SECONDS
from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.controlling import Api, controlled
from ottla_testing.broker.harness import Broker, Client, fetch, frame, ping, produce, records
from ottla_testing.broker.metering import OPENMETRICS, Scrape, scraped
from ottla_testing.broker.sharing import ACCEPT, RELEASE, Member, initialize
from ottla_testing.broker.streaming import joining

REQUESTS = "kafka_network_requestmetrics_requests_total"
ERRORS = "kafka_network_requestmetrics_errors_total"
TIMES = "kafka_network_requestmetrics_totaltime_seconds"
TOPICS = "kafka_server_brokertopicmetrics_"
PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
LAG = "kafka_consumergroup_lag"


class Metered:
    """A broker with a control plane, and scrapes of it."""

    def __init__(self, broker: Broker, api: Api) -> None:
        self.broker = broker
        self.api = api

    async def scrape(self) -> Scrape:
        scrape = await scraped(self.api.url)
        assert scrape.problems() == []
        return scrape

    async def topic_values(self, name: str, **labels: str) -> dict[str, float | None]:
        scrape = await self.scrape()
        return {word: scrape.value(f"{TOPICS}{word}_total", **labels) for word in name.split()}


@contextlib.asynccontextmanager
async def metered(folder: Path, **more: Any) -> AsyncIterator[Metered]:
    async with controlled(folder, **more) as (broker, api):
        yield Metered(broker, api)


class Timer:
    """A manual timer: each reading advances it by `step_ns`."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.step_ns = 0

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


def commit(topic: str, partition: int, offset: int, group_id: str = "g") -> OffsetCommitRequest:
    requested = OffsetCommitRequest.OffsetCommitRequestTopic
    one = requested.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(group_id=group_id, topics=[requested(name=topic, partitions=[one])])


async def test_requests_are_counted_by_version_and_errors_by_name(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("t", partitions=2)
        sizes = []
        for version, request in (
            *((9, produce(records(b"a", b"b"), partition=index)) for index in (0, 1, 7)),
            (7, produce(records(b"c"))),
            (9, produce(bytes(records(b"bad crc"))[:-1] + b"!")),
        ):
            sizes.append(len(frame(request, version, 1)) - 4)
            await client.call(request, version)
        await client.call(fetch(("t", 0, 0), ("t", 1, 99)), 11)
        await client.call(MetadataRequest(topics=None), 9)
        scrape = await metered_broker.scrape()
        counted = {labels: value for labels, value in scrape.all(REQUESTS).items() if labels[0] != "ApiVersions"}
        assert counted == {("Produce", "9"): 4, ("Produce", "7"): 1, ("Fetch", "11"): 1, ("Metadata", "9"): 1}
        errors = {labels: value for labels, value in scrape.all(ERRORS).items() if value}
        assert errors == {
            ("NONE", "Produce"): 3,
            ("UNKNOWN_TOPIC_OR_PARTITION", "Produce"): 1,
            ("CORRUPT_MESSAGE", "Produce"): 1,
            ("NONE", "Fetch"): 2,  # one is the error code of the whole response, as in Metadata
            ("OFFSET_OUT_OF_RANGE", "Fetch"): 1,
            ("NONE", "Metadata"): 4,
        }
        assert scrape.value("kafka_network_requestmetrics_requestbytes_sum", request="Produce") == sum(sizes)
        assert scrape.value("kafka_network_requestmetrics_requestbytes_count", request="Produce") == 5
        assert scrape.value("ottla_protocol_violations_total") == 0


async def test_response_bytes_match_the_wire(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        for version in (0, 3):
            await client.send(ping(), version)
        sizes = [len(await client.receive_bytes()) for _ in range(2)]
        scrape = await metered_broker.scrape()
        assert scrape.value("ottla_response_bytes_sum", request="ApiVersions") == sum(sizes)
        assert scrape.value("ottla_response_bytes_count", request="ApiVersions") == 2
        assert scrape.all(REQUESTS) == {("ApiVersions", "0"): 1, ("ApiVersions", "3"): 1}


async def test_request_times_match_a_timer(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        timer = Timer()
        client = await metered_broker.broker.client()
        metered_broker.broker.running.connections.observe(RequestMetrics(timer))
        steps_ns = [round(bound * 1e9) + more for bound in SECONDS for more in (-1, 0, 1)]
        for step_ns in steps_ns:
            timer.step_ns = step_ns
            await client.call(ping(), 0)
        scrape = await metered_broker.scrape()
        assert scrape.value(f"{TIMES}_sum", request="ApiVersions") == pytest.approx(sum(steps_ns) / 1e9, abs=1e-9)
        assert scrape.value(f"{TIMES}_count", request="ApiVersions") == len(steps_ns)
        for bound in SECONDS:  # a time equal to the bound is within it
            below = sum(step_ns <= round(bound * 1e9) for step_ns in steps_ns)
            assert scrape.value(f"{TIMES}_bucket", request="ApiVersions", le=bound) == below
        assert scrape.value(f"{TIMES}_bucket", request="ApiVersions", le="+Inf") == len(steps_ns)


async def test_time_of_a_delayed_request_ends_at_its_response(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        timer = Timer()
        broker = metered_broker.broker
        await broker.topic("t")
        reader, writer = await broker.client(), await broker.client()
        broker.running.connections.observe(RequestMetrics(timer))
        await reader.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        while not any(connection.waiting for connection in broker.running.connections.open):
            await asyncio.sleep(0)
        timer.now_ns += 3_000_000_000
        await writer.call(produce(records(b"x")), 9)
        await reader.receive()
        scrape = await metered_broker.scrape()
        assert scrape.value(f"{TIMES}_sum", request="Fetch") == 3
        assert scrape.value(f"{TIMES}_sum", request="Produce") == 0


async def test_topic_traffic_is_counted(tmp_path: Path) -> None:
    names = "messagesin bytesin bytesout totalproducerequests totalfetchrequests failedproducerequests bytesrejected"
    async with metered(tmp_path, overrides={"message.max.bytes": "2000"}) as metered_broker:
        broker = metered_broker.broker
        client = await broker.client()
        first, second = await broker.topic("first"), await broker.topic("second")
        three, one, large = records(b"a", b"b", b"c"), records(b"d"), records(b"x" * 3000)
        await client.call(produce(three, "first"), 9)
        await client.call(produce(one, topic="", topic_id=second), 13)
        await client.call(produce(large, "first"), 9)
        await client.send(produce(one, "first", acks=0), 9)
        await client.call(ping(), 0)
        got = await client.call(fetch((first, 0, 0), (second, 0, 0)), 13)
        out = {topic.topic_id: len(topic.partitions[0].records) for topic in got.responses}
        assert await metered_broker.topic_values(names, topic="first") == {
            "messagesin": 4,
            "bytesin": len(three) + len(one),
            "bytesout": out[first],
            "totalproducerequests": 3,
            "totalfetchrequests": 1,
            "failedproducerequests": 0,  # a too large batch is the client's error
            "bytesrejected": len(large),
        }
        everything = await metered_broker.topic_values(names)
        assert (everything["messagesin"], everything["bytesout"]) == (5, sum(out.values()))
        broker.state.topics.delete(broker.state.topics.named("first"), 0)
        assert await metered_broker.topic_values("messagesin", topic="first") == {"messagesin": None}
        assert await metered_broker.topic_values(names) == everything


async def test_asynchronous_append_is_counted_by_the_sent_size(tmp_path: Path) -> None:
    """The buffer of a request is reused when its append ends, here after a sync."""
    names = "messagesin bytesin totalproducerequests producemessageconversions"
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("t", configs={"flush.messages": "1", "compression.type": "gzip"})
        sent = [records(b"a"), records(b"b", b"c", codec=Codec.GZIP), records(b"d" * 100)]
        for data in sent:
            await client.send(produce(data), 9)
        codes = [(await client.receive())[1].responses[0].partition_responses[0].error_code for _ in sent]
        assert codes == [0, 0, 0]
        assert await metered_broker.topic_values(names, topic="t") == {
            "messagesin": 4,
            "bytesin": sum(map(len, sent)),
            "totalproducerequests": 3,
            "producemessageconversions": 2,
        }


async def test_duplicates_are_counted_and_unexpected_errors_are_failures(tmp_path: Path) -> None:
    names = "messagesin totalproducerequests failedproducerequests"
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("t")
        numbered = [records(b"x", producer_id=1, producer_epoch=0, base_sequence=n) for n in (0, 0, 5)]
        codes = [
            (await client.call(produce(data), 9)).responses[0].partition_responses[0].error_code for data in numbered
        ]
        assert codes == [0, 0, 45]
        assert await metered_broker.topic_values(names, topic="t") == {
            "messagesin": 2,
            "totalproducerequests": 3,
            "failedproducerequests": 1,
        }
        assert (await metered_broker.scrape()).value("kafka_server_replicamanager_produceridcount") == 1


async def test_conversions_of_produce_and_fetch_are_counted(tmp_path: Path) -> None:
    names = "producemessageconversions fetchmessageconversions messagesin"
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("old")
        await metered_broker.broker.topic("packed", configs={"compression.type": "gzip"})
        sent = [batch.Record(n, 1_700_000_000_000, b"key", b"value", ()) for n in range(3)]
        await client.call(produce(legacy.build(sent, magic=1), "old"), 2)
        await client.call(produce(records(b"as it is stored"), "old"), 9)
        await client.call(produce(records(b"a", b"b"), "packed"), 9)
        await client.call(produce(records(b"c", codec=Codec.GZIP), "packed"), 9)
        assert await metered_broker.topic_values(names, topic="old") == {
            "producemessageconversions": 3,
            "fetchmessageconversions": 0,
            "messagesin": 4,
        }
        assert (await metered_broker.topic_values(names, topic="packed"))["producemessageconversions"] == 2
        await client.call(fetch(("old", 0, 0)), 11)
        assert (await metered_broker.topic_values(names, topic="old"))["fetchmessageconversions"] == 0
        await client.call(fetch(("old", 0, 0)), 2)
        assert (await metered_broker.topic_values(names, topic="old"))["fetchmessageconversions"] == 4


async def test_delayed_requests_are_in_the_purgatory_metric(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        broker = metered_broker.broker
        await broker.topic("t")
        readers = [await broker.client() for _ in range(3)]
        for reader in readers:
            await reader.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        while (scrape := await metered_broker.scrape()).value(PURGATORY, delayedoperation="Fetch") != 3:
            await asyncio.sleep(0)
        assert scrape.value(PURGATORY, delayedoperation="Produce") == 0
        assert scrape.value(PURGATORY, delayedoperation="Rebalance") == 0
        assert scrape.value(REQUESTS, request="Fetch", version=11) is None
        await (await broker.client()).call(produce(records(b"x")), 9)
        for reader in readers:
            await reader.receive()
        scrape = await metered_broker.scrape()
        assert scrape.value(PURGATORY, delayedoperation="Fetch") == 0
        assert scrape.value("ottla_requests_waiting", request="Fetch") == 0
        assert scrape.value(REQUESTS, request="Fetch", version=11) == 3


async def test_groups_of_the_consumer_protocol_are_counted_by_state(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        fields = {"member_epoch": 0, "rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]}
        for name in ("m", "n"):  # the second one waits for the next assignment
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=name, topic_partitions=[], **fields)
            assert (await client.call(request, 1)).error_code == 0
        scrape = await metered_broker.scrape()
        of = "kafka_server_group_coordinator_metrics_"
        assert scrape.all(f"{of}groups") == {("classic",): 0, ("consumer",): 1, ("share",): 0, ("streams",): 0}
        counted = scrape.all(f"{of}consumer_groups")
        assert {state: count for (state,), count in counted.items() if count} == {"assigning": 1}
        assert scrape.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
        assert scrape.value("kafka_consumergroup_members", consumergroup="g") == 2


async def test_share_groups_are_counted_by_state(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        joining = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
        assert (await client.call(joining, 1)).error_code == 0
        scrape = await metered_broker.scrape()
        of = "kafka_server_group_coordinator_metrics_"
        assert scrape.all(f"{of}groups") == {("classic",): 0, ("consumer",): 0, ("share",): 1, ("streams",): 0}
        assert scrape.all(f"{of}share_groups") == {("empty",): 0, ("stable",): 1, ("dead",): 0}
        assert scrape.value("kafka_consumergroup_members", consumergroup="g") == 1


async def test_streams_groups_are_counted_by_state(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("t")
        assert (await client.call(joining(), 1)).error_code == 0
        scrape = await metered_broker.scrape()
        of = "kafka_server_group_coordinator_metrics_"
        assert scrape.all(f"{of}groups") == {("classic",): 0, ("consumer",): 0, ("share",): 0, ("streams",): 1}
        counted = scrape.all(f"{of}streams_groups")
        assert {state: count for (state,), count in counted.items() if count} == {"assigning": 1}
        assert scrape.value("kafka_consumergroup_members", consumergroup="k") == 1


async def test_share_partitions_sessions_and_acknowledgements_are_counted(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        broker = metered_broker.broker
        topic_id = await broker.topic("t", partitions=2)
        client = await broker.client()
        await client.call(produce(records(b"a", b"b", b"c", b"d")), 9)
        await initialize(client, (topic_id, 0))
        place, member = (topic_id, 0), await Member.join(broker)
        await member.fetch(place, (topic_id, 9))
        await member.acknowledge({place: [(0, 1, [ACCEPT]), (2, 2, [RELEASE])]})
        await member.acknowledge({place: [(0, 1, [ACCEPT])]})
        clock: Any = broker.clock
        await clock.advance(30_000)
        scrape = await metered_broker.scrape()
        acknowledged = scrape.all("kafka_server_sharegroupmetrics_recordacknowledgements_total")
        assert acknowledged == {("Accept",): 4, ("Release",): 1, ("Reject",): 0, ("Renew",): 0}
        labels = {"group": "g", "topic": "t", "partition": "0"}
        of = "kafka_server_sharepartitionmetrics_"
        assert scrape.value(f"{of}inflightmessagecount", **labels) == 2
        assert scrape.value(f"{of}inflightbatchcount", **labels) == 1
        sizes = f"{of}inflightbatchmessagecount"
        assert [scrape.value(f"{sizes}_bucket", **labels, le=most) for most in ("2", "5", "+Inf")] == [0, 1, 1]
        assert scrape.value(f"{sizes}_sum", **labels) == 4
        assert scrape.value(f"{of}acquisitionlocktimeout_total", **labels) == 1
        assert scrape.value("kafka_server_sharesessioncache_sharesessionscount") == 1
        assert scrape.value("kafka_server_sharesessioncache_sharepartitionscount") == 2
        assert (scrape.value("kafka_server_share_coordinator_metrics_write_total") or 0) >= 2
        of = "kafka_server_brokertopicmetrics_"
        counted = {
            name: scrape.value(f"{of}{name}requests_total", topic="t")
            for name in (
                "totalsharefetch",
                "failedsharefetch",
                "totalshareacknowledgement",
                "failedshareacknowledgement",
            )
        }
        assert list(counted.values()) == [1, 1, 2, 0]


async def test_share_fetches_are_counted_by_time_and_acquirable_partitions(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        broker, ns = metered_broker.broker, itertools.count(step=400_000_000)
        broker.state.share_partitions.timer = ns.__next__
        topic_id = await broker.topic("t", partitions=2)
        client = await broker.client()
        for partition in (0, 1):
            await client.call(produce(records(b"a"), partition=partition), 9)
            await initialize(client, (topic_id, partition))
        member = await Member.join(broker)
        # Begins at 0, loads until 0.8 and 1.6, acquires at 2.0; the last partition does not exist.
        await member.fetch((topic_id, 0), (topic_id, 1), (topic_id, 9))
        await member.acknowledge({(topic_id, 0): [(0, 0, [RELEASE])]})
        await member.fetch()
        scrape, of = await metered_broker.scrape(), "kafka_server_sharegroupmetrics_"
        assert scrape.value(f"{of}partitionloadtime_seconds_count") == 2
        assert scrape.value(f"{of}partitionloadtime_seconds_sum") == 0.8
        time, ratio = f"{of}topicpartitionsacquiretime_seconds", f"{of}requesttopicpartitionsfetchratio"
        assert scrape.value(f"{time}_sum", group="g") == 2.4
        assert [scrape.value(f"{time}_bucket", group="g", le=most) for most in ("0.25", "0.5", "2.5")] == [0, 1, 2]
        assert [scrape.value(f"{ratio}_bucket", group="g", le=most) for most in ("60", "70")] == [0, 2]
        assert scrape.value(f"{ratio}_sum", group="g") == 132


async def test_consumer_lag(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("t", partitions=2)
        for index, values in ((0, (b"a", b"b", b"c")), (1, (b"d",))):
            await client.call(produce(records(*values), partition=index), 9)
        for index, offset in ((0, 1), (1, 1)):
            response = await client.call(commit("t", index, offset), 8)
            assert response.topics[0].partitions[0].error_code == 0
        scrape = await metered_broker.scrape()
        assert scrape.all(LAG) == {("g", "0", "t"): 2, ("g", "1", "t"): 0}
        assert scrape.all("kafka_consumergroup_current_offset") == {("g", "0", "t"): 1, ("g", "1", "t"): 1}
        assert scrape.value("kafka_consumergroup_members", consumergroup="g") == 0
        assert scrape.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
        assert scrape.value("kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1
        assert scrape.value("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 2
        await client.call(produce(records(*[b"e"] * 5)), 9)
        assert (await metered_broker.scrape()).value(LAG, consumergroup="g", topic="t", partition=0) == 7
        state = metered_broker.broker.state
        state.topics.delete(state.topics.named("t"), 0)  # its offsets stay, because the test bypasses the wire
        assert (await metered_broker.scrape()).all(LAG) == {}


async def test_log_node_and_leader_metrics(tmp_path: Path) -> None:
    async with metered(tmp_path, brokers=3) as metered_broker:
        broker = metered_broker.broker
        await broker.topic("t", partitions=3, configs={"min.insync.replicas": "3"})
        leader = broker.state.topics.partition("t", 0).leader
        client = await broker.client(leader - 1)
        await client.call(produce(records(b"x", b"y")), 9)
        scrape = await metered_broker.scrape()
        log = broker.log("t")
        at = {"topic": "t", "partition": "0"}
        assert scrape.value("kafka_log_log_size", **at) == log.size_bytes
        assert scrape.value("kafka_log_log_logstartoffset", **at) == 0
        assert scrape.value("kafka_log_log_logendoffset", **at) == 2
        assert scrape.value("kafka_log_log_numlogsegments", **at) == 1
        replicas, nodes = "kafka_server_replicamanager_", "123"
        assert scrape.all(f"{replicas}partitioncount") == {(node,): 3 for node in nodes}
        assert scrape.all(f"{replicas}leadercount") == {(node,): 1 for node in nodes}
        assert scrape.all(f"{replicas}atminisrpartitioncount") == {(node,): 1 for node in nodes}
        assert scrape.all(f"{replicas}underreplicatedpartitions") == {(node,): 0 for node in nodes}
        broker.state.topology.stop_node(3)
        broker.state.topology.take_offline("t", 0)
        scrape = await metered_broker.scrape()
        leads = scrape.all(f"{replicas}leadercount")
        assert leads[("3",)] == 0 and sum(leads.values()) == 2
        assert sum(scrape.all(f"{replicas}underreplicatedpartitions").values()) == 2
        assert sum(scrape.all(f"{replicas}underminisrpartitioncount").values()) == 2
        assert scrape.all("kafka_server_kafkaserver_brokerstate") == {("1",): 3, ("2",): 3, ("3",): 0}
        controller = "kafka_controller_kafkacontroller_"
        wanted = {"activebrokercount": 2, "fencedbrokercount": 1, "activecontrollercount": 1, "globaltopiccount": 1}
        wanted |= {"globalpartitioncount": 3, "offlinepartitionscount": 1}
        assert {name: scrape.value(controller + name) for name in wanted} == wanted


async def test_connections_and_protocol_violations(tmp_path: Path) -> None:
    sockets = "kafka_server_socket_server_metrics_"
    async with metered(tmp_path) as metered_broker:
        broker = metered_broker.broker
        first, second = await broker.client(), await broker.client()
        request = ping()
        request.client_software_name, request.client_software_version = "some-client", "1.2"
        await first.call(request, 3)
        await second.send_bytes(b"\0\0\0\x0a" + b"\x7f" * 10)
        assert await second.is_closed()
        scrape = await metered_broker.scrape()
        of_it = {"listener": "PLAINTEXT", "software": "some-client", "version": "1.2"}
        assert scrape.value(f"{sockets}connections", **of_it) == 1
        assert scrape.value(f"{sockets}connection_creation_total", listener="PLAINTEXT") == 2
        assert scrape.value(f"{sockets}connection_close_total", listener="PLAINTEXT") == 1
        assert scrape.value("ottla_protocol_violations_total") == 1


async def test_fired_faults_are_counted(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        fault = await metered_broker.api.call("POST", "/faults", {"action": "error", "code": 29, "api": "Metadata"})
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("t")
        for _ in range(2):
            await client.call(MetadataRequest(topics=None), 9)
        scrape = await metered_broker.scrape()
        assert scrape.value("ottla_faults") == 1
        assert scrape.value("ottla_fault_fired_total", fault=fault["id"], action="error") == 2
        assert scrape.value(ERRORS, request="Metadata", error="TOPIC_AUTHORIZATION_FAILED") == 2


async def test_counters_survive_a_reset(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.api.call("POST", "/topics", {"name": "t"})
        await client.call(produce(records(b"x")), 9)
        await metered_broker.api.call("POST", "/state/reset")
        scrape = await metered_broker.scrape()
        messages = f"{TOPICS}messagesin_total"
        assert scrape.value(messages) == 1 and scrape.value(messages, topic="t") is None
        await metered_broker.api.call("POST", "/topics", {"name": "t"})
        client = await Client.connect(metered_broker.broker.ports[0])
        await client.call(produce(records(b"x", b"y")), 9)
        client.close()
        scrape = await metered_broker.scrape()
        assert scrape.value(messages) == 3 and scrape.value(messages, topic="t") == 2


async def test_both_exposition_formats_agree(tmp_path: Path) -> None:
    async with metered(tmp_path) as metered_broker:
        client = await metered_broker.broker.client()
        await metered_broker.broker.topic("t")
        await client.call(produce(records(b"x")), 9)
        text = await metered_broker.scrape()
        more = await scraped(metered_broker.api.url, Accept=OPENMETRICS)
        assert more.content_type.startswith("application/openmetrics-text; version=1.0.0")
        assert text.content_type == "text/plain; version=0.0.4; charset=utf-8"
        assert more.problems() == []

        def ours(scrape: Scrape) -> dict[Any, float]:
            return {
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for sample in scrape.samples()
                if sample.name.startswith(("kafka_", "ottla_")) and "loop_lag" not in sample.name
            }

        assert ours(text) == ours(more) and len(ours(text)) > 80
        assert {name for name, family in text.families.items() if family.type == "histogram"} == {
            TIMES,
            "kafka_server_sharegroupmetrics_partitionloadtime_seconds",
            "kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio",
            "kafka_server_sharegroupmetrics_topicpartitionsacquiretime_seconds",
            "kafka_server_sharepartitionmetrics_inflightbatchmessagecount",
            "ottla_event_loop_lag_seconds",
        }
        for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
            assert (text.value(name) or 0) > 0


async def test_without_a_control_plane_nothing_is_counted(tmp_path: Path) -> None:
    from ottla_testing.broker import harness

    async with harness.running(tmp_path) as broker:
        connections = broker.running.connections
        assert connections.metrics is None and broker.state.topic_metrics is None
        await broker.topic("t")
        client = await broker.client()
        assert (await client.call(produce(records(b"x")), 9)).responses[0].partition_responses[0].error_code == 0
