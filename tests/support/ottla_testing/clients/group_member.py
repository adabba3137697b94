"""One member of a group as a program: python group_member.py CLIENT ADDRESS GROUP TOPIC [SETTING=VALUE ...].

Prints assigned and revoked partitions and read records on stdout, one JSON object a line, and commits after each poll.
SIGTERM makes it leave the group; a killed one just ends. Settings are confluent-kafka's or kafka-python's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import warnings
from collections.abc import Iterable
from typing import Any

SESSION_TIMEOUT_MS = 3000  # the delay after a kill; a much shorter one would expire live members on a busy machine
HEARTBEAT_MS = 300
STOP: list[int] = []


def say(event: str, partitions: Iterable[Any]) -> None:
    print(json.dumps({event: sorted(p.partition for p in partitions)}), flush=True)


def say_record(partition: int, offset: int, value: bytes) -> None:
    print(json.dumps({"record": [partition, offset, value.decode()]}), flush=True)


def say_refused(error: Exception) -> None:
    """Prints an error caused by a rebalance or a stopped broker, which is not a failure: a later try succeeds."""
    print(json.dumps({"refused": str(error)}), flush=True)


def kafka_python(address: str, group: str, topic: str, settings: dict[str, str]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaConnectionError, KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            say("revoked", revoked)

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            say("assigned", assigned)

    timing: dict[str, Any] = {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    own: dict[str, Any] = {name: int(value) if value.isdigit() else value for name, value in settings.items()}
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        **{**timing, **own},
    )
    consumer.subscribe([topic], listener=Listener())
    while not STOP:
        # Long enough for a join: 3.0.12 loses an assignment that arrives between two polls.
        try:
            found = consumer.poll(2000)
        except KafkaConnectionError as error:  # its refresh of metadata may meet a stopped broker
            say_refused(error)
            continue
        for records in found.values():
            for r in records:
                say_record(r.partition, r.offset, r.value)
        if found:
            try:
                consumer.commit()
            except KafkaError as error:
                say_refused(error)
    consumer.close()


def confluent_kafka(address: str, group: str, topic: str, settings: dict[str, str]) -> None:
    from confluent_kafka import Consumer, KafkaException

    timing = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    if settings.get("group.protocol") == "consumer":  # KIP-848: these are configs of the broker
        timing = {}
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            **timing,
            **settings,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("assigned", partitions),
        on_revoke=lambda _, partitions: say("revoked", partitions),
    )
    while not STOP:
        found = [m for m in consumer.consume(500, 0.1) if not report_error(m)]
        for m in found:
            say_record(m.partition() or 0, m.offset() or 0, m.value() or b"")
        if found:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say_refused(error)
    consumer.close()


def report_error(message: Any) -> bool:
    if error := message.error():
        print(json.dumps({"error": error.name(), "fatal": error.fatal()}), flush=True)
    return error is not None


def aiokafka(address: str, group: str, topic: str, _settings: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            say("revoked", revoked)

        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            say("assigned", assigned)

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        consumer.subscribe([topic], listener=Listener())
        async with consumer:
            while not STOP:
                found = await consumer.getmany(timeout_ms=100)
                for records in found.values():
                    for r in records:
                        say_record(r.partition, r.offset, r.value or b"")
                if found:
                    try:
                        await consumer.commit()
                    except KafkaError as error:
                        say_refused(error)

    asyncio.run(run())


KINDS = {"kafka-python": kafka_python, "confluent-kafka": confluent_kafka, "aiokafka": aiokafka}


def main() -> None:
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGTERM, lambda number, _: STOP.append(number))
    kind, address, group, topic, *settings = sys.argv[1:]
    KINDS[kind](address, group, topic, dict(setting.split("=", 1) for setting in settings))


if __name__ == "__main__":
    main()
