"""Makes `golden/`: the stored files and responses of Apache Kafka 2.8.2 and 3.9.1, run here, with clients of every age.

    python tests/oracle/make_golden.py      needs java, mvn (Maven Central) and a minute; replaces golden/

Kafka 2.8.2 gets topics of each message.format.version and codec, and several clients write to each. Its partition
folders after a clean shutdown are `golden/logs`. Then Kafka 3.9.1 takes over the same directories, and old clients
write to its topics `up-CODEC`, which it stores as v2. `golden/writes.jsonl`: the record set of each Produce request,
and its offset. `golden/answers.jsonl`: record sets in the responses of both releases to Fetch v1 and v3
(down-converted), and v4. `golden/topics.json`: per topic the configs and the records, as a Java consumer of 3.9.1 read
them. Bytes in JSON are base64; a response copied from a stored file has its place there. Every run has other append
times and producer ids, and is otherwise the same.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from ottla_testing.clients.line_clients import ClientError, Librdkafka, Row, kafka_python_2
from ottla_testing.interop.java_lines import java_client
from ottla_testing.oracle.kafka_process import Kafka

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
OLD, LAST = "2.8.2", "3.9.1"
BASE_MS = 1_600_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN: dict[str, Any] = {"enable.idempotence": "false"}  # idempotent batches are refused in topics with v0 or v1
SENTENCE = b"an offset is the place of a record in its partition, and no other record ever has it. "


def rows(number: int, *, timestamps: bool = True, headers: bool = False) -> list[Row]:
    """Returns five records with every kind of key and value, different ones for each `number`."""
    made = [
        (None, b"first of %d" % number),
        (b"", b""),
        (b"key-%d" % number, None),
        (b"\x00\xff\x80", bytes(range(number, number + 12))),
        (b"long", SENTENCE * 2),
    ]
    # Out of order, so that the largest timestamp of a batch is not the last one.
    times = [BASE_MS + 1000 * number + add for add in (0, 5, 2, 9, 7)] if timestamps else [-1] * 5
    given = ((("h", b"1"), ("empty", b""), ("null", None), ("h", b"2")),) if headers else ((),)
    return [Row(key, value, times[i], given[0] if i != 1 else ()) for i, (key, value) in enumerate(made)]


class Maker:
    """One run: the running broker, the clients, and the collected data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = Kafka(OLD, folder)
        self.java = {release: java_client(release) for release in ("0.8.2", "0.10.2", "1.1", "2.8", "3.9")}
        self.python = {release: kafka_python_2(release) for release in ("0.8.2", "0.9", "0.10", "0.11")}
        self.rdkafka = {release: Librdkafka(release) for release in ("0.8.2", "0.9.0", "0.10.0", None)}
        self.configs: dict[str, dict[str, str]] = {}
        self.writes: list[dict[str, Any]] = []
        self.responses: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.count = 0

    def close(self) -> None:
        for client in (*self.java.values(), *self.python.values()):
            client.close()
        self.kafka.stop()

    def topic(self, name: str, **configs: str) -> str:
        named = {"index.interval.bytes": "200", **{key.replace("_", "."): value for key, value in configs.items()}}
        self.configs[name] = named
        admin = AdminClient({"bootstrap.servers": self.kafka.address})
        admin.create_topics([NewTopic(name, 1, 1, config=named)])[name].result(30)
        return name

    def alter(self, name: str, config: str, value: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.address})
        entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        self.configs[name][config] = value
        time.sleep(1)  # the broker receives the change through ZooKeeper

    def write(self, client: Any, topic: str, codec: str, made: Sequence[Row] | None = None, **settings: str) -> None:
        """Writes one client's records, and keeps the requests in which they were sent."""
        self.count += 1
        made = rows(self.count) if made is None else made
        self.kafka.proxy.taken()
        offsets = client.produce(self.kafka.address, topic, made, codec, **settings)
        assert offsets == list(range(offsets[0], offsets[0] + len(made))), (client.name, topic, offsets)
        sent = self.kafka.proxy.taken()
        assert {name for _, _, name, _ in sent} == {topic} and len(sent) == 1, (client.name, len(sent))
        for _, version, _, data in sent:
            self.keep(client.name, version, topic, codec, offsets[0], data)
        print(f"{self.kafka.release} {topic}: {client.name} by Produce v{sent[0][1]} at {offsets[0]}", flush=True)

    def refuse(self, client: Any, topic: str, codec: str, made: Sequence[Row], **settings: str) -> None:
        """Writes a line of writes.jsonl for a write that must fail: with the client's error, and no offset."""
        self.kafka.proxy.taken()
        try:
            client.produce(self.kafka.address, topic, made, codec, **settings)
        except ClientError as error:
            (_, version, _, data) = self.kafka.proxy.taken()[0]
            self.keep(client.name, version, topic, codec, -1, data)
            self.writes[-1]["error"] = str(error).partition("errors.")[2].partition(":")[0]
            print(f"{self.kafka.release} {topic}: refused: {error}", flush=True)
            return
        raise AssertionError(f"{topic} took what it must refuse")

    def keep(self, client: str, version: int, topic: str, codec: str, offset: int, data: bytes) -> None:
        """Writes a line of writes.jsonl."""
        fields = {"release": self.kafka.release, "client": client, "topic": topic, "codec": codec}
        self.writes.append({**fields, "produce_version": version, "base_offset": offset, "records": packed(data)})

    def record_fetch(self, topic: str, version: int, offset: int, max_bytes: int = 1 << 20) -> None:
        """Writes a line of `answers.jsonl`; releases with the same response share it."""
        found = self.kafka.fetch(version, topic, offset, max_bytes)
        data = packed(bytes(found.records or b""))
        place = {"topic": topic, "fetch_version": version, "offset": offset, "max_bytes": max_bytes}
        response = {"error_code": found.error_code, "high_watermark": found.high_watermark, "records": data}
        line = self.responses.setdefault((*place.values(), *response.values()), {"releases": [], **place, **response})
        line["releases"].append(self.kafka.release)

    def record_all_fetches(self) -> None:
        for topic in self.configs:
            for version in (1, 3):
                plain = self.kafka.fetch(version, topic, 0, 1 << 20)
                again = self.kafka.fetch(version - 1, topic, 0, 1 << 20)
                assert bytes(plain.records or b"") == bytes(again.records or b""), (topic, version)
                self.record_fetch(topic, version, 0)
        for topic in ("v2-none", "v2-gzip", "v1-none", "v1-gzip", "v0-gzip", "mixed", "gaps-v2-gzip", "transactions"):
            for version in (1, 3):
                self.record_fetch(topic, version, 7)
        for topic in ("v0-none", "v2-none", "v1-gzip"):
            for version in (1, 2, 3):
                for max_bytes in (20, 150, 400):
                    self.record_fetch(topic, version, 0, max_bytes)
        self.record_fetch("mixed", 4, 0)


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def old_formats(maker: Maker) -> None:
    """Makes the topics of one format and one codec each."""
    java, python, rdkafka = maker.java, maker.python, maker.rdkafka
    for codec in CODECS[:4]:
        topic = maker.topic(f"v0-{codec}", message_format_version="0.9.0")
        for client in (java["0.8.2"], python["0.8.2"], python["0.9"], rdkafka["0.8.2"], java["0.10.2"]):
            maker.write(client, topic, codec)
        maker.write(java["3.9"], topic, codec, **PLAIN)
        topic = maker.topic(f"v1-{codec}", message_format_version="0.10.2")
        for client in (java["0.10.2"], python["0.10"], rdkafka["0.10.0"], java["0.8.2"]):
            maker.write(client, topic, codec)
        maker.write(java["3.9"], topic, codec, **PLAIN)
        for number, topic in enumerate((f"v0-{codec}", f"v1-{codec}")):
            maker.refuse(java["3.9"], topic, codec, rows(number, headers=True), **PLAIN, retries="0")
            maker.refuse(java["3.9"], topic, codec, rows(number), **{"enable.idempotence": "true"})
    for codec in CODECS:
        topic = maker.topic(f"v2-{codec}", message_format_version="2.8")
        maker.write(java["2.8"], topic, codec, rows(maker.count, headers=True))
        maker.write(rdkafka[None], topic, codec, rows(maker.count, headers=True))
        if codec != "zstd":
            maker.write(python["0.11"], topic, codec)
            maker.write(java["0.10.2"], topic, codec)
            maker.write(java["0.8.2"], topic, codec)


