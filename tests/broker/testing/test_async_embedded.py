"""`AsyncEmbedded`, and `assert_produced` with a time limit and a decoder, in both forms."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from ottla.broker import AsyncEmbedded, Embedded
from ottla.broker.testing.embedded import NotFound, OperationError, Undecodable

LONG_MS = 60_000


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_async_form_has_every_method_of_the_blocking_one() -> None:
    assert public(Embedded) - {"aio"} == public(AsyncEmbedded) - {"of"}
    for cls in (Embedded, AsyncEmbedded):
        for name in public(cls) - {
            "aio",
            "of",
            "bootstrap",
            "bootstraps",
            "client_settings",
            "control_token",
            "control_url",
            "oauth_token",
            "users",
        }:
            method = getattr(cls, name)
            assert inspect.iscoroutinefunction(method) == (cls is AsyncEmbedded), name
            assert method.__doc__, name
    blocking, awaited = Embedded(), AsyncEmbedded()
    for view in ("clock", "faults", "requests", "topology"):
        lacks = public(type(getattr(blocking, view))) - public(type(getattr(awaited, view)))
        assert lacks <= {"now_ms", "is_frozen", "offset_ms"}, view
    assert list(inspect.signature(awaited.send).parameters)[:3] == ["topic", "value", "key"]


async def test_all_operations_can_be_awaited() -> None:
    async with AsyncEmbedded(brokers=2) as broker:
        topic = await broker.create_topic("orders", partitions=2)
        assert await broker.send(topic, "bread", key="a", partition=0) == 0
        assert await broker.send_many(topic, (one for one in ["milk", ("k", "salt")])) is not None
        assert {one.value for one in await broker.records(topic)} == {b"bread", b"milk", b"salt"}
        assert [one.name for one in await broker.topics()] == ["orders"]
        assert (await broker.topic(topic)).name == topic
        kept = await broker.snapshot()
        await broker.delete_topic(topic)
        with pytest.raises(NotFound):
            await broker.topic(topic)
        await broker.restore(kept)
        assert len(await broker.records(topic, 0)) >= 1
        before = await broker.clock.freeze()
        assert (await broker.clock.advance(5000)).now_ms == before.now_ms + 5000
        node = await broker.topology.leader(topic)
        await broker.topology.stop_node(node)
        assert await broker.topology.leader(topic) == 3 - node
        await broker.topology.start_node(node)
        assert {one.id for one in (await broker.topology.describe()).nodes} == {1, 2}
        assert await broker.groups() == [] and (await broker.group("none")).state == "Dead"
        assert await broker.producers() == []
        assert await broker.requests(api="Produce") == [] and await broker.requests.mark() >= 1
        await broker.requests.clear()
        await broker.assert_requests(api="Produce", none=True)
        await broker.reset()
        assert await broker.topics() == []
    with pytest.raises(OperationError, match="does not run"):
        await broker.topics()
    async with broker:
        assert await broker.topics() == []


async def test_faults_are_in_force_within_a_block_and_can_be_awaited() -> None:
    async with AsyncEmbedded() as broker:
        async with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER") as added:
            assert [one.id for one in await broker.faults.list()] == [added.id]
            assert (added.fired, added.matched) == (0, 0)
            with pytest.raises(TimeoutError, match="fired 0 times"):
                await added.wait_fired(seconds=0.01)
        assert await broker.faults.list() == []
        kept = await broker.faults.stall("Fetch")
        async with kept:
            assert kept.rule.action.name == "stall"
        await broker.faults.stall("Fetch")
        await broker.faults.clear()
        assert await broker.faults.list() == []
        with pytest.raises(ValueError, match="colour"):
            broker.faults.stall("Fetch", colour="red")


async def test_awaited_calls_do_not_block_the_loop_and_are_cancelled_with_their_task() -> None:
    async with AsyncEmbedded() as broker:
        topic = await broker.create_topic()
        waiting = asyncio.create_task(broker.assert_produced(topic, ["x"], within_ms=LONG_MS))
        assert len(await broker.topics()) == 1  # while the other waits
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        left = asyncio.create_task(broker.assert_produced(topic, ["x"], within_ms=LONG_MS))
        await broker.topics()
        await broker.stop()
        with pytest.raises(OperationError, match=r"the broker (stopped before it was done|does not run)"):
            await left


def test_aio_is_the_same_broker_in_any_loop() -> None:
    with Embedded() as broker:
        for value in ("a", "b"):
            asyncio.run(broker.aio.send("t", value))  # type: ignore[arg-type]
        broker.assert_produced("t", ["a", "b"])


# Within a time


def test_assertion_waits_for_records_within_the_time() -> None:
    with Embedded() as broker:
        topic = broker.create_topic(partitions=2)
        begun = threading.Event()

        def send() -> None:
            begun.wait()
            for number in range(4):
                broker.send(topic, str(number), partition=number % 2)

        thread = threading.Thread(target=send)
        thread.start()
        begun.set()
        broker.assert_produced(topic, ["0", "2", "1", "3"], within_ms=LONG_MS)
        broker.assert_produced(topic, ["3", "2", "1", "0"], False, within_ms=LONG_MS)
        thread.join()


async def test_wait_for_records_is_ended_by_the_append() -> None:
    async with AsyncEmbedded() as broker:
        topic = await broker.create_topic()
        loop = asyncio.get_running_loop()
        spent: list[float] = []
        for number in range(10):
            wanted = [str(n) for n in range(number + 1)]
            waiting = asyncio.create_task(broker.assert_produced(topic, wanted, within_ms=LONG_MS))
            await broker.topics()
            begun = loop.time()
            await broker.send(topic, str(number))
            await waiting
            spent.append(loop.time() - begun)
        assert min(spent) < 0.05


async def test_assertion_waits_for_a_topic_within_the_time() -> None:
    async with AsyncEmbedded() as broker:
        waiting = asyncio.create_task(broker.assert_produced("later", ["x"], within_ms=LONG_MS))
        await broker.topics()
        assert not waiting.done()
        await broker.send("later", "x")
        await waiting


def test_assertion_fails_with_the_difference_after_the_time() -> None:
    with Embedded() as broker:
        broker.send("t", "a")
        with pytest.raises(AssertionError) as at_once:
            broker.assert_produced("t", ["a", "b"])
        with pytest.raises(AssertionError) as later:
            broker.assert_produced("t", ["a", "b"], within_ms=80)
        assert str(at_once.value) == str(later.value) and "- b'b'" in str(later.value)
        with pytest.raises(NotFound, match="there is no none"):
            broker.assert_produced("none", [], within_ms=60)
        for wrong, error in ((-1, ValueError), (0.5, TypeError)):
            with pytest.raises(error, match="within_ms"):
                broker.assert_produced("t", ["a"], within_ms=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected is a list"):
            broker.assert_produced("t", "a", within_ms=LONG_MS)


# Decoded


def test_values_and_keys_are_compared_and_shown_decoded() -> None:
    with Embedded() as broker:
        broker.send_many("t", [("a", '{"total": 3}'), ("b", None)])
        broker.assert_produced("t", [{"total": 3}, None], decode="json")
        broker.assert_produced("t", [("a", {"total": 3}), (b"b", None)], decode="json")
        broker.assert_produced("t", [("A", "3"), ("B", None)], decode=lambda v: str(eval(v)["total"]), decode_key=upper)
        with pytest.raises(AssertionError, match=r"- \{'total': 4\}\n  \+ \{'total': 3\}"):
            broker.assert_produced("t", [{"total": 4}, None], decode="json", within_ms=60)
        first, second = broker.records("t", decode="json", decode_key=bytes.decode)
        assert (first.key, first.value["total"], second.value) == ("a", 3, None)


def upper(key: bytes) -> str:
    return key.decode().upper()


def test_record_that_cannot_be_decoded_fails_at_once_with_partition_and_offset() -> None:
    with Embedded() as broker:
        broker.send_many("t", ["1", "bread"])
        text = "the value of t-0 at offset 1 cannot be decoded: JSONDecodeError"
        with pytest.raises(AssertionError, match=text):
            broker.assert_produced("t", [1, 2, 3], decode="json", within_ms=LONG_MS)
        with pytest.raises(Undecodable, match=text):
            broker.records("t", decode="json")
        wrong: Any = "avro"
        with pytest.raises(ValueError, match="decode is"):
            broker.assert_produced("t", [], decode=wrong)
        with pytest.raises(ValueError, match="decode is"):
            broker.records("t", decode=wrong)
