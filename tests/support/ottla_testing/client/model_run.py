"""One seeded run of the model: producers in a simulated world with all kinds of failures, and its outcome.

A run depends only on its kind and its seed: how many records in how many partitions, the options of the producers, the
failures of the network, the restarts of the broker, the losses of its disk. `OTTLA_MODEL_SEED` replays one (see
`test_model.py`).
"""

from __future__ import annotations

import asyncio
import random as random_module
import traceback
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from ottla.broker.releases.profiles import OWN
from ottla.client.net.errors import ConnectionLost, DeliveryTimeout, KafkaError, MessageTooLarge, ProducerFailed
from ottla.client.producer.producer import Producer
from ottla_testing.client.model_history import (
    PRODUCER_FAILED,
    REFUSED,
    TIMED_OUT,
    Acknowledged,
    Event,
    Failed,
    Fatal,
    History,
    Note,
    Sent,
    Violation,
    check,
)
from ottla_testing.client.simulated_broker import HOST, PORT, TOPIC, SimulatedBroker, shown, value_of
from ottla_testing.client.simulated_loop import NothingLeft
from ottla_testing.client.simulated_network import Faults, Link, SimulatedNetwork

STUCK_AFTER_S = 3000.0
CALM = Faults(delay_s=0.002)


@dataclass(frozen=True)
class Kind:
    """The common settings of all runs of one kind."""

    release: str = OWN
    idempotence: str = "required"
    in_flight_max: int = 20
    losses: bool = True
    """The broker may come back without acknowledged records."""
    expires: bool = False
    """The broker forgets producers after some seconds."""


@dataclass(frozen=True)
class Setting:
    """The random settings of one run."""

    partitions: int
    records: int
    groups: list[list[int]]
    """The partitions of each of the producers that run at once."""
    successive: int
    """How many producers follow each other in each group."""
    producer: dict[str, Any]
    network: Faults
    broker: dict[str, Any]
    incidents: list[str]
    """What may happen to the broker, drawn from again and again."""
    calm_s: float
    """The mean time between two of them."""
    refused: float
    """How many records are such as the broker refuses."""


# A request may still arrive this long after the end of its connection. The producer assumes less than COPIES_LIVE_S.
LATE_S = 1.0


def draw(random: Random, kind: Kind) -> Setting:
    """Draws one run's settings. Mostly few kinds of failures at once, as otherwise hardly anything would be written."""
    partitions = random.choice((1, 1, 2, 3))
    delay_s = random.choice((0.002, 0.02, 0.2))
    in_flight = random.randint(1, kind.in_flight_max)
    producer: dict[str, Any] = {
        "acks": random.choice((1, "all")),
        "enable_idempotence": kind.idempotence,
        "linger_ms": random.choice((0, 0, 5, 50)),
        "batch_size": random.choice((70, 90, 110, 130)),
        "max_in_flight_requests_per_connection": in_flight,
        "retry_backoff_ms": random.choice((10, 100)),
        "retry_backoff_max_ms": 200,
        "request_timeout_ms": random.choice((300, 1000, 5000)),
        "delivery_timeout_ms": random.choice((120_000, 120_000, 120_000, 6000, 1500)),
    }
    producer["request_timeout_ms"] = min(producer["request_timeout_ms"], producer["delivery_timeout_ms"])
    if random.random() < 0.15:  # many frames are late, and given up in flight
        producer |= {"request_timeout_ms": 1000, "delivery_timeout_ms": random.choice((1000, 1500)), "linger_ms": 0}
        delay_s = 0.02
        network = Faults(delay_s=delay_s, cut_before=0.25, cut_after=0.05, late=1, late_s=LATE_S)
    else:
        network = Faults(
            delay_s=delay_s,
            cut_before=random.choice((0, 0.02, 0.1)),
            cut_after=random.choice((0, 0.02, 0.1)),
            late=random.choice((0, 0.5, 1, 1)),
            late_s=random.choice((0.05, LATE_S)),
            repeated=random.choice((0, 0, 0.05)),
        )
    scan_bytes = random.choice((1 << 24, 1 << 24, 1 << 24, 400, 0)) if kind.release == OWN else 0
    broker: dict[str, Any] = {
        "partitions": partitions,
        "scan_bytes": scan_bytes,
        "has_scan": scan_bytes > 0,
        "refusing": random.choice((0, 0, 0.1)),
        "segment_bytes": random.choice((600, 1 << 20)),
        "timestamp_before_max_ms": 500_000,
    }
    incidents: list[str] = random.sample(("restart", "kill", "start", "start", "cut", "flush"), random.randint(0, 4))
    if kind.losses and random.random() < 0.4:
        incidents += random.sample(("power", "power", "disk"), random.randint(1, 2))
    if kind.expires:
        broker["expiration_ms"] = random.choice((300, 2000))
        incidents.append("expire")
    groups = [list(range(partitions))]
    if partitions > 1 and random.random() < 0.5:
        groups = [[0], list(range(1, partitions))]
    return Setting(
        partitions=partitions,
        records=random.randint(10, 60),
        groups=groups,
        successive=random.choice((1, 1, 1, 2)),
        producer=producer,
        network=network,
        broker=broker,
        incidents=incidents,
        calm_s=max(0.03, delay_s * random.choice((3, 10, 40, 200))),
        refused=random.choice((0, 0, 0, 0.05)),
    )


