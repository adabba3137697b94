"""Our own clients against Apache Kafka itself: its Java client reads what they write, and the reverse.

Starts the brokers: one process with a controller in it for each release, fetched from Maven Central.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from ottla.client import Admin, ClientError, Consumer, Producer
from ottla.client.admin.admin import NewTopic
from ottla_testing.clients.exchange import compare, expected, rows
from ottla_testing.clients.idempotent_writers import Progress, ottla
from ottla_testing.clients.line_clients import LineClient, Row, Seen
from ottla_testing.clients.losing_proxy import LosingProxy
from ottla_testing.interop.checks import OUT, Check, Failed, jars, program
from ottla_testing.interop.java_lines import java_client

RELEASES = {"3.9": "3.9.1", "4.3": "4.3.1", "4.4": "4.4.0"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# With acks=0, required is a configuration error.
MODES = ("requested", "required", "off")
WAYS = [(mode, acks) for mode in MODES for acks in ("all", 1, 0) if (mode, acks) != ("required", 0)]
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    ),
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
START_SECONDS = 120
LOST = 50  # responds


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Kafka:
    """A running Apache Kafka; `advertised` is the port in its metadata, its own by default. Its data are in one folder
    or more, `log_dirs`. The setting `more.listeners` has listeners besides PLAINTEXT; `environ` is
    added to its environment."""

    environ: Mapping[str, str] = {}

    def __init__(self, release: str, advertised: int | None = None, log_dirs: int = 1, **settings: str) -> None:
        version = RELEASES[release]
        classes = jars(f"kafka-{version}", [f"org.apache.kafka:kafka_2.13:{version}"])
        self.folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{advertised or self.port}"
        self.log_dirs = [self.folder / f"logs{number or ''}" for number in range(log_dirs)]
        properties = self.folder / "server.properties"
        more = f",{settings.pop('more.listeners')}" if "more.listeners" in settings else ""
        places = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}{more}",
            "advertised.listeners": f"PLAINTEXT://{self.address}{more}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
        }
        properties.write_text(
            "".join(f"{name}={value}\n" for name, value in {**SETTINGS, **settings, **places}.items())
        )
        command = [program("java"), "-Xmx512m", "-cp", f"{classes}/*"]
        # One that begins with a dash would be taken for an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        formatting = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        done = subprocess.run(formatting, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"Kafka {version} does not format its folder: {(done.stdout + done.stderr)[-800:]}")
        self.log = OUT / f"kafka-{version}.log"
        self.log.write_text("")
        self._command = [*command, "kafka.Kafka", str(properties)]
        self.start()

    def start(self) -> None:
        """Starts it, for the first time or again on the same port and data; returns when it listens. Raises Failed."""
        with self.log.open("a") as log:
            environ = {**os.environ, **self.environ}
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environ)
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise Failed(f"Kafka did not start, see {self.log}") from None
                time.sleep(0.1)

    def kill(self) -> None:
        """Sends kill -9: nothing is closed, and the data stay."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends it, and takes its data away."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def kafka(release: str) -> Kafka:
    """Returns the broker of all checks. Raises Missing, Failed."""
    made = Kafka(release)
    atexit.register(made.stop)
    return made


@cache
def java(release: str) -> LineClient:
    """Returns a Java client of the same release. Raises Missing."""
    made = java_client(release)
    atexit.register(made.close)
    return made


async def create(address: str, topic: str, partitions: int = 1) -> None:
    async with Admin(address) as admin:
        response = (await admin.create_topics([NewTopic(topic, partitions)]))[topic]
        if isinstance(response, ClientError):
            raise response


async def write(address: str, topic: str, mode: str, acks: str | int, sent: Sequence[Sequence[Row]]) -> None:
    """Writes with a producer for each codec, with twenty requests in flight if the broker allows it."""
    first = 0
    for codec, part in zip(CODECS, sent, strict=True):
        async with Producer(
            address,
            acks=acks,
            enable_idempotence=mode,
            compression_type=None if codec == "none" else codec,
            max_in_flight_requests_per_connection=20,
            batch_size=2000,
        ) as producer:
            futures = [
                await producer.send(
                    topic, row.value, row.key, headers=row.headers, partition=0, timestamp_ms=row.timestamp
                )
                for row in part
            ]
            result = [metadata.offset for metadata in await asyncio.gather(*futures)]
        if not acks:  # the next one's connection would overtake what is on its way
            await read(address, topic, first + len(part))
        elif result != list(range(first, first + len(part))):
            raise Failed(f"{mode}, acks={acks}, {codec}: reported the offsets {result[:3]}...{result[-1]}")
        first += len(part)


async def read(address: str, topic: str, count: int) -> list[Seen]:
    """Returns the first `count` records of partition 0."""
    kinds = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
    async with Consumer(address, assign=[(topic, 0)], offset_reset="earliest") as consumer:
        found: list[Seen] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                one = await consumer.getone()
                headers = tuple((header.key, header.value) for header in one.headers)
                found.append(Seen(one.offset, kinds[one.timestamp_type], one.timestamp_ms, one.key, one.value, headers))
    return found


