"""Syncs by `flush.messages`, `flush.ms` and rolls, and the requests that wait for them; tests release the syncs of
logs.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.replica.flush import RETRY_MS, SYNC_THREADS
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla_testing.broker.harness import Client, fetch, frame, only, ping, produce, records, running, values
from ottla_testing.broker.held_syncs import begun, holding, set_config, still_waits
from ottla_testing.patience import PATIENCE_S

STORAGE_ERROR = 56
T0 = 1_700_000_000_000


async def code(call: Awaitable[Any]) -> int:
    return only(await call).error_code


async def end_for_consumers(client: Client, isolation_level: int = 0, topic: str = "t") -> int:
    requested = ListOffsetsRequest.ListOffsetsTopic
    partitions = [requested.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    topics = [requested(name=topic, partitions=partitions)]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    return only(await client.call(request, 5)).offset


EACH = {"flush.messages": "1"}


@pytest.mark.parametrize("acks", [-1, 1])
async def test_unsynced_records_have_no_response_and_are_not_readable(acks: int, tmp_path: Path) -> None:
    """Other connections are served meanwhile; later requests of the same one wait."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        await broker.topic("other")
        producer, consumer, third = [await broker.client() for _ in range(3)]
        produced = begun(producer.call(produce(records(b"a"), acks=acks), 9))
        await syncs.until(1)
        polled = begun(consumer.call(fetch(("t", 0, 0), max_wait_ms=1000), 11))
        await still_waits(broker, produced, polled)
        assert [await end_for_consumers(third, level) for level in (0, 1)] == [0, 0]
        looked = only(await third.call(fetch(("t", 0, 0)), 11))
        assert (looked.high_watermark, looked.last_stable_offset, len(looked.records)) == (0, 0, 0)
        assert await code(third.call(produce(records(b"x"), "other"), 9)) == 0
        assert broker.log("t").log_end_offset == 1 and broker.log("t").recovery_point == 0
        syncs.let()
        response = only(await produced)
        assert (response.error_code, response.base_offset) == (0, 0)
        assert values(only(await polled).records) == [b"a"]
        assert await end_for_consumers(third) == 1 == broker.log("t").recovery_point
        syncs.let_all()
        await producer.send(produce(records(b"b"), acks=0), 9)
        await producer.call(produce(records(b"c"), acks=acks), 9)
        assert values(only(await third.call(fetch(("t", 0, 0)), 11)).records) == [b"a", b"b", b"c"]


async def test_requests_after_acks_0_wait_for_its_sync(tmp_path: Path) -> None:
    """As in Kafka, where the append of acks=0 blocks too."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        client = await broker.client()
        await client.send_bytes(frame(produce(records(b"a"), acks=0), 9, 77))
        pinged = begun(client.call(ping(), 0))
        await syncs.until(1)
        await still_waits(broker, pinged)
        syncs.let_all()
        await pinged


async def test_waiting_appends_share_one_sync(tmp_path: Path, scaled: Any) -> None:
    """While one is under way, all new appends wait for the next one."""
    number = scaled(64)
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        clients = [await broker.client() for _ in range(min(number, 500))]
        first = begun(clients[0].call(produce(records(b"0")), 9))
        await syncs.until(1)
        others = [begun(client.call(produce(records(b"%d" % n)), 9)) for n, client in enumerate(clients[1:], 1)]
        await still_waits(broker, first, *others)
        assert broker.log("t").log_end_offset == len(clients) and len(syncs.begun) == 1
        syncs.let()
        assert (await code(first)) == 0
        await syncs.until(2)
        await still_waits(broker, *others)
        syncs.let()
        results = [only(await task) for task in others]
        assert {response.error_code for response in results} == {0}
        assert sorted(response.base_offset for response in results) == list(range(1, len(clients)))
        assert len(syncs.begun) == 2


async def test_partitions_are_synced_in_parallel_by_a_few_threads(tmp_path: Path) -> None:
    number = 2 * SYNC_THREADS
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", number, EACH)
        clients = [await broker.client() for _ in range(number)]
        calls = [begun(client.call(produce(records(b"v"), partition=n), 9)) for n, client in enumerate(clients)]
        await syncs.until(SYNC_THREADS)
        await still_waits(broker, *calls)
        assert len(syncs.begun) == SYNC_THREADS
        syncs.let(1)
        await syncs.until(SYNC_THREADS + 1)
        syncs.let_all()
        assert [await code(call) for call in calls] == [0] * number
        assert len(set(syncs.begun)) == len(syncs.begun) == number


async def test_request_with_several_partitions_waits_for_all_syncs(tmp_path: Path) -> None:
    """The one response waits for all; refused partitions, and those that need no sync, keep their own result."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", 2, EACH)
        await broker.topic("other")
        client = await broker.client()
        request = produce(records(b"a"))
        for part in (produce(records(b"b"), "other"), produce(records(b"c"), "t", 1), produce(records(b"d"), "t", 2)):
            request.topic_data += part.topic_data
        produced = begun(client.call(request, 9))
        await syncs.until(2)
        syncs.let(1)
        await still_waits(broker, produced)
        syncs.let(1)
        results = [topic.partition_responses[0] for topic in (await produced).responses]
        assert [(response.error_code, response.base_offset) for response in results] == [
            (0, 0),
            (0, 0),
            (0, 0),
            (3, -1),
        ]