def special_topics(maker: Maker) -> None:
    """Makes topics with all formats in one log, append time, gaps, transactions, recompression by the topic."""
    java = maker.java
    topic = maker.topic("mixed", message_format_version="0.9.0", segment_bytes="2500")
    for number, version in enumerate(("0.9.0", "0.10.2", "2.8")):
        if number:
            maker.alter(topic, "message.format.version", version)
        for codec in CODECS[:4]:
            maker.write(java[("0.8.2", "0.10.2", "2.8")[number]], topic, codec)
    for magic, version, release in (("v1", "0.10.2", "0.10.2"), ("v2", "2.8", "2.8")):
        topic = maker.topic(f"append-{magic}", message_format_version=version, message_timestamp_type="LogAppendTime")
        for codec in ("none", "gzip", "lz4"):
            maker.write(java[release], topic, codec)
        topic = maker.topic(f"recompressed-{magic}", message_format_version=version, compression_type="snappy")
        for codec in ("none", "gzip", "lz4"):
            maker.write(java[release], topic, codec)
    for magic, version, release in (("v0", "0.9.0", "0.8.2"), ("v1", "0.10.2", "0.10.2"), ("v2", "2.8", "2.8")):
        for codec in ("none", "gzip"):
            gaps(maker, f"gaps-{magic}-{codec}", version, java[release], codec)
    transactions(maker, maker.topic("transactions", message_format_version="2.8"))


