"""One consume-transform-produce loop as a program: python copier.py SETTINGS, a JSON object (`Settings`).

Each poll is one transaction: the records go to the same partition of another topic, together with the offsets. Prints
the events of each transaction on stdout, one JSON object a line. SIGTERM ends it between two transactions; by its
settings it kills itself (-9) at a step of a transaction, so that every step is the last one in some run.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla_testing.clients import transactional
from ottla_testing.clients.transactional import Place

HEARTBEAT_MS = 100
MOST = 50  # records of a transaction
STEPS = ("begun", "sent", "written", "offsets", "ending", "ended")
ON_PURPOSE = "on purpose"
STOP: list[int] = []

Record = tuple[int, int, bytes]  # partition, offset, value


@dataclass(frozen=True)
class Settings:
    """`assigned`: the partitions of this transactional id, or None for those that the group assigns; `dies`: [number of
    a transaction, step, milliseconds later], or None; `apart`: a deliberate error, offsets are committed "before" the
    transaction or "after" it, outside of it.
    """

    client: str
    address: str
    group: str
    source: str
    target: str
    transactional_id: str
    assigned: list[int] | None = None
    instance: str | None = None
    session_timeout_ms: int = 10_000
    seed: int = 0
    aborts: float = 0.1
    dies: tuple[int, str, float] | None = None
    apart: str | None = None


def transformed(value: bytes) -> bytes:
    """Returns the copy of a record's value."""
    return b"copy of " + value


def die() -> None:
    """Kills this process (-9)."""
    os.kill(os.getpid(), signal.SIGKILL)


class ConfluentKafka:
    """As a member of a group, or with partitions of its own; the offsets always have the group's metadata."""

    def __init__(self, settings: Settings) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.fatal: list[str] = []
        self.producer = transactional.ConfluentKafka(settings.address, settings.transactional_id)
        own: dict[str, Any] = {"group.instance.id": settings.instance} if settings.instance else {}
        self.consumer = Consumer(
            {
                **transactional.librdkafka(settings.address),
                "group.id": settings.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": settings.session_timeout_ms,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "fetch.wait.max.ms": 100,
                "error_cb": self._remember,
                **own,
            }
        )
        if settings.assigned is None:
            # With callbacks a generation ends only in consume(), never between it and the call for the metadata.
            self.consumer.subscribe([settings.source], on_assign=_on_change, on_revoke=_on_change, on_lost=_on_change)
        else:
            # It also requests committed offsets by itself, but 2.16 never again after the error "not coordinator".
            self.consumer.assign(self._committed([TopicPartition(settings.source, n) for n in settings.assigned]))

    def _committed(self, places: list[Any]) -> list[Any]:
        from confluent_kafka import OFFSET_BEGINNING

        found = self.producer.again(self.consumer.committed, places, transactional.CALL_SECONDS)
        for place in found:
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
        return found

    def _remember(self, error: Any) -> None:
        if error.fatal() or error.name() == "_FATAL":
            self.fatal.append(error.str())

    def poll(self) -> list[Record]:
        found: list[Record] = []
        for message in self.consumer.consume(MOST, 0.03):
            if (error := message.error()) is None:
                found.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
            else:
                self._remember(error)
        if self.fatal:
            raise transactional.Fatal(self.fatal[0])
        return found

    @property
    def group(self) -> Any:
        return self.consumer.consumer_group_metadata()

    def commit_apart(self, offsets: Mapping[Place, int]) -> None:
        from confluent_kafka import TopicPartition

        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self.consumer.commit(offsets=places, asynchronous=False)

    def rewind(self) -> None:
        for place in self._committed(self.consumer.assignment()):
            self.consumer.seek(place)

    def close(self) -> None:
        self.consumer.close()


def _on_change(_consumer: Any, _places: Any) -> None:
    """Called with a changed assignment, which needs no action."""


class KafkaPython:
    """As a member of a group, with the group's metadata, or with partitions of its own by group id only."""

    def __init__(self, settings: Settings) -> None:
        from kafka import KafkaConsumer
        from kafka.structs import TopicPartition

        self.settings = settings
        self.producer = transactional.KafkaPython(settings.address, settings.transactional_id)
        own: dict[str, Any] = {"group_instance_id": settings.instance} if settings.instance else {}
        self.consumer: Any = KafkaConsumer(
            bootstrap_servers=settings.address,
            reconnect_backoff_max_ms=200,
            group_id=settings.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
            **own,
        )
        if settings.assigned is None:
            self.consumer.subscribe([settings.source])
        else:
            self.consumer.assign([TopicPartition(settings.source, number) for number in settings.assigned])

    def poll(self) -> list[Record]:
        # Long enough for a join: 3.0.12 loses an assignment that arrives between two polls.
        found = self.consumer.poll(2000, max_records=MOST)
        return [(r.partition, r.offset, r.value) for records in found.values() for r in records]

    @property
    def group(self) -> Any:
        return self.settings.group if self.settings.assigned else self.consumer.group_metadata()

    def rewind(self) -> None:
        for place in self.consumer.assignment():
            self.consumer.seek(place, self.consumer.committed(place) or 0)

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()


