"""The console sessions of the guides: each command prints what the page shows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.broker.metrics.client_ledger import FILE_NAME, CallUse, Seen, SeenClient, Use, to_bytes
from ottla.client import Consumer, Producer
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.beating import QUICK, altering_share_offset, share_beat, share_joined
from ottla_testing.broker.harness import Client, produce, records
from ottla_testing.broker.producer_logs import CoordinatorLog, Log
from ottla_testing.broker.sharing import ACCEPT, RELEASE, Member
from ottla_testing.sessions import ADDRESS, Session
from ottla_testing.snippets import SNIPPETS, snippet

SESSIONS = SNIPPETS / "sessions"
ELSEWHERE = {"ctl"}  # tests/tools/test_ctl_session.py runs it
T = 1_795_252_359_000  # 2026-11-21 09:12:39, the time of the examples
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Replaced = Mapping[str, str]
Prepare = Callable[[Path], Iterator[Replaced]]
PREPARED: dict[str, Callable[[Path], AbstractContextManager[Replaced]]] = {}


def prepares(name: str) -> Callable[[Prepare], Prepare]:
    """Registers what a session needs in its folder; yields the texts of the page with their values in this run."""

    def add(prepare: Prepare) -> Prepare:
        PREPARED[name] = contextmanager(prepare)
        return prepare

    return add


@prepares("dump")
def _dump(folder: Path) -> Iterator[Replaced]:
    yield {}


@prepares("explain")
def _explain(folder: Path) -> Iterator[Replaced]:
    log = Log(folder / "data", "orders")
    log.time_ms = T
    for sequence, count in ((0, 1), (1, 2), (3, 2)):
        log.batch(7, 0, sequence, count)
    yield {}


@prepares("explain_transactions")
def _explain_transactions(folder: Path) -> Iterator[Replaced]:
    log = Log(folder / "data", "orders")
    log.time_ms = T
    log.batch(7, 0, 0, 2, transactional=True)
    log.marker(7, 0)
    log.batch(7, 0, 2, 2, transactional=True)
    log.batch(7, 0, 4, 2, transactional=True)
    CoordinatorLog(log.directory).write("loader", 7, start_ms=T + 2_990, partitions=(("orders", 0),))
    yield {}


@prepares("clients")
def _clients(folder: Path) -> Iterator[Replaced]:
    def client(
        name: str,
        library: str | None,
        version: str | None,
        sends: bool,
        last: int,
        *calls: tuple[int, int],
        batch: tuple[int, int, int],
    ) -> SeenClient:
        uses = {call: CallUse(T, last, None, False) for call in calls}
        return SeenClient(name, "PLAINTEXT", library, version, sends, uses, {batch: Use(T, last)})

    seen = Seen({}, True, T + 91_000)
    seen.add(client("billing", None, None, False, T + 1_000, (0, 2), (3, 1), batch=(2, 1, 1)))
    seen.add(client("rdkafka", "librdkafka", "2.12.0", True, T + 83_000, (0, 10), (3, 13), (18, 3), batch=(10, 2, 0)))
    (folder / "data").mkdir()
    (folder / "data" / FILE_NAME).write_bytes(to_bytes(seen))
    yield {}


def damaged(data: Path) -> None:
    """A closed data directory with a flipped bit in the second batch of `orders-0`."""
    with Embedded(data_dir=data) as broker:
        broker.create_topic("orders", partitions=1, configs={"segment.bytes": "1048576"})
        for number in range(12):
            broker.send("orders", f"order {number}", timestamp_ms=T + number)
    path = data / "orders-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 4 + 70] ^= 1
    path.write_bytes(content)


@prepares("verify")
def _verify(folder: Path) -> Iterator[Replaced]:
    damaged(folder / "data")
    yield {}


@prepares("repair")
def _repair(folder: Path) -> Iterator[Replaced]:
    damaged(folder / "data")
    yield {"/srv": str(folder)}


@prepares("import_dir")
def _import_dir(folder: Path) -> Iterator[Replaced]:
    for name, topics in (("kafka", ("orders", "payments")), ("data", ("payments",))):
        with Embedded(data_dir=folder / name) as broker:
            for topic in topics:
                broker.create_topic(topic, partitions=3)
                for number in range(6):
                    broker.send(topic, f"order {number}", partition=number % 3, timestamp_ms=T + number)
    yield {"/var/lib/kafka": str(folder / "kafka")}


@prepares("mirror")
def _mirror(folder: Path) -> Iterator[Replaced]:
    with Embedded() as broker:
        broker.create_topic("orders", partitions=1)
        for number in range(12):
            broker.send("orders", f"order {number}", timestamp_ms=T + number)
        yield {"kafka.example:9092": broker.bootstrap}


async def client(bootstrap: str) -> None:
    """Sends two records to `orders`, and reads them as a member of a group."""
    async with Producer(bootstrap, client_id="shop", linger_ms=0) as producer:
        await producer.send_and_wait("orders", b"paid", key=b"4711")
        await producer.send_and_wait("orders", b"shipped" * 100, key=b"4711")
    async with Consumer(
        bootstrap, topics=["orders"], client_id="ship-1", group="shipping", offset_reset="earliest"
    ) as consumer:
        assert [(await consumer.getone()).offset for _ in range(2)] == [0, 1]


@prepares("replay")
def _replay(folder: Path) -> Iterator[Replaced]:
    with Embedded(release="4.4", record=folder / "session.jsonl") as broker:
        broker.create_topic("orders", partitions=1)
        asyncio.run(client(broker.bootstrap))
        broker.stop()
        with Embedded(release="4.4", configs={"message.max.bytes": 200}) as other:
            yield {ADDRESS: other.bootstrap}


@prepares("control_http")
def _control_http(folder: Path) -> Iterator[Replaced]:
    with Embedded(control="127.0.0.1:0") as broker:
        broker.create_topic("orders", partitions=1)
        yield {"$OTTLA_CONTROL": str(broker.control_url)}


@prepares("assert_requests")
def _assert_requests(folder: Path) -> Iterator[Replaced]:
    async def publish() -> None:
        async with Producer(broker.bootstrap, client_id="orders") as producer:
            await producer.send_and_wait("orders", b"paid")

    with Embedded(control="127.0.0.1:0") as broker:
        broker.create_topic("orders", partitions=1)
        asyncio.run(publish())
        yield {"$OTTLA_CONTROL": str(broker.control_url), "ottla ctl": f"ottla ctl --control {broker.control_url}"}


FILL = """
import asyncio, sys
from ottla.client import Producer