class Outcome(NamedTuple):
    """The outcome of a run."""

    seed: int
    setting: Setting
    history: History
    violations: list[Violation]

    def describe(self) -> str:
        """Returns all of it as text."""
        wrong = "\n".join(f"{violation.kind}: {violation.detail}" for violation in self.violations)
        return f"seed {self.seed}: {self.setting}\n{self.history.describe()}\n{wrong}"


@dataclass
class Run:
    """One run in progress."""

    seed: int
    kind: Kind
    verbose: bool = False
    producers: int = 0
    records: int = 0
    failed: set[int] = field(default_factory=set)
    finished: bool = False

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.setting = draw(self.random, self.kind)
        self.history = History()
        self.events: list[Event] = self.history.events
        self.network = SimulatedNetwork(self.random, self.setting.network)
        self.loop = self.network.loop
        self.broker = SimulatedBroker(
            self.random,
            self.events,
            self.loop.time,
            release=self.kind.release,
            **self.setting.broker,
        )
        self.network.servers[HOST, PORT] = self.broker
        self.given: dict[tuple[int, int], list[int]] = defaultdict(list)  # the records that were in batches, in order
        self.wrong: list[Violation] = []
        if self.verbose:
            self.network.trace = self._trace

    def _trace(self, link: Link, what: str, frame: bytes) -> None:
        self.note(f"connection {link.number}: {what}: {shown(frame)}")

    def note(self, text: str) -> None:
        self.events.append(Note(self.loop.now_s, text))

    def run(self) -> Outcome:
        """Runs from beginning to end, and checks the history."""
        history, setting = self.history, self.setting
        history.response_s = setting.network.delay_s + 0.01
        history.delivery_timeout_s = setting.producer["delivery_timeout_ms"] / 1000
        random_module.seed(self.seed)  # frames that are not delivered
        violations: list[Violation] = []
        try:
            self.loop.run(self._main())
        except (NothingLeft, TimeoutError) as error:
            violations.append(Violation("the run never ended", repr(error)))
        except Exception:  # an error in the producer where an application does not expect one
            violations.append(Violation("an application failed", traceback.format_exc()))
        else:
            history.logs = self.broker.final_logs()
            violations = check(history) + self.wrong
        violations += [Violation("an uncaught error", repr(context)) for context in self.loop.errors]
        return Outcome(self.seed, setting, history, violations)

    # -- the simulation

    async def _main(self) -> None:
        setting = self.setting
        trouble = asyncio.ensure_future(self._incidents())
        share = setting.records // len(setting.groups)
        lives = [asyncio.ensure_future(self._group(group, share)) for group in setting.groups]
        await asyncio.wait_for(asyncio.gather(*lives), STUCK_AFTER_S)
        trouble.cancel()
        # Repeated and late frames arrive before the logs are read.
        await asyncio.sleep(setting.network.late_s + setting.network.delay_s + 1)
        if not self.broker.is_up:
            self.broker.start()

    async def _incidents(self) -> None:
        random, setting = self.random, self.setting
        while setting.incidents and not self.finished:
            await asyncio.sleep(random.expovariate(1 / setting.calm_s))
            incident = random.choice(setting.incidents)
            broker = self.broker
            if incident == "start":
                log = random.choice(broker.logs)
                if log.log_end_offset > log.log_start_offset:
                    broker.move_log_start(
                        log.partition, random.choice((log.log_end_offset, random.randint(0, log.log_end_offset)))
                    )
            elif incident == "cut":
                self.note("all connections are cut")
                self.network.cut_all(but_new=True)
            elif incident == "flush":
                broker.flush()
            elif incident == "expire":
                broker.expire_producers()
            else:
                await self._restart(incident)
                # Enough for connections and requests, so that something happens between two of them.
                await asyncio.sleep(0.2 + random.random() * 20 * setting.network.delay_s)

    async def _restart(self, incident: str) -> None:
        broker = self.broker
        broker.stop(clean=incident == "restart")
        self.network.cut_all()
        try:
            await asyncio.sleep(self.random.choice((0.0, 0.05, 0.5)))
        finally:
            if incident in ("power", "disk"):
                broker.lose_power(everything=incident == "disk")
            broker.start()

    def _calm_down(self) -> None:
        self.finished = True
        self.network.faults = CALM
        self.broker.refusing = 0.0

    # -- the applications

    async def _group(self, partitions: list[int], share: int) -> None:
        for turn in range(self.setting.successive):
            await self._life(partitions, share // self.setting.successive)
            if turn < self.setting.successive - 1:
                await asyncio.sleep(self.random.random() * self.setting.calm_s)

    async def _life(self, partitions: list[int], share: int) -> None:
        """Runs one producer. Its last records are sent without failures, so that it must notice a loss."""
        number = self.producers = self.producers + 1
        producer = await self._started()
        used: set[int] = set()
        futures: list[asyncio.Future[Any]] = []
        while share > 0 and number not in self.failed:
            partition = self.random.choice(partitions)
            used.add(partition)
            for _ in range(min(share, self.random.randint(1, 6))):
                share -= 1
                await self._send(producer, number, partition, futures)
            if self.random.random() < 0.7:
                await asyncio.sleep(self.random.expovariate(1 / self.setting.calm_s) / 3)
        if self.random.random() < 0.5:
            await self._settled(futures)
        self._calm_down()
        await self._settled(futures)
        for partition in sorted(used):
            if number not in self.failed:
                await self._send(producer, number, partition, futures, refused=False)
        await self._settled(futures)
        if self.kind.idempotence != "off" and self.random.random() < 0.3:
            await asyncio.sleep(self.setting.network.late_s + 1)
            for partition in sorted(used):
                await self._look_at_the_tail(producer, number, partition)
        await producer.stop()

    async def _started(self) -> Producer:
        while True:
            producer = Producer(
                f"{HOST}:{PORT}",
                now_ms=lambda: int(self.loop.now_s * 1000),
                random=self.random,
                **self.setting.producer,
            )
            try:
                await producer.start()
                return producer
            except ConnectionLost:
                await producer.stop()
                await asyncio.sleep(0.1)

    async def _look_at_the_tail(self, producer: Producer, number: int, partition: int) -> None:
        """Reads the tail of the log, as an application does after a fatal error: its own last record."""
        found = await producer.last_committed(TOPIC, partition)
        given = self.given[number, partition]
        there = [(offset, record) for offset, record in self.broker.final_logs()[partition].records if record in given]
        if found is None or not there:
            right = found is None and not there
        else:
            offset, record = there[-1]
            ordinal = given.index(record)
            right = (found.offset, found.value, found.ordinal) == (offset, value_of(record), ordinal)
        if not right:
            self.wrong.append(Violation("the last committed record is another", f"{found}, not the last of {there}"))

    async def _settled(self, futures: list[asyncio.Future[Any]]) -> None:
        if futures:
            await asyncio.wait(futures)

    async def _send(
        self,
        producer: Any,
        number: int,
        partition: int,
        futures: list[asyncio.Future[Any]],
        *,
        refused: bool | None = None,
    ) -> None:
        record = self.records = self.records + 1
        if refused is None:
            refused = self.random.random() < self.setting.refused
        self.events.append(Sent(self.loop.now_s, record, number, partition))
        stamp = {"timestamp_ms": 1} if refused else {}  # too old for the topic
        try:
            future = await producer.send(TOPIC, value=value_of(record), partition=partition, **stamp)
        except ConnectionLost:  # no metadata for a minute: it never was in a batch
            self.events.append(Failed(self.loop.now_s, record, REFUSED))
            return
        except Exception as error:
            self._failed(record, number, partition, error)
            return
        futures.append(future)
        self.given[number, partition].append(record)
        future.add_done_callback(lambda done: self._done(done, record, number, partition))

    def _done(self, future: asyncio.Future[Any], record: int, number: int, partition: int) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self._failed(record, number, partition, error)
            return
        metadata = future.result()
        assert (metadata.topic, metadata.partition) == (TOPIC, partition)
        offset = metadata.offset if metadata.has_offset else None
        self.events.append(Acknowledged(self.loop.now_s, record, offset))

    def _failed(self, record: int, number: int, partition: int, error: BaseException) -> None:
        now_s = self.loop.now_s
        if isinstance(error, ProducerFailed):
            if number not in self.failed:
                self.failed.add(number)
                cause: Any = error
                while cause.__cause__ is not None and getattr(cause, "partition", None) is None:
                    cause = cause.__cause__
                where = getattr(cause, "partition", None)
                self.events.append(Fatal(now_s, number, -1 if where is None else where, repr(cause)))
            why = PRODUCER_FAILED
        elif isinstance(error, DeliveryTimeout):
            why = TIMED_OUT
        elif isinstance(error, MessageTooLarge) or (isinstance(error, KafkaError) and not error.retriable):
            why = REFUSED
        else:
            why = repr(error)
        self.events.append(Failed(now_s, record, why))


def run(seed: int, kind: Kind, *, verbose: bool = False) -> Outcome:
    """Runs the model once."""
    return Run(seed, kind, verbose).run()