async def test_failed_sync_fails_all_waiting_appends(tmp_path: Path) -> None:
    """The appends it would have covered, those of the next sync, and later ones. The other directory continues."""
    folders = [tmp_path / "one", tmp_path / "two"]
    async with holding(*folders) as (broker, syncs):
        await broker.topic("t", 2, EACH)
        logs = {log_dir.path: next(iter(log_dir.logs)) for log_dir in broker.state.logs.directories[1:]}
        (broken,) = (partition for topic, partition in logs.values() if topic == "t")
        sound = 1 - broken
        syncs.prefix = f"t-{broken}"
        log = broker.log("t", broken)
        clients = [await broker.client() for _ in range(9)]
        calls = [begun(clients[0].call(produce(records(b"v"), partition=broken), 9))]
        await syncs.until(1)
        calls += [begun(client.call(produce(records(b"v"), partition=broken), 9)) for client in clients[1:]]
        silent = await broker.client()
        await silent.send(produce(records(b"v"), partition=broken, acks=0), 9)
        polled = begun((await broker.client()).call(fetch(("t", broken, 0), max_wait_ms=1000), 11))
        await still_waits(broker, *calls, polled)
        syncs.code = errno.EIO
        syncs.let_all()
        assert [await code(call) for call in calls] == [STORAGE_ERROR] * 9
        assert await code(clients[0].call(produce(records(b"v"), partition=broken), 9)) == STORAGE_ERROR
        assert await silent.is_closed()  # the only signal to it
        assert (log.high_watermark, log.log_end_offset) == (0, 10)
        assert await code(clients[0].call(produce(records(b"v"), partition=sound), 9)) == 0
        assert only(await polled).error_code == STORAGE_ERROR


async def test_sync_without_a_free_descriptor_is_retried(tmp_path: Path) -> None:
    """Waiting requests fail at once and may be retried; the appended records become readable once they are durable."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        syncs.code = errno.EMFILE
        syncs.let_all()
        client = await broker.client()
        sent = records(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
        assert await code(client.call(produce(sent), 9)) == STORAGE_ERROR
        assert (broker.log("t").log_end_offset, broker.log("t").high_watermark) == (1, 0)
        again = begun(client.call(produce(sent), 9))
        await still_waits(broker, again)
        syncs.code = 0
        broker.clock.advance(RETRY_MS)
        response = only(await again)
        assert (response.error_code, response.base_offset, broker.log("t").high_watermark) == (0, 0, 1)
        assert await code(client.call(produce(records(b"b")), 9)) == 0


async def test_duplicate_waits_as_long_as_the_original(tmp_path: Path) -> None:
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        one, two, three, four = [await broker.client() for _ in range(4)]

        def numbered(sequence: int) -> Any:
            return produce(records(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence), "t")

        first = begun(one.call(numbered(0), 9))
        await syncs.until(1)
        copy = begun(two.call(numbered(0), 9))
        await still_waits(broker, first, copy)
        second = begun(three.call(numbered(1), 9))
        await still_waits(broker, first, copy, second)
        syncs.let()
        for task in (first, copy):
            response = only(await task)
            assert (response.error_code, response.base_offset) == (0, 0)
        copy_of_second = begun(two.call(numbered(1), 9))
        await still_waits(broker, second, copy_of_second)
        # Durable records have a response at once, although a sync is under way.
        assert only(await four.call(numbered(0), 9)).base_offset == 0
        syncs.let()
        assert [only(await task).base_offset for task in (second, copy_of_second)] == [1, 1]
        assert len(syncs.begun) == 2
        assert only(await two.call(numbered(1), 9)).base_offset == 1


async def test_flush_messages_syncs_every_n_records(tmp_path: Path) -> None:
    """The append that reaches the number waits, and later ones during the sync."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs={"flush.messages": "3"})
        one, two, three = [await broker.client() for _ in range(3)]
        for _ in range(2):
            assert await code(one.call(produce(records(b"v")), 9)) == 0
        assert await end_for_consumers(one) == 2 and not syncs.begun
        due = begun(one.call(produce(records(b"v", b"w")), 9))
        await syncs.until(1)
        later = begun(two.call(produce(records(b"v")), 9))
        await still_waits(broker, due, later)
        assert await end_for_consumers(three) == 2
        syncs.let()
        assert [await code(task) for task in (due, later)] == [0, 0]
        assert await end_for_consumers(three) == 5 and broker.log("t").recovery_point >= 4
        for _ in range(2 - broker.log("t").unflushed_records):
            assert await code(one.call(produce(records(b"v")), 9)) == 0
        assert len(syncs.begun) == 1
        syncs.let_all()
        assert await code(one.call(produce(records(b"v")), 9)) == 0
        assert len(syncs.begun) == 2 and broker.log("t").unflushed_records == 0


