"""Transactions of our own producer on Apache Kafka itself: its guarantees, also when responses are lost."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

from apache_kafka import RELEASES, Kafka
from java_transactions import create, read

from ottla.client import ClientError, Consumer, Producer
from ottla.client.net import errors
from ottla_testing.clients.losing_proxy import LosingProxy
from ottla_testing.interop.checks import Check, Failed

SETTINGS: dict[str, Any] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
# Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
TRANSACTIONAL = (0, 22, 24, 25, 26, 28)
RECORDS, SIZE = 600, 20
# After each one our producer waits, where a late copy could do harm, until there can be none: up to 3.9.
LOST_EVERY = {"3.9": 40, "4.3": 5, "4.4": 5}
PATIENCE_SECONDS = 90


class LosingTransactions(LosingProxy):
    """Loses responses to all requests of transactions."""

    def _request(self, frame: bytes, requested: set[bytes]) -> bool:
        if struct.unpack_from(">h", frame, 4)[0] in TRANSACTIONAL:
            requested.add(frame[8:12])
        return True


def values(name: str, count: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


async def send(producer: Producer, topic: str, sent: Sequence[bytes]) -> None:
    await asyncio.gather(*[await producer.send(topic, value, partition=0) for value in sent])


def same(address: str, topic: str, wanted: list[bytes]) -> None:
    found = read(address, topic)
    if found != wanted:
        raise Failed(f"{topic}: {len(found)} records {found[:3]}... instead of {len(wanted)} {wanted[:3]}...")


async def rounds(address: str) -> str:
    """Runs transactions that are committed, aborted, empty, failed in the middle, and committed."""
    async with Producer(address, transactional_id="rounds") as producer:
        for name, commits in (("one", True), ("two", False), ("none", True), ("three", True)):
            await producer.begin()
            if name != "none":
                await send(producer, "rounds", values(name, 10))
            await (producer.commit() if commits else producer.abort())
        try:
            async with producer.transaction():
                await send(producer, "rounds", values("four", 10))
                raise KeyError("on purpose")
        except KeyError:
            pass
        async with producer.transaction():
            await send(producer, "rounds", values("five", 10))
    same(address, "rounds", [*values("one", 10), *values("three", 10), *values("five", 10)])
    return "commit, abort, empty, an exception"


async def fenced(address: str) -> str:
    """Fences a producer: it fails at its commit, and at every later call."""
    async with Producer(address, transactional_id="fenced") as old:
        await old.begin()
        await send(old, "fenced", values("old", 5))
        async with Producer(address, transactional_id="fenced") as new:
            await new.init_transactions()
            for what in (old.commit, old.begin):
                try:
                    await what()
                except errors.ProducerFailed as error:
                    if what == old.commit and not isinstance(error, errors.ProducerFenced):
                        raise
                    continue
                raise Failed(f"a fenced producer's {what.__name__} succeeded")
            async with new.transaction():
                await send(new, "fenced", values("new", 5))
    same(address, "fenced", values("new", 5))
    return "fenced by another"


async def timed_out(address: str) -> str:
    """Checks that a transaction which the broker has aborted cannot be committed."""
    result = "nothing"
    async with Producer(address, transactional_id="slow", transaction_timeout_ms=700) as slow:
        await slow.begin()
        await send(slow, "slow", values("slow", 5))
        await asyncio.sleep(2.5)
        try:
            await slow.commit()
        except ClientError as error:
            result = type(error).__name__
        if result == "nothing":
            raise Failed("committed what was aborted")
        if result not in ("ProducerFenced", "ProducerFailed"):
            await slow.abort()
            async with slow.transaction():
                await send(slow, "slow", values("again", 5))
    async with Producer(address, transactional_id="slow") as last, last.transaction():
        await send(last, "slow", values("next", 5))
    found = read(address, "slow")
    if any(value.startswith(b"slow") for value in found) or found[-5:] != values("next", 5):
        raise Failed(f"slow: {found}")
    return f"timed out as {result}"


async def copied(address: str, topic: str, by_metadata: bool) -> str:
    """Reads, writes and commits offsets in transactions; every third is aborted, and failed ones are repeated."""
    output, group = f"{topic}-out", f"{topic}-group"
    async with Producer(address, enable_idempotence="required") as producer:
        await send(producer, topic, values(topic, RECORDS))
    number = done = failed = 0
    async with (
        Producer(address, transactional_id=topic, transaction_timeout_ms=10_000) as producer,
        Consumer(address, topics=[topic], group=group, isolation="read_committed", offset_reset="earliest") as consumer,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        while done < RECORDS:
            fetched = [one for part in (await consumer.getmany(timeout_ms=500)).values() for one in part]
            while fetched:
                part, number = fetched[:SIZE], number + 1
                try:
                    await producer.begin()
                    await send(producer, output, [one.value or b"" for one in part])
                    whose = consumer.group_metadata() if by_metadata else group
                    await producer.send_offsets_to_transaction({(topic, 0): part[-1].offset + 1}, whose)
                    if number % 3 == 0:
                        await producer.abort()
                        continue
                    await commit(producer)
                except errors.ProducerFailed:
                    raise
                except ClientError:
                    failed += 1
                    if failed > RECORDS:
                        raise
                    await producer.abort()
                    continue
                done += len(part)
                del fetched[:SIZE]
    same(address, output, values(topic, RECORDS))
    async with Consumer(address, assign=[(topic, 0)], group=group) as consumer:
        committed = (await consumer.committed([(topic, 0)]))[(topic, 0)]
    if committed is None or committed.offset != RECORDS:
        raise Failed(f"{group} committed {committed}")
    return f"{RECORDS} records copied in {number} transactions" + (f", {failed} of them failed" if failed else "")


async def commit(producer: Producer) -> None:
    """Repeats the commit until the outcome of the transaction is known."""
    while True:
        try:
            await producer.commit()
            return
        except errors.TransactionUnsettled:
            await asyncio.sleep(0.1)


def run(release: str) -> str:
    running = Kafka(release, **SETTINGS)
    try:
        create(running.address, "rounds", "fenced", "slow", "a", "a-out", "b", "b-out")
        result = [asyncio.run(step(running.address)) for step in (rounds, fenced, timed_out)]
        result += [asyncio.run(copied(running.address, topic, topic == "a")) for topic in ("a", "b")]
    finally:
        running.stop()
    return "; ".join(result)


def run_losing(release: str) -> str:
    proxy = LosingTransactions(LOST_EVERY[release])
    running = Kafka(release, proxy.port, **SETTINGS)
    proxy.target = running.port
    try:
        create(running.address, "a", "a-out")
        result = asyncio.run(copied(running.address, "a", by_metadata=True))
        lost = proxy.lost
    finally:
        running.stop()
        proxy.close()
    if lost < 4:
        raise Failed(f"only {lost} responses were lost")
    return f"{result}, over {lost} lost responses"


CHECKS = [
    check
    for release, version in RELEASES.items()
    for check in (
        Check(f"transactions of our producer with Kafka {version}", lambda release=release: run(release)),
        Check(
            f"transactions of our producer with Kafka {version} that loses responses",
            lambda release=release: run_losing(release),
        ),
    )
]
