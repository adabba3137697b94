"""Transactional producers in simulated time: the real broker's handlers on a simulated disk, and a bad network.

Owns one broker that is killed and restarted, applications that send within transactions with a transactional id of
their own, each with one or more successive producers, and the checks at the end: a transaction acknowledged as
committed is visible as a whole, once and in order, with its offsets; an aborted one is not visible at all; one with an
unknown outcome is either. No transaction stays open. A run is identical for the same seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ottla.broker.broker_state import BrokerState
from ottla.broker.clock import SystemClock
from ottla.broker.connection_info import ConnectionInfo
from ottla.broker.metrics.client_ledger import ClientLibrary
from ottla.broker.network import router
from ottla.client import GroupMetadata, Producer
from ottla.client.net import errors
from ottla.protocol.records import formats
from ottla.storage.producers.txn_index import ABORT, read_marker
from ottla_testing.broker.harness import options
from ottla_testing.client.simulated_broker import HOST, NODE, PORT
from ottla_testing.client.simulated_network import Faults, SimulatedNetwork
from ottla_testing.storage.simulated_files import SimulatedFiles

PARTITIONS = 3
START_MS = 1_700_000_000_000
PATIENCE_S = 3600
OVERRIDES = {
    "advertised.listeners": f"PLAINTEXT://{HOST}:{PORT}",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "node.id": str(NODE),
}


def loop_clock(loop: Any) -> SystemClock:
    """The broker's clock with the event loop's time."""
    return SystemClock(loop, wall=lambda: START_MS + int(loop.time() * 1000), monotonic=loop.time)


class NoRecipient:
    """The connection of a request for which no rule of fault injection fires."""

    def is_wanted(self) -> bool:
        return True

    def abort(self) -> None:
        raise AssertionError("no response is held back")


class WholeBroker:
    """The real broker without its sockets: a server for `SimulatedNetwork`."""

    def __init__(self, loop: Any, release: str) -> None:
        self.is_up = True
        self.generation = 1
        self.clock = loop_clock(loop)
        self._loop = loop
        self._options = options([Path("/data")], OVERRIDES, release)
        self._apis = router.apis_of(self._options.config.profile)
        self.files: Any = SimulatedFiles()

    def start(self) -> None:
        self.state = BrokerState.open(
            self._options, {(1, "PLAINTEXT"): PORT}, self._apis, self.clock, self._loop, self.files
        )
        self.state.durability._submit = self._submit  # type: ignore[method-assign]
        self.is_up = True

    def _submit(self, pool: Any, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs syncs without a thread: the simulated event loop would not wait for one."""
        durability = self.state.durability
        durability._under_way += 1

        def sync() -> None:
            work()
            durability._finished(done, None)

        self._loop.call_soon(sync)

    async def stop(self, *, kill: bool) -> None:
        """Serves nothing until `start`. A killed one leaves the disk as it is."""
        self.is_up = False
        self.generation += 1
        left = self.files.fork() if kill else self.files
        self.state.begin_stop()
        await self.state.finish_appends(5)
        self.state.close()
        self.files = left
        self.files.restart()

    def respond(self, frame: bytes) -> bytes | None:
        connection_info = ConnectionInfo("PLAINTEXT", HOST, "client", ClientLibrary("PLAINTEXT", None, None, False), 1)
        runner = router.call(memoryview(bytearray(frame)), self.state, connection_info)
        assert runner.start(NoRecipient()) is None, f"{runner.route.name} has to wait"
        return b"".join(bytes(part) for part in runner.parts()) or None


@dataclass
class SentTransaction:
    """One transaction as its application knows it: its records, by partition, and its end: without a requested commit
    none of it may be visible.
    """

    name: str
    values: dict[int, list[bytes]] = field(default_factory=dict)
    offset: int | None = None
    outcome: str = "aborted"