async def test_appends_are_not_synced_by_default(tmp_path: Path) -> None:
    """The default is Kafka's: no thread is started by any append."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t")
        client = await broker.client()
        for _ in range(20):
            assert await code(client.call(produce(records(b"v")), 9)) == 0
        broker.clock.advance(4_000)
        assert not syncs.begun and broker.log("t").recovery_point == 0
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("ottla-sync")]
        syncs.let_all()


async def test_flush_configs_apply_as_they_change(tmp_path: Path) -> None:
    """The topic's config, the broker's, and none again."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t")
        syncs.let_all()
        client = await broker.client()
        expected = 0
        for kind, name, key, value, requests in (
            (2, "t", "flush.messages", "1", True),
            (2, "t", "flush.messages", "1000000", False),
            (2, "t", "flush.messages", "1", True),
            (2, "t", "flush.messages", None, False),
            (4, "", "log.flush.interval.messages", "1", True),
            (4, "1", "log.flush.interval.messages", "500", False),
            (4, "1", "log.flush.interval.messages", None, True),
            (4, "", "log.flush.interval.messages", None, False),
        ):
            await set_config(client, kind, name, key, value)
            assert await code(client.call(produce(records(b"v")), 9)) == 0
            expected += requests
            assert len(syncs.begun) == expected, (key, value)


async def test_flush_ms_syncs_a_log(tmp_path: Path) -> None:
    """No request waits for it; it is checked at the scheduler's interval."""
    overrides = {"log.flush.scheduler.interval.ms": "100", "log.flush.interval.ms": "1000"}
    async with holding(tmp_path, overrides=overrides) as (broker, syncs):
        await broker.topic("t", 2)
        await broker.topic("t-rare", 1, {"flush.ms": "5000"})
        client = await broker.client()
        broker.clock.advance(50)
        assert await code(client.call(produce(records(b"v")), 9)) == 0
        assert await code(client.call(produce(records(b"v"), "t-rare"), 9)) == 0
        broker.clock.advance(1000)  # to 1050: it was checked at 1000, when it was 950 ms old
        await broker.settle()
        assert not syncs.begun
        broker.clock.advance(50)
        await syncs.until(1)
        assert await code(client.call(produce(records(b"w")), 9)) == 0
        assert await end_for_consumers(client) == 2
        broker.clock.advance(200)  # no other sync starts for the same records
        syncs.let(1)
        await broker.state.durability.idle()
        assert broker.log("t").recovery_point >= 1 and len(syncs.begun) == 1
        syncs.let_all()
        broker.clock.advance(1000)
        await broker.state.durability.idle()
        assert broker.log("t").recovery_point == 2 and broker.log("t-rare").recovery_point == 0
        await set_config(client, 2, "t-rare", "flush.ms", "0")
        broker.clock.advance(100)
        await broker.state.durability.idle()
        assert broker.log("t-rare").recovery_point == 1
        done = len(syncs.begun)
        broker.clock.advance(10_000)
        await broker.state.durability.idle()
        assert len(syncs.begun) == done


