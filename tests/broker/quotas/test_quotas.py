"""Quotas over the wire: a client above its quota receives a throttle time and is muted.

The clock is stopped unless a test moves it, so all throttle times are exact.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.faults.actions import throttle as throttle_fault
from ottla.broker.faults.rule_set import Faults
from ottla.broker.faults.rules import Rule
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.steps import STEP_RECORDS
from ottla_testing.broker.harness import Broker, create_topics, fetch, frame, only, ping, produce, records, running
from ottla_testing.broker.quota_cases import set_quotas
from ottla_testing.broker.quota_world import (
    EVERY_CLIENT,
    HELD,
    LOOP_ITERATIONS,
    MB,
    data_of,
    held,
    is_heard,
    limited,
    percent_timer,
    size_of,
    wait_after,
)


async def test_nothing_is_measured_without_a_quota(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        for _ in range(3):
            response = await client.call(produce(records(bytes(100_000))), 9)
            assert response.throttle_time_ms == 0
        assert broker.state.quotas.throttle is None


async def test_client_without_a_limit_is_not_measured(tmp_path: Path) -> None:
    async with limited(tmp_path, producer_byte_rate=1.0) as (broker, client):
        await set_quotas(await broker.client(), HELD, producer_byte_rate=None)
        await set_quotas(await broker.client(), {"user": "another client"}, producer_byte_rate=1.0)
        assert (await client.call(produce(records(bytes(1000))), 9)).throttle_time_ms == 0
        assert broker.state.quotas.throttle is not None
        assert len(broker.state.quotas.throttle.produce.buckets._found) == 0


# --- Produce


@pytest.mark.parametrize("version", [1, 2, 5, 6, 9, 12])
async def test_producer_receives_the_throttle_time_and_is_muted(version: int, tmp_path: Path) -> None:
    async with limited(tmp_path, producer_byte_rate=1000) as (broker, client):
        request = produce(data_of(version, 15_000))
        expected = wait_after(size_of(request, version), 1000)
        response = await client.call(request, version)
        assert only(response).error_code == 0
        assert response.throttle_time_ms == expected and 5000 < expected < 6000
        assert broker.log("t").log_end_offset == 1, "appended nevertheless"
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(expected - 1)
        assert not await is_heard(broker, client)
        broker.clock.advance(1)
        await client.receive()


async def test_response_without_throttle_time_still_mutes_the_connection(tmp_path: Path) -> None:
    async with limited(tmp_path, producer_byte_rate=1000) as (broker, client):
        response = await client.call(produce(data_of(0, 15_000)), 0)
        assert only(response).error_code == 0
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(6000)
        await client.receive()


async def test_produce_without_acks_is_only_charged_for_bytes(tmp_path: Path) -> None:
    async with limited(tmp_path, producer_byte_rate=1000, request_percentage=0.001) as (broker, client):
        percent_timer(broker, 1000)
        request = produce(records(bytes(12_000)), acks=0)
        await client.send(request, 9)
        await broker.settle()
        assert broker.log("t").log_end_offset == 1
        assert broker.state.quotas.throttle is not None
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(wait_after(size_of(request, 9), 1000))
        assert await is_heard(broker, client)


async def test_pipelined_requests_wait_while_muted(tmp_path: Path) -> None:
    async with limited(tmp_path, producer_byte_rate=1000) as (broker, client):
        request = produce(records(bytes(12_000)))
        together = b"".join(frame(request, 9, number, "held") for number in (1, 2, 3))
        await client.send_bytes(together)
        await client.receive_bytes()
        await broker.settle()
        assert broker.log("t").log_end_offset == 1
        broker.clock.advance(2200)
        await client.receive_bytes()
        assert broker.log("t").log_end_offset == 2
        await broker.settle()
        assert broker.log("t").log_end_offset == 2


async def test_muted_connection_closes_with_its_client_and_at_shutdown(tmp_path: Path) -> None:
    async with limited(tmp_path, producer_byte_rate=1) as (broker, client):
        other = await held(broker)
        for one in (client, other):
            response = await one.call(produce(records(bytes(1000))), 9)
            assert response.throttle_time_ms > 1_000_000
        client.close()
        await broker.settle()
        before = len(broker.running.connections.open)
        await other.send(ping(), 0)
        for _ in range(LOOP_ITERATIONS):
            await broker.settle()
        assert len(broker.running.connections.open) <= before
    assert await other.is_closed()


async def test_clients_with_a_shared_limit_are_throttled_together(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, other, third = [await broker.client() for _ in range(3)]
        await set_quotas(one, EVERY_CLIENT, producer_byte_rate=1000)
        request = produce(records(bytes(8_000)))
        assert (await one.call(request, 9, "app")).throttle_time_ms == 0
        assert (await third.call(request, 9, "another app")).throttle_time_ms == 0
        assert (await other.call(request, 9, "app")).throttle_time_ms > 5000
        assert (await third.call(request, 9, None)).throttle_time_ms == 0, "without a client id there is no limit"


async def test_changed_or_removed_quota_applies_at_once(tmp_path: Path) -> None:
    async with limited(tmp_path, producer_byte_rate=1000) as (broker, client):
        admin = await broker.client()
        request = produce(records(bytes(9_000)))
        assert (await client.call(request, 9)).throttle_time_ms == 0
        await set_quotas(admin, HELD, producer_byte_rate=100)
        other = await held(broker)
        assert (await other.call(request, 9)).throttle_time_ms == wait_after(2 * size_of(request, 9), 100)
        await set_quotas(admin, HELD, producer_byte_rate=None)
        third = await held(broker)
        assert (await third.call(request, 9)).throttle_time_ms == 0
        assert broker.state.quotas.throttle is None


async def test_each_node_measures_separately(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=2) as broker:
        topic = broker.state.topics.create("t", 2, {}, broker.clock.now_ms())
        by_leader = {partition.leader: partition.index for partition in topic.partitions}
        clients = {node_id: await broker.client(node_id - 1) for node_id in (1, 2)}
        await set_quotas(await broker.client(), {"user": "ANONYMOUS"}, producer_byte_rate=1000)
        for node_id, client in clients.items():
            request = produce(records(bytes(9_000)), partition=by_leader[node_id])
            assert (await client.call(request, 9)).throttle_time_ms == 0
        request = produce(records(bytes(9_000)), partition=by_leader[1])
        assert (await clients[1].call(request, 9)).throttle_time_ms > 7000


async def test_the_windows_are_those_of_the_configs(tmp_path: Path) -> None:
    overrides = {"quota.window.num": "3", "quota.window.size.seconds": "2", "controller.quota.window.num": "5"}
    async with running(tmp_path, overrides=overrides) as broker:
        await broker.topic("t")
        client = await held(broker)
        await set_quotas(await broker.client(), HELD, producer_byte_rate=1000, controller_mutation_rate=1)
        request = produce(records(bytes(5_000)))
        response = await client.call(request, 9)
        assert response.throttle_time_ms == wait_after(size_of(request, 9), 1000, 4000)
        response = await (await held(broker)).call(create_topics("a", partitions=7), 5)
        assert response.throttle_time_ms == 2000


# --- Fetch


async def filled(broker: Broker, count: int, size: int) -> None:
    for _ in range(count):
        broker.log("t").append(records(bytes(size)), now_ms=broker.clock.now_ms())


@pytest.mark.parametrize("version", [0, 1, 4, 7, 11, 12])
async def test_throttled_fetch_is_empty_and_not_charged(version: int, tmp_path: Path) -> None:
    overrides = {} if version >= 4 else {"log.message.downconversion.enable": "true"}
    async with running(tmp_path, overrides=overrides) as broker:
        await broker.topic("t")
        await filled(broker, 10, 4000)
        client = await held(broker)
        await set_quotas(await broker.client(), HELD, consumer_byte_rate=1000)
        requested = fetch(("t", 0, 0), partition_max_bytes=9000)
        first = await client.call(requested, version)
        assert len(only(first).records) > 8000
        assert version == 0 or first.throttle_time_ms == 0
        second = await client.call(requested, version)
        assert second.responses == []
        if version:
            assert 6000 < second.throttle_time_ms < 9000
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(9000)
        await client.receive()
        broker.clock.advance(2000)  # sent bytes have expired; bytes that were not sent were not charged
        assert len(only(await client.call(requested, version)).records) > 8000


async def test_throttled_fetch_increments_its_session_epoch(tmp_path: Path) -> None:
    async with limited(tmp_path, consumer_byte_rate=1000) as (broker, client):
        await filled(broker, 10, 4000)
        first = await client.call(fetch(("t", 0, 0), session_epoch=0, partition_max_bytes=9000), 11)
        assert first.session_id and len(only(first).records) > 8000
        requested = fetch(session_id=first.session_id, session_epoch=1)
        second = await client.call(requested, 11)
        assert (second.session_id, second.error_code, second.responses) == (first.session_id, 0, [])
        assert second.throttle_time_ms > 0
        broker.clock.advance(11_000)
        third = await client.call(fetch(session_id=first.session_id, session_epoch=2), 11)
        assert len(only(third).records) > 8000, "changes since the last response"


async def test_throttled_full_fetch_creates_no_session(tmp_path: Path) -> None:
    async with limited(tmp_path, consumer_byte_rate=1000) as (broker, client):
        await filled(broker, 10, 4000)
        requested = fetch(("t", 0, 0), session_epoch=0, partition_max_bytes=9000)
        assert (await client.call(requested, 11)).session_id
        second = await client.call(requested, 11)
        assert second.throttle_time_ms and second.session_id == 0
        assert len(broker.state.fetch_sessions) == 1


async def test_fetch_is_limited_to_the_quota_of_ten_seconds(tmp_path: Path) -> None:
    async with limited(tmp_path, consumer_byte_rate=1000) as (broker, client):
        await filled(broker, 20, 3000)
        throttled = await client.call(fetch(("t", 0, 0), partition_max_bytes=1 << 20), 11)
        assert not throttled.responses and throttled.throttle_time_ms < 200  # for what is around the records
        broker.clock.advance(throttled.throttle_time_ms)
        got = only(await client.call(fetch(("t", 0, 0), partition_max_bytes=1 << 20), 11))
        assert len(got.records) == 10_000
        await set_quotas(await broker.client(), HELD, consumer_byte_rate=None)
        got = only(await client.call(fetch(("t", 0, 0), partition_max_bytes=1 << 20), 11))
        assert len(got.records) > 60_000


async def test_replica_fetch_has_no_quota(tmp_path: Path) -> None:
    async with limited(tmp_path, consumer_byte_rate=1, request_percentage=0.001) as (broker, client):
        percent_timer(broker, 1000)
        await filled(broker, 5, 3000)
        for _ in range(3):
            response = await client.call(fetch(("t", 0, 0), replica_id=7), 11)
            assert response.throttle_time_ms == 0 and len(only(response).records) > 15_000


async def test_fetch_is_charged_for_its_response_size(tmp_path: Path) -> None:
    """Includes the length, excludes the response header."""
    async with limited(tmp_path, consumer_byte_rate=1000) as (broker, client):
        await filled(broker, 1, 4000)
        await client.send(fetch(("t", 0, 0)), 11)
        response = await client.receive_bytes()
        throttle = broker.state.quotas.throttle
        assert throttle is not None
        ((_, rate),) = throttle.fetch.buckets._found.items()
        assert rate.measure(broker.clock.now_ms())[0] == 4 + len(response) - 4


# --- handler time


async def test_request_time_throttle_is_at_most_one_window(tmp_path: Path) -> None:
    async with limited(tmp_path, request_percentage=5) as (broker, client):
        percent_timer(broker, 500)
        response = await client.call(ListGroupsRequest(), 4)  # 50 % of ten seconds is 5 % of each
        assert response.throttle_time_ms == 0
        # Building its response took as long again, which is charged with these.
        response = await client.call(ListGroupsRequest(), 4)
        assert response.throttle_time_ms == 1000
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(1000)
        await client.receive()


async def test_throttle_time_is_the_longer_of_two(tmp_path: Path) -> None:
    async with limited(tmp_path, request_percentage=1, producer_byte_rate=1000) as (broker, client):
        percent_timer(broker, 1000)
        assert (await client.call(produce(records(bytes(10))), 9)).throttle_time_ms == 1000
        broker.clock.advance(1000)
        assert (await client.call(produce(records(bytes(20_000))), 9)).throttle_time_ms > 9000


async def test_only_event_loop_time_is_charged(tmp_path: Path) -> None:
    """A long poll has two steps, however long it waits."""
    async with limited(tmp_path, request_percentage=100) as (broker, client):
        percent_timer(broker, 1000)
        await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        await broker.settle()
        broker.clock.advance(60_000)
        _, response = await client.receive()
        assert response.throttle_time_ms == 0
        throttle = broker.state.quotas.throttle
        assert throttle is not None
        assert sum(rate.measure(broker.clock.now_ms())[0] for rate in throttle.request.buckets._found.values()) < 1000


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "with a thread's part"])
async def test_work_in_several_steps_is_charged(compressed: bool, tmp_path: Path) -> None:
    """Old messages are converted while other clients are served; each step takes a second here."""
    async with running(tmp_path, release="2.8") as broker:
        await broker.topic("t")
        await set_quotas(await broker.client(), HELD, request_percentage=10_000)
        percent_timer(broker, 1000)
        client = await held(broker)
        codec = Codec.GZIP if compressed else Codec.NONE
        made = [batch.Record(n, 1_700_000_000_000, None, bytes(40), ()) for n in range(4 * STEP_RECORDS)]
        data = bytes(legacy.build(made, magic=1, codec=codec))
        assert only(await client.call(produce(data), 2)).error_code == 0
        throttle = broker.state.quotas.throttle
        assert throttle is not None
        (rate,) = throttle.request.buckets._found.values()
        total, _ = rate.measure(broker.clock.now_ms())
        assert total >= 700, "a second of the handler, one of the response, and at least five steps"


async def test_error_response_has_the_throttle_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited(tmp_path, request_percentage=0.001) as (broker, client):
        percent_timer(broker, 1000)

        def fail(*_: Any) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(type(broker.state.groups), "list_groups", fail)
        response = await client.call(ListGroupsRequest(), 4)
        assert (response.error_code, response.throttle_time_ms) == (-1, 1000)
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(1000)
        await client.receive()


async def test_offset_fetch_of_an_unknown_group_is_charged(tmp_path: Path) -> None:
    async with limited(tmp_path, request_percentage=0.001) as (broker, client):
        percent_timer(broker, 1000)
        response = await client.call(OffsetFetchRequest(group_id="g", topics=None), 5)
        assert response.throttle_time_ms == 1000


# --- releases that delay responses


async def test_old_releases_delay_throttled_responses(tmp_path: Path) -> None:
    """Their quotas are in the configuration, for each client id."""
    overrides = {"quota.producer.default": "1000", "quota.consumer.default": "1000"}
    async with running(tmp_path, release="1.1", overrides=overrides) as broker:
        await broker.topic("t")
        client = await broker.client()
        request = produce(records(bytes(12_000)))
        expected = wait_after(size_of(request, 5), 1000)
        await client.send(request, 5)
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        assert broker.log("t").log_end_offset == 1
        broker.clock.advance(expected - 1)
        assert not await is_heard(broker, client)
        broker.clock.advance(1)
        _, response = await client.receive()
        assert (only(response).error_code, response.throttle_time_ms) == (0, expected)
        await client.receive()  # the next one gets its response at once


async def test_delayed_fetch_response_has_its_records(tmp_path: Path) -> None:
    async with running(tmp_path, release="1.1", overrides={"quota.consumer.default": "1000"}) as broker:
        await broker.topic("t")
        await filled(broker, 4, 6000)
        client = await broker.client()
        requested = fetch(("t", 0, 0), partition_max_bytes=7000)
        assert (await client.call(requested, 7)).throttle_time_ms == 0
        await client.send(requested, 7)
        assert not await is_heard(broker, client)
        broker.clock.advance(5000)
        _, response = await client.receive()
        assert len(only(response).records) == 7000 and 3500 < response.throttle_time_ms < 4500


async def test_disconnect_drops_the_delayed_response(tmp_path: Path) -> None:
    async with running(tmp_path, release="1.1", overrides={"quota.producer.default": "1"}) as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.send(produce(records(bytes(12_000))), 5)
        await broker.settle()
        assert broker.state.quotas.throttle is not None
        assert len(broker.state.quotas.throttle._held_back) == 1
        client.close()
        await broker.settle()
        assert not broker.state.quotas.throttle._held_back


async def test_shutdown_drops_delayed_responses(tmp_path: Path) -> None:
    async with running(tmp_path, release="1.1", overrides={"quota.producer.default": "1"}) as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.send(produce(records(bytes(12_000))), 5)
        await broker.settle()
        broker.state.begin_stop()
        _, response = await client.receive()
        assert only(response).error_code == 0


# --- sustained rates


# Kafka divides by ten to eleven seconds, so the first ten seconds of a client allow up to eleven seconds' worth. The
# rate after that is measured: with 1.1 MB per second to send for ten seconds; with 1.5 for a minute, because it comes
# in waves.
HOLDING = [(45, 10, 20), (33, 0, 60)]


@pytest.mark.parametrize(("pause_ms", "begin_s", "end_s"), HOLDING)
async def test_a_producer_is_held_to_one_megabyte_a_second(
    pause_ms: int, begin_s: int, end_s: int, tmp_path: Path
) -> None:
    async with limited(tmp_path, producer_byte_rate=MB) as (broker, client):
        request, sent = produce(records(bytes(50_000))), 0
        start_ms = broker.clock.now_ms()
        while (elapsed_ms := broker.clock.now_ms() - start_ms) < end_s * 1000:
            response = await client.call(request, 9)
            sent += size_of(request, 9) if elapsed_ms >= begin_s * 1000 else 0
            broker.clock.advance(pause_ms + response.throttle_time_ms)
        assert sent == pytest.approx((end_s - begin_s) * MB, rel=0.1)


@pytest.mark.parametrize(("pause_ms", "begin_s", "end_s"), HOLDING)
async def test_a_consumer_is_held_to_one_megabyte_a_second(
    pause_ms: int, begin_s: int, end_s: int, tmp_path: Path
) -> None:
    async with limited(tmp_path, consumer_byte_rate=MB) as (broker, client):
        await filled(broker, 1, 50_000)
        requested, got = fetch(("t", 0, 0)), 0
        start_ms = broker.clock.now_ms()
        while (elapsed_ms := broker.clock.now_ms() - start_ms) < end_s * 1000:
            response = await client.call(requested, 11)
            size = sum(len(partition.records) for topic in response.responses for partition in topic.partitions)
            got += size if elapsed_ms >= begin_s * 1000 else 0
            broker.clock.advance(pause_ms + response.throttle_time_ms)
        assert got == pytest.approx((end_s - begin_s) * MB, rel=0.1)


# --- with faults


async def test_a_faulted_request_is_charged_too(tmp_path: Path) -> None:
    faults = Faults()
    async with running(tmp_path, faults=faults) as broker:
        await broker.topic("t")
        client = await held(broker)
        await set_quotas(await broker.client(), HELD, producer_byte_rate=1000)
        faults.add(Rule(action=throttle_fault(20), api=0))
        request = produce(records(bytes(12_000)))
        expected = wait_after(size_of(request, 9), 1000)
        response = await client.call(request, 9)
        assert response.throttle_time_ms == expected
        await asyncio.sleep(0.05)  # the time of the fault is real time
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(expected)
        await client.receive()


# --- expiry


async def test_measurement_expires_after_an_hour(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        await set_quotas(await broker.client(), EVERY_CLIENT, producer_byte_rate=1_000_000)
        throttle = broker.state.quotas.throttle
        assert throttle is not None
        for number in range(50):
            await client.call(produce(records(b"x")), 9, f"app-{number}")
        broker.clock.advance(1_800_000)
        await client.call(produce(records(b"x")), 9, "app-0")
        broker.clock.advance(1_800_001)
        await client.call(produce(records(b"x")), 9, "new")
        assert len(throttle.produce.buckets._found) == 2


async def test_stopped_node_drops_its_measurements(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t", 2)
        await set_quotas(await broker.client(), {"user": "ANONYMOUS"}, request_percentage=100)
        for listener in (0, 1):
            await (await broker.client(listener)).call(ping(), 0)
        throttle = broker.state.quotas.throttle
        assert throttle is not None
        assert {node_id for node_id, _ in throttle.request.buckets._found} == {1, 2}
        broker.running.show_node(2, False)
        assert {node_id for node_id, _ in throttle.request.buckets._found} == {1}