def gaps(maker: Maker, topic: str, version: str, client: Any, codec: str) -> None:
    """Makes a compacted topic: replaced records are gone from inside the wrappers and batches."""
    configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.0001", "segment_ms": "100"}
    maker.topic(topic, message_format_version=version, delete_retention_ms="86400000000", **configs)
    keys = ([b"a", b"b", b"c", b"d", b"e"], [b"b", b"d", b"f", b"g", b"h"], [b"a", b"h", b"i", b"j", b"k"], [b"last"])
    for number, names in enumerate(keys):
        now = int(time.time() * 1000)  # with an old timestamp the segment would roll at each append
        maker.write(client, topic, codec, [Row(name, b"value %d" % number * 6, now) for name in names])
        time.sleep(0.2)
    folder = maker.folder / "logs" / f"{topic}-0"
    start = folder / ("0" * 20 + ".log")
    sizes = [start.stat().st_size]
    for _ in range(150):  # cleaned when the file has stopped changing for a while, and differs from the written one
        time.sleep(0.2)
        sizes.append(start.stat().st_size)
        if len(set(sizes[-10:])) == 1 and len(list(folder.glob("*.log"))) <= 2 and len(sizes) > 20:
            return
    raise RuntimeError(f"{topic} was not cleaned: {sorted(folder.iterdir())}")


def transactions(maker: Maker, topic: str) -> None:
    """Makes committed, aborted, committed and plain records, with the markers of each."""
    producer = Producer({"bootstrap.servers": maker.kafka.address, "transactional.id": "golden", "linger.ms": 50})
    producer.init_transactions(30)
    maker.kafka.proxy.taken()
    for number, end in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
    ):
        producer.begin_transaction()
        for row in rows(number)[:3]:
            producer.produce(topic, row.value, row.key, 0, timestamp=row.timestamp)
        producer.flush(30)
        end(30)
    for number, (_, version, _, data) in enumerate(maker.kafka.proxy.taken()):
        maker.keep("librdkafka, transactional", version, topic, "none", 4 * number, data)
    maker.write(maker.java["2.8"], topic, "gzip")