async def main():
    async with Producer(sys.argv[1]) as producer:
        for number in range(40):
            await producer.send_and_wait("orders", b"order", key=b"4711", partition=number % 2)

asyncio.run(main())
"""


@prepares("kafka_tools")
def _kafka_tools(folder: Path) -> Iterator[Replaced]:
    (folder / "fill.py").write_text(FILL)
    with Embedded(configs=AUTHORIZED) as broker:
        reset = "ottla groups --reset-offsets"  # of 20 records in each partition
        filled = {reset: f"{sys.executable} fill.py {broker.bootstrap} && {reset}"}
        commands = ("topics", "configs", "groups", "records", "acls")
        yield filled | {f"ottla {name}": f"ottla {name} --bootstrap-server {broker.bootstrap}" for name in commands}


@prepares("explain_share")
def _explain_share(folder: Path) -> Iterator[Replaced]:
    with Embedded(control="127.0.0.1:0", configs=QUICK) as broker, asyncio.Runner() as runner:
        broker.create_topic("tasks", partitions=1)
        client = runner.run(_released_twice(int(broker.bootstrap.rpartition(":")[2])))
        yield {"$OTTLA_CONTROL": str(broker.control_url)}
        client.close()


async def _released_twice(port: int) -> Client:
    """A member that has accepted the first of two records, and released the other one twice. Its session is open."""
    client = await Client.connect(port)
    await share_joined(client, "worker", "tasks", group="jobs")
    await share_beat(client, "worker", group="jobs", epoch=-1)
    assert (await client.call(altering_share_offset("jobs", "tasks", 0, 0), 0)).error_code == 0
    await client.call(produce(records(b"first", b"second"), "tasks"), 9)
    topic = (await client.call(MetadataRequest(topics=None), 12)).topics[0]
    place, worker = (topic.topic_id, 0), Member(client, "worker", "jobs")
    await worker.fetch(place)
    await worker.acknowledge({place: [(0, 0, [ACCEPT]), (1, 1, [RELEASE])]})
    await worker.fetch(place)
    await worker.acknowledge({place: [(1, 1, [RELEASE])]})
    return client


def test_every_session_is_run() -> None:
    assert {path.stem for path in SESSIONS.iterdir()} == {*PREPARED, *ELSEWHERE}


@pytest.mark.process
@pytest.mark.parametrize("name", PREPARED)
def test_a_session_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    with PREPARED[name](tmp_path) as replaced:
        Session(tmp_path, replaced).run(snippet(f"sessions/{name}.txt"))
