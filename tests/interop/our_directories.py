"""Data directories of ours, as a broker leaves them after everything that can happen to a log; made once for all
checks.

A stage is a directory that no process uses any more, with the records that a client read there of each topic before.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from ottla_testing.clients.exchange import rows
from ottla_testing.clients.line_clients import Librdkafka, Row, Seen
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Failed
from ottla_testing.oracle.kafka_directories import COMPACTED, count_records, keyed, offsets_by_time, wait_until_cleaned

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS = {"old-v0": "0.9.0", "old-v1": "0.10.2", "mixed": "0.9.0"}
GROUP, COMMITTED, GROUP_PARTITIONS = "ours", 10, 2
SETTINGS = {
    "offsets_topic_num_partitions": str(GROUP_PARTITIONS),
    "log_retention_check_interval_ms": "200",
    "log_retention_ms": "-1",
}
CONFIGS = {"index.interval.bytes": "200", "file.delete.delay.ms": "100"}
PLAIN = {"enable.idempotence": "false"}
NUMBERED = {"enable.idempotence": "true"}
PATIENCE_SECONDS = 30


class Log(NamedTuple):
    """One partition: its configs, its first offset and what a client of ours read there."""

    configs: dict[str, str]
    start: int
    records: list[Seen]


class Stage(NamedTuple):
    """A closed data directory, or one whose broker was killed."""

    name: str
    root: Path
    logs: dict[str, Log]

    def folders(self) -> list[Path]:
        """Returns all partition folders."""
        return sorted(path for path in self.root.iterdir() if path.is_dir() and not path.name.endswith("-delete"))


class Maker:
    """A broker of ours, and the topics in it."""

    def __init__(self, folder: Path, release: str | None) -> None:
        self.folder = folder
        # Kafka 3.9 refuses a directory with a level that it does not know, and so the default of our own profile.
        features = {} if release else {"ottla_features": "metadata.version=21"}
        self.broker = RunningBroker(folder, release, **SETTINGS, **features)
        self.configs: dict[str, dict[str, str]] = {}
        self.client = Librdkafka()

    @property
    def address(self) -> str:
        return self.broker.address

    def topic(self, name: str, **configs: str) -> str:
        named = {**CONFIGS, **{key.replace("_", "."): value for key, value in configs.items()}}
        self.configs[name] = named
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(name, 1, 1, config=named)])[name].result(30)
        return name

    def write(self, topic: str, number: int, codec: str, settings: dict[str, str]) -> None:
        headers = topic not in FORMATS
        self.client.produce(self.address, topic, rows(number, headers=headers), codec, **settings)

    def read(self) -> dict[str, Log]:
        """Reads every topic as a client sees it now."""
        return {topic: read(self.client, self.address, topic, configs) for topic, configs in self.configs.items()}

    def stage(self, name: str, logs: dict[str, Log]) -> Stage:
        """Keeps a copy of the closed directory."""
        return Stage(name, shutil.copytree(self.folder / "data", self.folder / name), logs)


def read(client: Librdkafka, address: str, topic: str, configs: dict[str, str]) -> Log:
    ((_, start, _),) = asyncio.run(offsets_by_time(address, topic, [-2]))
    count = count_records(address, topic, start, "read_uncommitted")
    return Log(configs, start, client.consume(address, topic, start, count, 30))


def topic_configs(address: str, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns the overrides of each topic."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    admin = AdminClient({"bootstrap.servers": address})  # its futures end with it
    found = admin.describe_configs(resources)
    return {
        resource.name: {
            name: entry.value
            for name, entry in future.result(30).items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, future in found.items()
    }


def wait_for(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > end:
            raise Failed(f"{what}: did not come in {PATIENCE_SECONDS} s")
        time.sleep(0.1)


# -- what is written


def old_formats(maker: Maker) -> None:
    """Writes v0 and v1, plain and compressed, over several segments; and all three formats in one log."""
    for topic, version in FORMATS.items():
        maker.topic(topic, message_format_version=version, segment_bytes="20000")
        for number, codec in enumerate(CODECS[:4]):
            maker.write(topic, number, codec, PLAIN)
    resource = "message.format.version"
    for number, version in enumerate(("0.10.2", "2.8")):
        alter(maker, "mixed", resource, version)
        for add, codec in enumerate(CODECS[: 4 + number]):
            maker.write("mixed", 10 * (number + 1) + add, codec, PLAIN)
    compacted(maker, CODECS[:2], PLAIN, ("0.9.0", "0.10.2"))


def alter(maker: Maker, topic: str, config: str, value: str) -> None:
    entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": maker.address})
    admin.incremental_alter_configs([resource])[resource].result(30)
    maker.configs[topic][config] = value


def batches(maker: Maker, **small: str) -> None:
    """Writes every codec, idempotent batches of several producers, append times, many segments. `small` makes them
    so."""
    maker.topic("codecs", segment_ms="1500")
    maker.topic("plain", **small)
    maker.topic("append-time", message_timestamp_type="LogAppendTime")
    for number, codec in enumerate(CODECS):
        maker.write("codecs", number, codec, NUMBERED)
        maker.write("plain", number, codec, PLAIN)
        maker.write("append-time", number, codec, NUMBERED)
    maker.client.consume(
        maker.address, "codecs", 0, COMMITTED, 20, **{"group.id": GROUP, "auto.offset.reset": "earliest"}
    )
    topic = maker.topic("numbered", **small)
    settings = {"bootstrap.servers": maker.address, "enable.idempotence": True, "linger.ms": 5}
    producers = [Producer(settings) for _ in range(4)]
    for number in range(30):
        for index, producer in enumerate(producers):
            send(producer, topic, rows(number, headers=True)[: 1 + (number + index) % 4])


def send(producer: Producer, topic: str, sent: Sequence[Row]) -> None:
    for row in sent:
        producer.produce(topic, row.value, row.key, 0, timestamp=row.timestamp, headers=list(row.headers))
    producer.flush(30)


def compacted(maker: Maker, codecs: Sequence[str], settings: dict[str, str], versions: Sequence[str] = ("",)) -> None:
    """Keys written again, some deleted; of the first producers nothing but the last batch's header is left."""
    made = {
        maker.topic(
            f"compacted-{codec}-{version}", **COMPACTED, **({"message_format_version": version} if version else {})
        ): codec
        for version in versions
        for codec in codecs
    }
    for number, keys in enumerate(("abcde", "bdfgh", "aBhij", "Gabcdefhij", "z")):
        for topic, codec in made.items():
            sent = keyed(keys, b"%d " % number, int(time.time() * 1000))
            maker.client.produce(maker.address, topic, sent, codec, **settings)
        time.sleep(0.2)
    for topic in made:
        wait_until_cleaned(maker.folder / "data" / f"{topic}-0")