def conversions_up(maker: Maker) -> None:
    """Writes with old clients to 3.9.1, which stores v2 whatever the topic's message.format.version."""
    for codec in CODECS[:4]:
        topic = maker.topic(f"up-{codec}", message_format_version="0.9.0")
        for client in (maker.java["0.8.2"], maker.python["0.9"], maker.java["0.10.2"], maker.rdkafka["0.10.0"]):
            maker.write(client, topic, codec)
    topic = maker.topic("up-append", message_timestamp_type="LogAppendTime")
    for client in (maker.java["0.8.2"], maker.java["0.10.2"]):
        for codec in ("none", "gzip"):
            maker.write(client, topic, codec)


def read_all(maker: Maker) -> dict[str, Any]:
    """Reads each topic with a consumer of 3.9.1, up to a partition's last record."""
    found = {}
    for topic, configs in maker.configs.items():
        end = maker.kafka.fetch(4, topic, 0, 1000).high_watermark
        records = maker.java["3.9"].consume(maker.kafka.address, topic, 0, 1, 20)
        while records[-1].offset < end - 1:
            more = maker.java["3.9"].consume(maker.kafka.address, topic, records[-1].offset + 1, 1, 3)
            if not more:
                break
            records += more
        listed = [
            [r.offset, r.kind, r.timestamp, *map(text, (r.key, r.value)), [[n, text(v)] for n, v in r.headers]]
            for r in records
        ]
        found[topic] = {"configs": configs, "end_offset": end, "records": listed}
    return found


def text(data: bytes | None) -> str | None:
    return None if data is None else packed(data)


def table(topics: dict[str, Any]) -> str:
    """Returns JSON with a line for each topic."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in topics.items()) + "\n}\n"


def lines(items: Sequence[Any]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        maker = Maker(Path(place))
        try:
            steps: list[Callable[[Maker], Any]] = [old_formats, special_topics, Maker.record_all_fetches]
            for step in steps:
                step(maker)
            maker.kafka.stop()
            copy_logs(maker, GOLDEN / "logs")
            maker.kafka = Kafka(LAST, maker.folder)
            time.sleep(3)
            conversions_up(maker)
            maker.record_all_fetches()
            topics = read_all(maker)
            maker.kafka.stop()
            copy_logs(maker, GOLDEN / "logs", prefix="up-")
        finally:
            maker.close()
        (GOLDEN / "writes.jsonl").write_text(lines(maker.writes))
        responses = [stored_or_given(response) for response in maker.responses.values()]
        (GOLDEN / "answers.jsonl").write_text(lines(responses))
        (GOLDEN / "topics.json").write_text(table(topics))


def stored_or_given(response: dict[str, Any]) -> dict[str, Any]:
    """Returns the place of a response that is a part of a stored file, otherwise its bytes."""
    data = base64.b64decode(response["records"])
    for path in sorted((GOLDEN / "logs" / f"{response['topic']}-0").glob("*.log")):
        if data and (start := path.read_bytes().find(data)) >= 0:
            return {**response, "records": {"file": path.name, "start": start, "size_bytes": len(data)}}
    return response


def copy_logs(maker: Maker, target: Path, prefix: str = "") -> None:
    """Copies the partition folders as Kafka left them."""
    if not prefix:
        shutil.rmtree(target, ignore_errors=True)
    for topic in maker.configs:
        if topic.startswith(prefix):
            shutil.copytree(
                maker.folder / "logs" / f"{topic}-0", target / f"{topic}-0", ignore=shutil.ignore_patterns("*.deleted")
            )


if __name__ == "__main__":
    main()
