"""A disk that is really full, and real clients: their errors, what is readable meanwhile, and the log afterwards.

If file systems can be mounted, a small tmpfs; also a limit on the size of files, raised while the broker runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from ottla.client.producer.producer import Producer as OttlaProducer
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S, until

VALUE_BYTES = 20_000
DISK_BYTES = 4 << 20
STORAGE_ERROR = 56
TOPIC = "t"


class Disk(Protocol):
    """A directory with little space for a broker."""

    broker: RunningBroker

    def make_room(self) -> None: ...

    def close(self) -> None: ...


class SmallTmpfs:
    """A file system of its own, half of which is taken by a file that can be removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _mount(folder, DISK_BYTES)
        self._filler = folder / "filler"
        self._filler.write_bytes(bytes(DISK_BYTES // 2))
        self.broker = RunningBroker(folder)

    def make_room(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        self.broker.close()
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


class SmallFiles:
    """A limit on the size of the broker's files."""

    def __init__(self, folder: Path) -> None:
        self.broker = RunningBroker(folder)
        self._limit(DISK_BYTES // 2)

    def _limit(self, size: int) -> None:
        assert self.broker.process
        _, most = resource.prlimit(self.broker.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.broker.process.pid, resource.RLIMIT_FSIZE, (size, most))

    def make_room(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def close(self) -> None:
        self.broker.close()


def _mount(folder: Path, size: int) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)


@functools.cache
def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            _mount(Path(folder), 1 << 20)
        except (OSError, subprocess.CalledProcessError):
            return False
        return subprocess.run(["umount", folder], capture_output=True).returncode == 0


DISKS = {"files with a limit": SmallFiles, **({"a small tmpfs": SmallTmpfs} if can_mount() else {})}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made = DISKS[request.param](tmp_path)
    try:
        yield made
    finally:
        made.close()


def value(number: int) -> bytes:
    return b"%08d" % number + os.urandom(VALUE_BYTES)


def read_all(broker: RunningBroker) -> list[int]:
    """Returns the numbers of all records, in order."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest")
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    found: list[int] = []
    end = consumer.end_offsets([partition])[partition]
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < end and time.monotonic() < deadline:
            for rows in consumer.poll(timeout_ms=500).values():
                found += [int(row.value[:8]) for row in rows]
    finally:
        consumer.close()
    assert len(found) == end
    return found


def verified(broker: RunningBroker) -> str:
    """Fails unless `ottla verify` finds no error; returns its output."""
    command = [sys.executable, "-c", "from ottla.tools.main import main; import sys; sys.exit(main(sys.argv[1:]))"]
    done = subprocess.run([*command, "verify", str(broker.data_dir)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class KafkaPython:
    def __init__(self, address: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=address, acks="all", retries=0, enable_idempotence=False)

    def send(self, number: int) -> None:
        """Returns when the record is acknowledged. Raises ClientFailure."""
        try:
            self._producer.send(TOPIC, value(number), partition=0).get(timeout=PATIENCE_S)
        except kafka.errors.KafkaError as error:
            raise ClientFailure(getattr(error, "errno", None), bool(getattr(error, "retriable", False))) from error

    def close(self) -> None:
        self._producer.close()


class Confluent:
    def __init__(self, address: str) -> None:
        self._producer = ConfluentProducer(
            {"bootstrap.servers": address, "acks": "all", "retries": 0, "linger.ms": 0, "log_level": 0}
        )

    def send(self, number: int) -> None:
        outcome: list[Any] = []
        self._producer.produce(TOPIC, value(number), partition=0, on_delivery=lambda error, _: outcome.append(error))
        assert self._producer.flush(PATIENCE_S) == 0
        if outcome[0] is not None:
            raise ClientFailure(outcome[0].code(), True)

    def close(self) -> None:
        self._producer.flush(PATIENCE_S)
        del self._producer  # which ends its threads


class ClientFailure(Exception):
    """The error of a client, and whether the client considers it retriable."""

    def __init__(self, code: int | None, retriable: bool) -> None:
        super().__init__(f"error {code}")
        self.code, self.retriable = code, retriable


@pytest.mark.parametrize("client", [KafkaPython, Confluent])
def test_exactly_the_acknowledged_records_are_stored_once(disk: Disk, client: Any) -> None:
    producer = client(disk.broker.address)
    acknowledged: list[int] = []
    failures: list[ClientFailure] = []
    with contextlib.closing(producer):
        for number in range(1000):
            try:
                producer.send(number)
            except ClientFailure as error:
                failures.append(error)
                if len(failures) == 5:
                    break
            else:
                acknowledged.append(number)
        assert [error.code for error in failures] == [STORAGE_ERROR] * 5 and all(error.retriable for error in failures)
        assert len(acknowledged) > 20
        assert read_all(disk.broker) == acknowledged
        disk.make_room()
        for number in range(1000, 1020):
            producer.send(number)
            acknowledged.append(number)
    assert read_all(disk.broker) == acknowledged
    disk.broker.restart()
    assert read_all(disk.broker) == acknowledged
    assert disk.broker.stop() == 0
    assert (disk.broker.data_dir / CLEAN_SHUTDOWN).exists()
    verified(disk.broker)
    text = disk.broker.log.read_text()
    assert "offline" not in text and "Traceback" not in text


# Clients that retry by themselves, without duplicates

COUNT = 160


def confluent_idempotent(address: str) -> None:
    errors: list[Any] = []
    producer = ConfluentProducer({"bootstrap.servers": address, "enable.idempotence": True, "retry.backoff.ms": 50})
    for number in range(COUNT):
        producer.produce(TOPIC, value(number), partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * COUNT


def kafka_python_idempotent(address: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=True, delivery_timeout_ms=60_000)
    sent = [producer.send(TOPIC, value(number), partition=0) for number in range(COUNT)]
    for future in sent:
        future.get(timeout=PATIENCE_S)
    producer.close()


def aiokafka_idempotent(address: str) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
            sent = [await producer.send(TOPIC, value(number), partition=0) for number in range(COUNT)]
            await asyncio.gather(*sent)

    asyncio.run(run())


def ottla_idempotent(address: str) -> None:
    async def run() -> None:
        async with OttlaProducer(address, enable_idempotence="required") as producer:
            sent = [await producer.send(TOPIC, value(number), partition=0) for number in range(COUNT)]
            await asyncio.gather(*sent)

    asyncio.run(run())


@pytest.mark.parametrize("disk", list(DISKS)[-1:], indirect=True)
@pytest.mark.parametrize(
    "write", [confluent_idempotent, kafka_python_idempotent, aiokafka_idempotent, ottla_idempotent]
)
def test_idempotent_writers_continue_when_there_is_space(disk: Disk, write: Any) -> None:
    """All of their records are stored in the end, once and in order."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            write(disk.broker.address)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=run)
    writer.start()
    log = disk.broker.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
    until(lambda: log.exists() and log.stat().st_size >= DISK_BYTES // 3)
    writer.join(1)
    assert writer.is_alive(), failures  # more is written than there is space for
    disk.make_room()
    writer.join(PATIENCE_S)
    assert not failures and not writer.is_alive()
    assert read_all(disk.broker) == list(range(COUNT))
    disk.broker.restart("kill")
    assert read_all(disk.broker) == list(range(COUNT))
    assert disk.broker.stop() == 0
    verified(disk.broker)