def removals(maker: Maker) -> None:
    """Removes records by size, records up to the middle of a batch, and a topic."""
    topic = maker.topic("retained", segment_bytes="20000", retention_bytes="50000")
    for number in range(8):
        maker.write(topic, number, "none", NUMBERED)
    first = maker.folder / "data" / f"{topic}-0" / ("0" * 20 + ".log")
    wait_for(lambda: not first.exists(), "retention by size")
    topic = maker.topic("deleted", segment_bytes="20000")
    for number in range(8):
        maker.write(topic, number, "none", NUMBERED)
    admin = AdminClient({"bootstrap.servers": maker.address})
    place = TopicPartition(topic, 0, 77)
    admin.delete_records([place])[place].result(30)
    first = maker.folder / "data" / f"{topic}-0" / ("0" * 20 + ".log")
    wait_for(lambda: not first.exists(), "retention of deleted records")
    maker.write(maker.topic("gone"), 1, "none", NUMBERED)
    admin.delete_topics(["gone"])["gone"].result(30)
    del maker.configs["gone"]


def new_folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="our-directories-"))
    atexit.register(shutil.rmtree, made, True)
    return made


@cache
def own_profile() -> Stage:
    """Makes a directory of a broker with Ottla's own profile, with configs that Kafka 4.x accepts, too."""
    maker = Maker(new_folder(), None)
    batches(maker, segment_ms="2500")
    compacted(maker, CODECS, NUMBERED)
    logs = maker.read()
    maker.broker.close()
    return maker.stage("own profile", logs)


@cache
def stages() -> dict[str, Stage]:
    """Returns all stages, by name."""
    maker = Maker(new_folder(), "2.8")
    made = [own_profile()]
    try:
        old_formats(maker)
        old = maker.read()
        maker.broker.close()
        made.append(maker.stage("old formats", old))
        maker.broker.release = "3.9"
        maker.broker.start()
        batches(maker, segment_bytes="20000")
        removals(maker)
        logs = maker.read()
        maker.broker.close()
        made.append(maker.stage("closed", logs))
        maker.broker.start()
        topic = maker.topic("killed", segment_bytes="20000")
        for number, codec in enumerate(CODECS * 2):
            maker.write(topic, number, codec, NUMBERED)
            maker.write("numbered", 20 + number, codec, NUMBERED)
        logs = maker.read()
        maker.broker.kill()
        made.append(maker.stage("killed", logs))
        maker.broker.start()
        if maker.read() != logs:
            raise Failed("after kill -9 a client reads something else")
        maker.broker.close()
        made.append(maker.stage("recovered", logs))
        maker.broker.release = "4.3"
        maker.broker.overrides["log.record.version.force.upgrade"] = "2"
        maker.broker.start()
        upgraded = maker.read()
        maker.broker.close()
        made.append(maker.stage("upgraded", upgraded))
    finally:
        if maker.broker.process and maker.broker.process.poll() is None:
            maker.broker.kill()
    return {stage.name: stage for stage in made}