async def test_flush_ms_without_the_schedulers_interval_syncs_nothing(tmp_path: Path) -> None:
    """As in Kafka, whose scheduler does not run by default."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs={"flush.ms": "1"})
        syncs.let_all()
        assert await code((await broker.client()).call(produce(records(b"v")), 9)) == 0
        broker.clock.advance(10_000_000)
        await broker.state.durability.idle()
        assert not syncs.begun


async def test_rolled_segment_is_synced(tmp_path: Path) -> None:
    """In the background: appends continue and the recovery point moves, so that a recovery reads less."""
    async with holding(tmp_path / "data") as (broker, syncs):
        await broker.topic("t", configs={"segment.ms": "1"})
        client = await broker.client()
        for time_ms in (T0, T0 + 1, T0 + 2):
            assert await code(client.call(produce(records(b"v", timestamp=time_ms)), 9)) == 0
        rolled_at = broker.log("t").segments[-1].base_offset
        await syncs.until(1)
        assert rolled_at == 2
        assert await code(client.call(produce(records(b"v", timestamp=T0 + 2)), 9)) == 0
        assert await end_for_consumers(client) == broker.log("t").log_end_offset > rolled_at
        assert broker.log("t").recovery_point == 0
        syncs.let_all()
        await broker.state.durability.idle()
        assert broker.log("t").recovery_point >= rolled_at
        broker.clock.advance(60_000)
        await broker.state.durability.idle()
        assert (
            f"t 0 {broker.log('t').recovery_point}\n"
            in (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text()
        )


async def test_deleted_topic_ends_all_waits(tmp_path: Path) -> None:
    """Its last sync, which fails, does not take the directory offline."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        await broker.topic("other", configs=EACH)
        client, second = [await broker.client() for _ in range(2)]
        calls = [begun(client.call(produce(records(b"v")), 9))]
        await syncs.until(1)
        calls.append(begun(second.call(produce(records(b"v")), 9)))
        await still_waits(broker, *calls)
        broker.state.topics.delete(broker.state.topics.named("t"), broker.clock.now_ms())
        assert [await code(call) for call in calls] == [3, 3]
        syncs.code = errno.EBADF
        syncs.let_all()
        await broker.state.durability.idle()
        syncs.code = 0
        assert await code(client.call(produce(records(b"v"), "other"), 9)) == 0
        await broker.topic("t", configs=EACH)
        assert await code(client.call(produce(records(b"v")), 9)) == 0


async def test_disconnect_of_a_waiting_client_changes_nothing(tmp_path: Path) -> None:
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        gone, stays = [await broker.client() for _ in range(2)]
        await gone.send(produce(records(b"a")), 9)
        await syncs.until(1)
        call = begun(stays.call(produce(records(b"b")), 9))
        await still_waits(broker, call)
        gone.close()
        await broker.settle()
        syncs.let_all()
        assert only(await call).base_offset == 1
        assert values(only(await stays.call(fetch(("t", 0, 0)), 11)).records) == [b"a", b"b"]


async def test_stop_waits_for_syncs(tmp_path: Path) -> None:
    """Waiting requests get their response, and the shutdown is clean."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        client, second = [await broker.client() for _ in range(2)]
        calls = [begun(client.call(produce(records(b"a")), 9))]
        await syncs.until(1)
        calls.append(begun(second.call(produce(records(b"b")), 9)))
        await still_waits(broker, *calls)
        stopping = begun(broker.running.stop())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stopping.done() and not (tmp_path / ".kafka_cleanshutdown").exists()
        syncs.let_all()
        assert [await code(call) for call in calls] == [0, 0]
        await stopping
        assert (tmp_path / ".kafka_cleanshutdown").exists()
    async with running(tmp_path) as broker:
        response = only(await (await broker.client()).call(fetch(("t", 0, 0)), 11))
        assert values(response.records) == [b"a", b"b"]


async def test_large_appends_do_not_wait_for_each_others_syncs(tmp_path: Path) -> None:
    """Appends in several steps are appended one after the other and covered by one sync."""
    async with holding(tmp_path) as (broker, syncs):
        await broker.topic("t", configs=EACH)
        clients = [await broker.client() for _ in range(4)]
        large = records(*[b"v" * 100] * 5000)
        calls = [begun(client.call(produce(large), 9)) for client in clients]
        await syncs.until(1)
        async with asyncio.timeout(PATIENCE_S):
            while broker.log("t").log_end_offset < 20_000:
                await broker.settle()
        await still_waits(broker, *calls)
        syncs.let_all()
        assert sorted([only(await call).base_offset for call in calls]) == [0, 5000, 10_000, 15_000]
        assert len(syncs.begun) <= 3