class Aiokafka:
    """Supports transactions by group id only, so its partitions are its own."""

    def __init__(self, settings: Settings) -> None:
        from aiokafka import TopicPartition

        assert settings.assigned is not None
        self.group = settings.group
        self.places = [TopicPartition(settings.source, number) for number in settings.assigned]
        self.producer = transactional.Aiokafka(settings.address, settings.transactional_id)
        self.producer.run(self._start(settings.address))

    async def _start(self, address: str) -> None:
        from aiokafka import AIOKafkaConsumer

        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
        )
        await self.consumer.start()
        self.consumer.assign(self.places)

    def poll(self) -> list[Record]:
        found = self.producer.run(self.consumer.getmany(timeout_ms=100, max_records=MOST))
        return [(r.partition, r.offset, r.value or b"") for records in found.values() for r in records]

    def rewind(self) -> None:
        self.producer.run(self._rewind())

    async def _rewind(self) -> None:
        for place in self.places:
            self.consumer.seek(place, await self.consumer.committed(place) or 0)

    def close(self) -> None:
        self.producer.run(self.consumer.stop())
        self.producer.close()


class Ottla:
    """Ottla's client, as a member of a group, with its metadata, or with partitions of its own by group id only."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.producer = transactional.Ottla(settings.address, settings.transactional_id)
        self.producer.run(self._start(settings))

    async def _start(self, settings: Settings) -> None:
        from ottla.client import Consumer

        own: dict[str, Any] = {"group_instance_id": settings.instance} if settings.instance else {}
        if settings.assigned is None:
            own["topics"] = [settings.source]
        else:
            own["assign"] = [(settings.source, number) for number in settings.assigned]
        self.consumer = Consumer(
            settings.address,
            group=settings.group,
            offset_reset="earliest",
            enable_auto_commit=False,
            isolation="read_committed",
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            **own,
        )
        await self.consumer.start()

    def poll(self) -> list[Record]:
        found = self.producer.run(self.consumer.getmany(timeout_ms=100, max_records=MOST))
        return [(r.partition, r.offset, r.value or b"") for records in found.values() for r in records]

    @property
    def group(self) -> Any:
        return self.settings.group if self.settings.assigned else self.consumer.group_metadata()

    def rewind(self) -> None:
        self.producer.run(self._rewind())

    async def _rewind(self) -> None:
        for place, found in (await self.consumer.committed(self.consumer.assignment())).items():
            self.consumer.seek(*place, found.offset if found else 0)

    def close(self) -> None:
        self.producer.run(self.consumer.stop())
        self.producer.close()


CLIENTS: dict[str, type[Any]] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
    "ottla": Ottla,
}


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


class Copier:
    """The loop itself, the same for every client."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.chooser = random.Random(settings.seed)
        self.number = 0  # of the transaction
        self.client = CLIENTS[settings.client](settings)
        say(ready=True)

    def run(self) -> None:
        while not STOP:
            if records := self.client.poll():
                self.number += 1
                try:
                    self._copy(records)
                except Exception as error:
                    self._give_up(error)
        self.client.close()

    def _reached(self, step: str) -> None:
        dies = self.settings.dies
        if dies and (self.number, step) == (dies[0], dies[1]):
            threading.Timer(dies[2] / 1000, die).start() if dies[2] else die()

    def _copy(self, records: Sequence[Record]) -> None:
        client, settings, producer = self.client, self.settings, self.client.producer
        producer.begin()
        self._reached("begun")
        for partition, _, value in records:
            producer.send(settings.target, partition, transformed(value))
        self._reached("sent")
        if self.chooser.random() < 0.5:
            producer.flush()
        self._reached("written")
        offsets = {(settings.source, partition): offset + 1 for partition, offset, _ in records}
        if not settings.apart:
            producer.send_offsets(offsets, client.group)
        self._reached("offsets")
        aborts = self.chooser.random() < self.settings.aborts
        if settings.apart == "before":
            client.commit_apart(offsets)
        self._reached("ending")
        (producer.abort if aborts else producer.commit)()
        self._reached("ended")
        if settings.apart == "after":
            client.commit_apart(offsets)
        if aborts:
            client.rewind()
            say(aborted=ON_PURPOSE)
        else:
            say(committed=len(records))

    def _give_up(self, error: Exception) -> None:
        """Aborts and reads again; if that fails too, ends this program with the reason."""
        try:
            self.client.producer.abort()
            self.client.rewind()
        except Exception as second:
            say(fatal=repr(error), then=repr(second))
            os._exit(3)
        say(aborted=repr(error))


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # to find out where it hangs
    signal.signal(signal.SIGTERM, lambda number, _: STOP.append(number))
    settings = json.loads(sys.argv[1])
    try:
        copier = Copier(Settings(**settings))
        copier.run()
    except Exception as error:
        say(fatal=repr(error), then="on its way")
        os._exit(3)


if __name__ == "__main__":
    main()