def run_writing(release: str) -> str:
    """Writes with each mode and each acks, every codec, and headers; the Java client and our own read them."""
    address = kafka(release).address
    sent = [rows(number, headers=True) for number in range(len(CODECS))]
    count = sum(map(len, sent))
    for mode, acks in WAYS:
        topic = f"ours-{mode}-{acks}"
        asyncio.run(create(address, topic))
        asyncio.run(write(address, topic, mode, acks, sent))
        wanted = [one for i, part in enumerate(sent) for one in expected(part, i * len(part), 2)]
        try:
            compare(f"Java of {mode}, acks={acks}", java(release).consume(address, topic, 0, count), wanted)
            compare(f"our consumer of {mode}, acks={acks}", asyncio.run(read(address, topic, count)), wanted)
        except AssertionError as error:
            raise Failed(str(error)) from None
    return f"{count} records in {', '.join(CODECS)} for each of {len(WAYS)} modes and acks, read by Java and by us"


def run_reading(release: str) -> str:
    """Reads with our consumer what Java writes."""
    address = kafka(release).address
    asyncio.run(create(address, "javas"))
    wanted = []
    for number, codec in enumerate(CODECS):
        part = rows(number, headers=True)
        java(release).produce(address, "javas", part, codec)
        wanted += expected(part, number * len(part), 2)
    try:
        compare("our consumer", asyncio.run(read(address, "javas", len(wanted))), wanted)
    except AssertionError as error:
        raise Failed(str(error)) from None
    return f"{len(wanted)} records of Java in {', '.join(CODECS)}"


async def administer(address: str) -> str:
    async with Admin(address) as admin:
        await create(address, "administered", 3)
        found = (await admin.describe_topics(["administered"]))["administered"]
        if isinstance(found, ClientError) or len(found.partitions) != 3:
            raise Failed(f"described as {found}")
        listed = await admin.list_topics()
        if "administered" not in set(listed):
            raise Failed(f"not in {listed}")
        async with Producer(address, enable_idempotence="required") as producer:
            await producer.send_and_wait("administered", b"x", partition=2)
            last = await producer.last_committed("administered", 2)
        producers = (await admin.describe_producers([("administered", 2)]))[("administered", 2)]
        if (
            isinstance(producers, ClientError)
            or last is None
            or [one.producer_id for one in producers] != [last.producer_id]
        ):
            raise Failed(f"the producer {last} is described as {producers}")
        await admin.delete_topics(["administered"])
    await create(address, "grouped")
    await write(address, "grouped", "required", "all", [rows(number, headers=True) for number in range(len(CODECS))])
    async with Consumer(address, topics=["grouped"], group="ours", offset_reset="earliest") as consumer:
        async with asyncio.timeout(60):
            for _ in range(10):
                await consumer.getone()
            await consumer.commit()
    async with Admin(address) as admin:
        offsets = await admin.list_group_offsets("ours")
    committed = offsets[("grouped", 0)]
    if committed is None or isinstance(committed, ClientError) or committed.offset != 10:
        raise Failed(f"committed {offsets}")
    return "topics, producers, a group's reading and its committed offset"


@contextmanager
def through_a_losing_proxy(release: str) -> Iterator[tuple[Kafka, LosingProxy]]:
    proxy = LosingProxy(every=4)
    running = Kafka(release, proxy.port)
    proxy.target = running.port
    try:
        yield running, proxy
    finally:
        running.stop()
        proxy.close()


def run_losing(release: str) -> str:
    """Loses the responses to a producer of ours after the broker has appended: each record is there once, in order."""
    with through_a_losing_proxy(release) as (running, proxy):
        asyncio.run(create(running.address, "t"))
        progress = Progress()
        thread = threading.Thread(target=ottla(20), args=(running.address, "t", progress))
        thread.start()
        try:
            while proxy.lost < LOST:
                progress.wait_for(len(progress.offsets) + 1)
        finally:
            progress.stop.set()
            thread.join(60)
        if progress.failures:
            raise Failed(f"after {proxy.lost} lost responses: {progress.failures[0]!r}")
        count = len(progress.offsets)
        found = [int(one.value or b"") for one in asyncio.run(read(running.address, "t", count))]
    if found != list(range(count)):
        raise Failed(f"{count} records acknowledged, {len(set(found))} of the first {count} differ")
    return f"{count} records, each once and in order, over {proxy.lost} lost responses"


CHECKS = [
    check
    for release, version in RELEASES.items()
    for check in (
        Check(f"our producer with Kafka {version}", lambda release=release: run_writing(release)),
        Check(f"our consumer with Kafka {version}", lambda release=release: run_reading(release)),
        Check(
            f"our admin and a group with Kafka {version}",
            lambda release=release: asyncio.run(administer(kafka(release).address)),
        ),
        Check(f"our producer with Kafka {version} that loses responses", lambda release=release: run_losing(release)),
    )
]