class World:
    """See the module. `stops_every_s`: the broker is killed or stopped about this often, for up to a second."""

    def __init__(self, seed: int, release: str, faults: Faults, *, stops_every_s: float = 0.0) -> None:
        self.random = Random(seed)
        self.network = SimulatedNetwork(self.random, faults)
        self.loop = self.network.loop
        self.broker = WholeBroker(self.loop, release)
        self.network.servers[HOST, PORT] = self.broker
        self.sent: list[SentTransaction] = []
        self.stops_every_s = stops_every_s
        self.counts: dict[str, int] = {}
        self._numbers = 0
        self._is_over = False

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- applications

    def producer(self, name: str) -> Producer:
        return Producer(
            f"{HOST}:{PORT}",
            transactional_id=name,
            now_ms=self.broker.clock.now_ms,
            random=self.random,
            batch_size=self.random.choice((0, 100, 16384)),
            linger_ms=self.random.choice((0, 1)),
            request_timeout_ms=500,
            delivery_timeout_ms=self.random.choice((500, 20_000)),
            max_block_ms=self.random.choice((1000, 60_000)),
            old_brokers=False,
        )

    async def application(self, name: str, count: int) -> None:
        """Runs `count` transactions with successive producers; some start before the previous one has stopped."""
        done = 0
        zombies: list[asyncio.Task[Any]] = []
        while done < count:
            producer = self.producer(name)
            await self._until(producer.start)
            try:
                while done < count:
                    done += 1
                    if self.random.random() < 0.1:  # others take over during this
                        zombies.append(asyncio.ensure_future(self._zombie(producer, name)))
                        producer = None
                        break
                    await self._transaction(producer, name)
            except errors.ProducerFailed as error:
                self.count(type(error).__name__)
            finally:
                if producer is not None:
                    await producer.stop()
        await asyncio.gather(*zombies)

    async def _until(self, call: Callable[[], Any]) -> None:
        while True:
            try:
                await call()
                return
            except errors.ConnectionLost:
                await asyncio.sleep(0.1)

    async def _zombie(self, producer: Producer, name: str) -> None:
        try:
            for _ in range(3):
                await self._transaction(producer, name)
                await asyncio.sleep(self.random.random() * 2)
        except errors.ProducerFailed as error:
            self.count("zombie " + type(error).__name__)
        finally:
            await producer.stop()

    async def _transaction(self, producer: Producer, name: str) -> None:
        """Runs one transaction; its outcome stays unknown if the producer has failed before."""
        while True:
            try:
                await producer.begin()
                break
            except errors.TransactionUnsettled:
                self.count("begin again")
        transaction = SentTransaction(name)
        self.sent.append(transaction)
        wants = self.random.random() < 0.75
        try:
            for _ in range(self.random.randrange(6)):
                self._numbers += 1
                partition, value = self.random.randrange(PARTITIONS), b"<%d>" % self._numbers
                transaction.values.setdefault(partition, []).append(value)
                await producer.send("t", value, partition=partition)
                if self.random.random() < 0.2:
                    await asyncio.sleep(self.random.random() * 0.3)
            if self.random.random() < 0.4:
                self._numbers += 1
                transaction.offset = self._numbers
                await producer.send_offsets_to_transaction({("t", 0): transaction.offset}, GroupMetadata("of " + name))
            if wants:
                transaction.outcome = "unknown"
                while True:
                    try:
                        await producer.commit()
                        break
                    except errors.TransactionUnsettled:
                        self.count("commit again")
                transaction.outcome = "committed"
                self.count("committed")
                return
        except errors.ProducerFailed:
            raise
        except (errors.TransactionFailed, errors.KafkaError, errors.ConnectionLost, errors.BufferFull):
            self.count("failed")
            transaction.outcome = "aborted"
        if producer._sender is not None and producer._sender.failure is not None:
            return
        while True:
            try:
                await producer.abort()
                break
            except errors.TransactionUnsettled:
                self.count("abort again")
        self.count("aborted")

    async def _trouble(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self.random.random() * 2 * self.stops_every_s)
            self.count("stop")
            await self.broker.stop(kill=self.random.random() < 0.6)
            self.network.cut_all()
            await asyncio.sleep(self.random.random())
            self.broker.start()

    # -- a run

    def run(self, names: int, count: int) -> None:
        async def life() -> None:
            self.broker.start()
            self.broker.state.topics.create("t", PARTITIONS, {}, self.broker.clock.now_ms())
            trouble = asyncio.ensure_future(self._trouble()) if self.stops_every_s else None
            await asyncio.gather(*(self.application(f"tx{n}", count) for n in range(names)))
            self._is_over = True
            if trouble is not None:
                await trouble
            self.network.faults = Faults()
            for name in range(names):  # the open transaction of a fenced producer is aborted
                last = self.producer(f"tx{name}")
                await last.start()
                await last.init_transactions()
                await last.stop()
            self.check()
            await self.broker.stop(kill=False)

        self.loop.run(asyncio.wait_for(life(), PATIENCE_S))
        assert not self.loop.errors, self.loop.errors

    def seen(self, partition: int) -> list[bytes]:
        """Returns the records visible to a read_committed consumer."""
        log = self.broker.state.topics.partition("t", partition).log
        assert not log.open_transactions(), log.open_transactions()
        found: list[tuple[int, bytes]] = []
        running: dict[int, list[tuple[int, bytes]]] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = bytes(log.read(offset, 1 << 20).records)
            for position, header in formats.headers(data):
                records = list(formats.records(data, position))
                if header.is_control:
                    ended = running.pop(header.producer_id, [])
                    marker = read_marker(data, position, header)
                    assert marker is not None
                    if marker.kind != ABORT:
                        found += ended
                else:
                    values = [(record.offset, bytes(record.value or b"")) for record in records]
                    running.setdefault(header.producer_id, []).extend(values)
                offset = header.next_offset
        return [value for _, value in sorted(found)]

    def check(self) -> None:
        seen = {partition: self.seen(partition) for partition in range(PARTITIONS)}
        everything = [value for values in seen.values() for value in values]
        assert len(everything) == len(set(everything)), "something is seen twice"
        for transaction in self.sent:
            whole = {where: [v for v in seen[where] if v in values] for where, values in transaction.values.items()}
            is_seen = whole == transaction.values
            is_unseen = not any(whole.values())
            if transaction.outcome == "committed":
                assert is_seen, f"committed, but not seen whole or in order: {transaction}, {whole}"
            elif transaction.outcome == "aborted":
                assert is_unseen, f"aborted, but seen: {transaction}, {whole}"
            else:
                assert is_seen or is_unseen, f"seen in part: {transaction}, {whole}"
        self._check_offsets()

    def _check_offsets(self) -> None:
        for name in {transaction.name for transaction in self.sent}:
            mine = [
                transaction for transaction in self.sent if transaction.name == name and transaction.offset is not None
            ]
            possible: set[int | None] = {None}
            for transaction in mine:
                if transaction.outcome == "committed":
                    possible = {transaction.offset}
                elif transaction.outcome == "unknown":
                    possible.add(transaction.offset)
            committed = self.broker.state.groups.offsets("of " + name).get(("t", 0))
            found = None if committed is None else committed.offset
            assert found in possible, f"{name}: offset {found} is committed, not one of {possible}"
