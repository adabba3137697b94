"""Requests with matching rules: which parts are handled, the order of responses, and the connection afterwards.

Delays are in real time and short. A test of what must not happen meanwhile compares the order of events and never
waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.faults.rule_set import Faults
from ottla.broker.network import fault_injection
from ottla.broker.testing.faults import FaultsView
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records import batch
from ottla_testing.broker.harness import Broker, Client, Closed, fetch, only, ping, produce, records, running, values
from ottla_testing.patience import PATIENCE_S, patiently

NOT_LEADER = 6


@contextlib.asynccontextmanager
async def world(folder: Path, **more: Any) -> AsyncIterator[tuple[Broker, Client, FaultsView]]:
    """A broker with faults and topic t of two partitions."""
    faults = Faults()
    async with running(folder / "data", faults=faults, **more) as broker:
        await broker.topic("t", 2)
        yield broker, await broker.client(), FaultsView(faults)


def produce_all(*partitions: tuple[str, int, bytes], acks: int = -1, topic_id: bytes = ZERO_UUID) -> ProduceRequest:
    """One request for several partitions, each in an entry of its own."""
    parts = [produce(records(value), topic, index, topic_id=topic_id) for topic, index, value in partitions]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[part.topic_data[0] for part in parts])


def results(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.index): one.error_code for topic in response.responses for one in topic.partition_responses
    }


def ends(broker: Broker) -> list[int]:
    return [broker.log("t", index).log_end_offset for index in (0, 1)]


# Errors


async def test_error_of_one_partition_appends_the_others(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        with faults.error("Produce", NOT_LEADER, topic="t", partition=1, nth=2) as fault:
            for expected in (0, NOT_LEADER, 0):
                response = await client.call(produce_all(("t", 0, b"x"), ("t", 1, b"y")), 9)
                assert results(response) == {("t", 0): 0, ("t", 1): expected}
            assert results(await client.call(produce_all(("t", 0, b"z")), 9)) == {("t", 0): 0}
        assert (fault.matched, fault.fired) == (3, 1)
        assert ends(broker) == [4, 2]
        assert only(await client.call(produce(records(b"x"), "t", 1), 9)).error_code == 0


async def test_error_response_has_no_other_values(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        with faults.error("Produce", "KAFKA_STORAGE_ERROR"):
            result = only(await client.call(produce(records(b"x")), 9))
        assert (result.error_code, result.base_offset, result.log_append_time_ms, result.log_start_offset) == (
            56,
            -1,
            -1,
            -1,
        )
        with faults.error("Produce", 1234):
            assert only(await client.call(produce(records(b"x")), 9)).error_code == 1234
        assert ends(broker) == [0, 0]


async def test_several_rules_divide_a_request(tmp_path: Path) -> None:
    """Of two rules for the same partition the older one applies; the other one counts no match."""
    async with world(tmp_path) as (broker, client, faults):
        first = faults.error("Produce", 5, partition=1)
        second = faults.error("Produce", 7, topic="t")
        response = await client.call(produce_all(("t", 0, b"x"), ("t", 1, b"y"), ("u", 0, b"z")), 9)
        assert results(response) == {("t", 0): 7, ("t", 1): 5, ("u", 0): 3}
        assert (first.fired, second.fired) == (1, 1)
        assert only(await client.call(produce(records(b"y"), "t", 1), 9)).error_code == 5
        assert (first.fired, second.fired, second.matched) == (2, 1, 1)
        assert ends(broker) == [0, 0]


async def test_rule_for_a_topic_name_matches_topic_ids(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        id = broker.state.topics.named("t").id
        with faults.error("Produce", NOT_LEADER, topic="t", partition=0):
            response = await client.call(produce_all(("", 0, b"x"), ("", 1, b"y"), topic_id=id), 13)
            assert results(response) == {("", 0): NOT_LEADER, ("", 1): 0}
            assert [topic.topic_id for topic in response.responses] == [id]  # one response for both
        with faults.error("Fetch", NOT_LEADER, topic="t"):
            assert only(await client.call(fetch((id, 1, 0)), 13)).error_code == NOT_LEADER
            unknown = only(await client.call(fetch((b"?" * 16, 1, 0)), 13))
            assert unknown.error_code == 100


async def test_refused_records_with_acks_0_close_the_connection(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        with faults.error("Produce", NOT_LEADER, partition=1):
            await client.send(produce_all(("t", 0, b"x"), ("t", 1, b"y"), acks=0), 9)
            assert await client.is_closed()
            again = await broker.client()
            await again.send(produce_all(("t", 0, b"x"), acks=0), 9)
            assert (await again.call(ping(), 0)).error_code == 0
        assert ends(broker) == [2, 0]


async def test_rule_matches_client_ids_and_listeners(tmp_path: Path) -> None:
    configs = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }
    async with world(tmp_path, overrides=configs) as (broker, client, faults):
        other = await broker.client(1)

        async def codes() -> list[int]:
            sent = [(client, "app-1"), (client, "other"), (other, "app-1")]
            return [only(await by.call(produce(records(b"x")), 9, name)).error_code for by, name in sent]

        with faults.error("Produce", NOT_LEADER, client_id="app-*"):
            assert await codes() == [NOT_LEADER, 0, NOT_LEADER]
        with faults.error("Produce", NOT_LEADER, listener="B"):
            assert await codes() == [0, 0, NOT_LEADER]
        with faults.error("Produce", NOT_LEADER, node=broker.state.node_id):
            assert await codes() == [NOT_LEADER] * 3
        with pytest.raises(ValueError, match="there is no node 77"):
            faults.error("Produce", NOT_LEADER, node=77)
        assert await codes() == [0, 0, 0]


async def test_rule_matches_nodes(tmp_path: Path) -> None:
    async with world(tmp_path, brokers=2) as (broker, client, faults):
        other = await broker.client(1)
        with faults.error("ApiVersions", "INVALID_REQUEST", node=2) as fault:
            assert [(await by.call(ping(), 0)).error_code for by in (client, other)] == [0, 42]
        assert fault.matched == 1
        with faults.refuse(node=2):
            with pytest.raises(ConnectionRefusedError):
                await broker.client(1)
            assert (await (await broker.client()).call(ping(), 0)).error_code == 0
        assert (await (await broker.client(1)).call(ping(), 0)).error_code == 0


async def test_refused_api_versions_responds_in_the_layout_of_v0(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, client, faults):
        with faults.error("ApiVersions", "UNSUPPORTED_VERSION"):
            await client.send(ping(), 4)
            assert (await client.receive_bytes())[4:] == b"\0\x23" + b"\0\0\0\0"
        with faults.error("ApiVersions", "INVALID_REQUEST"):
            assert (await client.call(ping(), 3)).error_code == 42


# Metadata


def asking(*names: str) -> MetadataRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics if names else None)


async def test_metadata_of_all_topics_has_the_error_of_one(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        await broker.topic("u")
        with faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic="t") as fault:
            for request in (asking(), asking("t", "u"), asking("u", "t")):
                response = await client.call(request, 9)
                found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in response.topics}
                assert found == {"t": (5, 0), "u": (0, 1)}
            assert [topic.error_code for topic in (await client.call(asking("u"), 9)).topics] == [0]
            assert not (await client.call(MetadataRequest(topics=[]), 9)).topics
        assert (fault.matched, fault.fired) == (3, 3)


async def test_metadata_has_the_error_of_one_partition(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        with faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic="t", partition=1):
            (topic,) = (await client.call(asking("t"), 9)).topics
        first, second = topic.partitions
        node = broker.state.node_id
        assert (topic.error_code, first.error_code, first.leader_id) == (0, 0, node)
        assert (second.error_code, second.leader_id, second.partition_index, second.replica_nodes) == (5, -1, 1, [node])


# Fetch


async def test_partition_of_a_session_has_an_error_and_recovers(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, client, faults):
        for index in (0, 1):
            await client.call(produce(records(b"a"), "t", index), 9)
        first = await client.call(fetch(("t", 0, 0), ("t", 1, 0), session_epoch=0), 11)
        assert first.session_id and len(first.responses) == 1
        # The request names nothing, as nothing has changed; its wait is requested and skipped.
        again = fetch(session_id=first.session_id, session_epoch=1, max_wait_ms=60_000, min_bytes=1 << 20)
        with faults.error("Fetch", NOT_LEADER, topic="t", partition=1) as fault:
            response = await client.call(again, 11)
            ((zero, one),) = [topic.partitions for topic in response.responses]
            assert (zero.error_code, values(zero.records)) == (0, [b"a"])
            assert (one.error_code, one.high_watermark, len(one.records)) == (NOT_LEADER, -1, 0)
        assert fault.fired == 1
        response = await client.call(fetch(session_id=first.session_id, session_epoch=2), 11)
        found = {one.partition_index: (one.error_code, values(one.records)) for one in response.responses[0].partitions}
        assert found == {0: (0, [b"a"]), 1: (0, [b"a"])}
        with faults.error("Fetch", "FETCH_SESSION_ID_NOT_FOUND"):
            response = await client.call(fetch(session_id=first.session_id, session_epoch=3), 11)
            assert (response.error_code, response.responses) == (70, [])
        # The session has no such state: the broker's own response was never made.
        assert (await client.call(fetch(session_id=first.session_id, session_epoch=3), 11)).error_code == 0


async def test_partition_removed_from_a_session_matches_no_rule(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, client, faults):
        first = await client.call(fetch(("t", 0, 0), ("t", 1, 0), session_epoch=0), 11)
        forgotten = [type(fetch()).ForgottenTopic(topic="t", partitions=[1])]
        with faults.error("Fetch", NOT_LEADER, partition=1) as fault:
            request = fetch(session_id=first.session_id, session_epoch=1, forgotten_topics_data=forgotten)
            assert (await client.call(request, 11)).responses == []
        assert fault.matched == 0


async def test_partition_with_an_error_takes_no_bytes_of_the_bound(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, client, faults):
        for index in (0, 1):
            await client.call(produce(records(b"a" * 5000), "t", index), 9)
        wanted = fetch(("t", 0, 0), ("t", 1, 0), max_bytes=100)
        ((zero, one),) = [topic.partitions for topic in (await client.call(wanted, 10)).responses]
        assert len(zero.records) > 5000 and len(one.records) == 0
        with faults.error("Fetch", NOT_LEADER, topic="t", partition=0):
            response = await client.call(wanted, 10)
            ((zero, one),) = [topic.partitions for topic in response.responses]
            assert zero.error_code == NOT_LEADER and len(one.records) > 5000


@pytest.mark.parametrize("version", [3, 4, 11])
async def test_wrong_crc_flips_a_bit_in_fetched_records(version: int, tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        assert len(only(await client.call(fetch(("t", 1, 0)), version)).records) == 0
        for _ in range(2):
            await client.call(produce(records(b"abc", b"abc"), "t", 1), 9)
        good = bytes(only(await client.call(fetch(("t", 1, 0)), version)).records)
        with faults.wrong_crc(topic="t", partition=1, nth=2) as fault:
            # Responses without records do not count.
            assert len(only(await client.call(fetch(("t", 0, 0)), version)).records) == 0
            assert len(only(await client.call(fetch(("t", 1, 4)), version)).records) == 0
            responded = [bytes(only(await client.call(fetch(("t", 1, 0)), version)).records) for _ in range(3)]
            assert (fault.matched, fault.fired) == (3, 1)
        assert responded[0] == responded[2] == good
        (changed,) = [at for at, pair in enumerate(zip(good, responded[1], strict=True)) if pair[0] != pair[1]]
        assert (good[changed] ^ responded[1][changed]).bit_count() == 1
        if version >= 4:
            header = batch.read_header(responded[1])
            assert not batch.crc_matches(responded[1], 0, header) and changed < header.size_bytes
            assert values(responded[1])[0:2] == [b"abc", b"abb"]
        log = bytes(broker.log("t", 1).read(0, 1 << 20).records)
        assert batch.crc_matches(log, 0, batch.read_header(log))


# Time


async def test_responses_after_a_delay_keep_their_order(tmp_path: Path) -> None:
    """A request after a delayed one does not start: records of one connection keep their order."""
    async with world(tmp_path) as (broker, client, faults):
        with faults.delay("Produce", 60, times=1) as fault:
            started = time.monotonic()
            sent = [await client.send(produce(records(value)), 9) for value in (b"1", b"2", b"3")]
            sent.append(await client.send(ping(), 0))
            other = await broker.client()
            assert only(await other.call(produce(records(b"0")), 9)).base_offset == 0
            received = [await client.receive() for _ in sent]
            assert time.monotonic() - started >= 0.06
        assert [number for number, _ in received] == sent
        assert [only(result).base_offset for _, result in received[:3]] == [1, 2, 3]
        assert (fault.matched, fault.fired) == (4, 1)


async def test_delay_after_the_handler_delays_the_response(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        with faults.delay("Produce", 60, "after", times=1):
            await client.send(produce(records(b"1")), 9)
            other = await broker.client()
            assert only(await other.call(produce(records(b"2")), 9)).base_offset == 1
            assert only((await client.receive())[1]).base_offset == 0


async def test_stalled_request_resumes_when_its_rule_is_removed(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        fault = faults.stall("Produce", topic="t")
        sent = [await client.send(produce(records(value)), 9) for value in (b"1", b"2")]
        sent.append(await client.send(ping(), 0))
        await broker.settle()
        assert ends(broker)[0] == 0 and fault.fired == 1
        fault.remove()
        received = [await client.receive() for _ in sent]
        assert [number for number, _ in received] == sent
        assert values(broker.log("t").read(0, 1 << 20).records) == [b"1", b"2"]


async def test_delayed_request_keeps_its_records(tmp_path: Path) -> None:
    """Its receive buffer is reused meanwhile."""
    async with world(tmp_path) as (broker, client, faults):
        fault = faults.stall("Produce", client_id="held")
        await client.send(produce(records(b"v" * 1000)), 9, "held")
        await broker.settle()
        pool = broker.running.connections.pool
        for buffer in [pool.take() for _ in range(8)]:  # as if other connections received into all free buffers
            buffer[:] = b"\xff" * len(buffer)
            pool.give(buffer)
        fault.remove()
        assert only((await client.receive())[1]).error_code == 0
        assert values(broker.log("t").read(0, 1 << 20).records) == [b"v" * 1000]


@pytest.mark.parametrize("later", [0, 3])
@pytest.mark.parametrize("abruptly", [False, True])
async def test_stalled_client_that_disconnects_is_closed(later: int, abruptly: bool, tmp_path: Path) -> None:
    """Also with requests after the stalled one, which are no longer read."""
    async with world(tmp_path) as (broker, client, faults):
        fault = faults.stall("Produce")
        await broker.settle()
        before = set(broker.running.connections.open)
        for _ in range(1 + later):
            await client.send(produce(records(b"x" * 1000)), 9)
        await broker.settle()
        if abruptly:
            client.writer.transport.abort()
        else:
            client.close()
        async with asyncio.timeout(PATIENCE_S):
            while broker.running.connections.open & before:
                await asyncio.sleep(0.01)
        fault.remove()
        await broker.settle()
        assert ends(broker) == [0, 0]


@pytest.mark.parametrize("kind", ["stall", "delay", "throttle"])
async def test_broker_stop_does_not_wait_for_faults(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_injection, "LOOK_SECONDS", 3600)
    async with world(tmp_path) as (broker, client, faults):
        if kind == "stall":
            faults.stall("Produce")
        elif kind == "delay":
            faults.delay("Produce", 3_600_000)
        else:
            faults.throttle("Produce", 3_600_000)
        for _ in range(3):
            await client.send(produce(records(b"x")), 9)
        await broker.settle()
        async with patiently():
            await broker.running.stop()
        broker.running.stop = lambda: asyncio.sleep(0)  # type: ignore[method-assign]


async def test_slow_reader_is_waited_for_with_faults(tmp_path: Path) -> None:
    """Back-pressure: unread responses delay later ones, and none is lost."""
    async with world(tmp_path) as (broker, client, faults):
        await client.call(produce(records(b"v" * 900_000)), 9)
        faults.delay("Fetch", 1)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sent = [await client.send(fetch(("t", 0, 0), partition_max_bytes=2 << 20), 11) for _ in range(20)]
        await broker.settle()
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [(await client.receive())[0] for _ in sent] == sent


async def test_throttle_returns_its_time_and_mutes_the_connection(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        other = await broker.client()
        for throttle_ms in (80, 800, 8_000):  # a machine that pauses for so long shows nothing
            with faults.throttle("Produce", throttle_ms, times=1):
                started = time.monotonic()
                await client.send(produce(records(b"1")), 9)
                later = await client.send(ping(), 0)
                result = (await client.receive())[1]
                assert (result.throttle_time_ms, only(result).error_code) == (throttle_ms, 0)
                received = asyncio.ensure_future(client.receive())
                assert (await other.call(ping(), 0)).error_code == 0
                is_first = not received.done()
                took_s = time.monotonic() - started
                assert (await received)[0] == later
                assert time.monotonic() - started >= throttle_ms / 1000
            if took_s < throttle_ms / 1000:
                assert is_first
                break
        assert (await client.call(produce(records(b"2")), 9)).throttle_time_ms == 0


async def test_throttle_in_a_version_without_the_field_mutes_the_connection(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, client, faults):
        with faults.throttle("Metadata", 30, times=1):
            started = time.monotonic()
            await client.call(MetadataRequest(topics=[]), 2)
            await client.call(ping(), 0)
            assert time.monotonic() - started >= 0.03


# Connections


async def test_disconnect_before_and_after_the_append(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        with faults.disconnect("Produce", times=1):
            await client.send(produce(records(b"1")), 9)
            assert await client.is_closed()
            assert ends(broker) == [0, 0]
        client = await broker.client()
        with faults.disconnect("Produce", "after", topic="t", partition=1):
            assert only(await client.call(produce(records(b"1")), 9)).error_code == 0
            await client.send(produce_all(("t", 0, b"2"), ("t", 1, b"3")), 9)
            assert await client.is_closed()
        assert ends(broker) == [2, 1]


async def test_disconnect_after_a_waiting_fetch_response_leaves_first(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        waiting = await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        with faults.disconnect("Produce", "after", topic="t", partition=1):
            await client.send(produce(records(b"1"), "t", 1), 9)
            await client.send(produce(records(b"2"), "t", 1), 9)
            await broker.settle()
            assert ends(broker) == [0, 0]  # nothing starts before the fetch has its response
            await (await broker.client()).call(produce(records(b"x")), 9)
            number, result = await client.receive()
            assert (number, values(only(result).records)) == (waiting, [b"x"])
            assert await client.is_closed()
        assert ends(broker) == [1, 1]  # the first was appended, the one after the disconnect never is


async def test_truncated_response_is_cut_and_closes_the_connection(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        await client.send(produce(records(b"1")), 9)
        whole = await client.receive_bytes()
        with faults.truncate("Produce", 11):
            await client.send(produce(records(b"2")), 9)
            data = await client.reader.read()
        assert data == len(whole).to_bytes(4, "big") + (2).to_bytes(4, "big") + whole[4:11]
        with faults.truncate("Produce", 1 << 20):
            client = await broker.client()
            await client.send(produce(records(b"3")), 9)
            assert len(await client.receive_bytes()) == len(whole)
            with pytest.raises(Closed):
                await client.receive_bytes()
        assert ends(broker) == [3, 0]


async def test_rules_apply_to_a_refusal_of_the_whole_request(tmp_path: Path) -> None:
    """Without an authorizer the handler of DescribeAcls raises SECURITY_DISABLED."""
    request = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    async with world(tmp_path) as (_, client, faults):
        with faults.throttle("DescribeAcls", 30, times=1), faults.delay("DescribeAcls", 10, "after") as delay:
            started = time.monotonic()
            response = await client.call(request, 2)
            assert (response.error_code, response.throttle_time_ms) == (54, 30)
            assert time.monotonic() - started >= 0.01 and delay.fired == 1
        with faults.truncate("DescribeAcls", 11) as truncate:
            await client.send(request, 2)
            data = await client.reader.read()
            assert len(data) == 4 + 11 < 4 + int.from_bytes(data[:4], "big") and truncate.fired == 1


async def test_garbled_responses_are_equal_for_a_seed(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, client, faults):

        async def result(seed: int | None) -> bytes:
            with faults.garble("Metadata", seed) if seed is not None else contextlib.nullcontext():
                await client.send(asking("t"), 9)
                return await client.receive_bytes()

        good, first, second, third = [await result(seed) for seed in (None, 1, 1, 2)]
        assert first[5:] == second[5:] != good[5:] and first[5:] != third[5:]
        for number, one in enumerate((good, first, second, third), 1):
            assert one[:5] == number.to_bytes(4, "big") + b"\0" and len(one) == len(good)


async def test_several_actions_apply_to_one_request(tmp_path: Path) -> None:
    async with world(tmp_path) as (broker, client, faults):
        faults.error("Produce", NOT_LEADER, partition=1)
        faults.delay("Produce", 5)
        faults.delay("Produce", 5, "after")
        throttle = faults.throttle("Produce", 5)
        started = time.monotonic()
        result = await client.call(produce_all(("t", 0, b"1"), ("t", 1, b"2")), 9)
        assert results(result) == {("t", 0): 0, ("t", 1): NOT_LEADER} and result.throttle_time_ms == 5
        assert time.monotonic() - started >= 0.01
        throttle.remove()
        faults.truncate("Produce", 0)
        await client.send(produce_all(("t", 0, b"1")), 9)
        with pytest.raises(Closed):
            await client.receive_bytes()
        assert ends(broker) == [2, 0]


async def test_requests_without_a_matching_rule_are_handled_as_usual(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, client, faults):
        faults.stall("Produce", topic="other")
        faults.stall("Heartbeat")
        faults.error("Produce", NOT_LEADER, probability=1e-12, seed=1)
        assert only(await client.call(produce(records(b"x")), 9)).error_code == 0
        assert values(only(await client.call(fetch(("t", 0, 0)), 11)).records) == [b"x"]
        assert [fault.fired for fault in faults.list()] == [0, 0, 0]
        faults.clear()
        assert (await client.call(ping(), 0)).error_code == 0
