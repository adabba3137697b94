"""Directories of Apache Kafka that Spark jobs have upgraded or compacted, checked with Kafka.

A directory is written by a running Kafka; the commands work on it as a user would run them; Kafka's DumpLogSegments
reads every file; brokers of Kafka open it, serve the same records, and continue. `compact` leaves the same as the
cleaner of the Kafka that wrote the directory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import dumped
from directories import compare, folder, same, transplant, verified
from our_directories import alter

from ottla.protocol.records import formats
from ottla_testing.clients.exchange import comparable
from ottla_testing.clients.line_clients import LineClient, Seen
from ottla_testing.interop.checks import Check, Failed, Missing
from ottla_testing.interop.java_lines import java_client
from ottla_testing.oracle import kafka_directories
from ottla_testing.oracle.kafka_directories import COMPACTED, QUICK, Writer, keyed, rows, send
from ottla_testing.oracle.kafka_process import Kafka, Kraft
from ottla_testing.oracle.stored_directories import TopicContents, parsed

OLDEST = "2.8.2"  # the newest that writes the old formats
SECONDS = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


# -- Kafka, its clients and our commands


@contextmanager
def client(release: str) -> Iterator[LineClient]:
    """Java's of a release, for as long as it is needed."""
    made = java_client(release.rpartition(".")[0])
    try:
        yield made
    finally:
        made.close()


@contextmanager
def running(release: str, place: Path, *, kraft: bool = False, **settings: str) -> Iterator[Kafka | Kraft]:
    """Yields a broker on `place/logs`; 4.x has no ZooKeeper, 2.8 no KRaft."""
    broker = Kraft if kraft or release.startswith("4.") else Kafka
    made = broker(release, place, **{**QUICK, **settings})
    try:
        yield made
    finally:
        made.stop()


def command(job: str, *arguments: str) -> str:
    """Returns the output of `ottla pipeline JOB`. Raises Missing, Failed."""
    words = [sys.executable, "-m", "ottla.tools", "pipeline", job, *arguments]
    words += ["--master", "local[2]", "--conf", "spark.driver.memory=700m"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode and "pip install" in done.stderr:
        raise Missing(done.stderr.strip())
    if done.returncode:
        raise Failed(f"pipeline {job}: exit code {done.returncode}, {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def partitions(root: Path) -> list[Path]:
    """Returns the folders of the partitions of a directory, without those of KRaft's own log."""
    found = [path for path in root.iterdir() if path.is_dir() and not path.name.endswith("-delete")]
    return sorted(path for path in found if not path.name.startswith("__cluster_metadata"))


def sums(root: Path) -> dict[str, str]:
    """Returns file -> checksum of everything in a directory, except for the lock."""
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def magics(*folders: Path) -> dict[int, int]:
    """Returns format -> the number of its entries in the logs of partitions."""
    found: dict[int, int] = {}
    for path in (path for one in folders for path in one.glob("*.log")):
        for _, header in formats.headers(path.read_bytes()):
            found[header.magic] = found.get(header.magic, 0) + 1
    return found


# -- upgrade


def mixed(writer: Writer) -> None:
    """Writes all three formats into one log, plain and compressed, each with all of its codecs."""
    plain = {"enable.idempotence": "false"}
    configs = {"segment_bytes": "3000", "message_format_version": "0.9.0"}
    topic = writer.topic("mixed", **configs)
    for number, version in enumerate(("0.9.0", "0.10.2", "2.8")):
        if number:
            alter(writer, topic, "message.format.version", version)  # type: ignore[arg-type]
            time.sleep(1)  # until the broker writes the new one
        for add, codec in enumerate(CODECS if number == 2 else CODECS[:4]):
            sent = rows(10 * number + add, headers=number == 2)
            writer.java.produce(writer.address, topic, sent, codec, **plain)


def append_times(writer: Writer) -> None:
    """Times that the broker gave, to messages of v1."""
    configs = {"message_format_version": "0.10.2", "message_timestamp_type": "LogAppendTime", "segment_bytes": "1000"}
    topic = writer.topic("old-append-time", **configs)
    for number, codec in enumerate(CODECS[:4]):
        sent = rows(number, headers=False)
        writer.java.produce(writer.address, topic, sent, codec, **{"enable.idempotence": "false"})


OLD_TOPICS = (
    kafka_directories.old_formats,
    mixed,
    append_times,
    kafka_directories.codecs,
    kafka_directories.transactions,
)


def upgraded_expected(one: TopicContents) -> TopicContents:
    """Returns the records after an upgrade: only the absence of a timestamp is shown differently."""
    kinds = {"NoTimestampType": "CreateTime"}
    records = [(offset, kinds.get(kind, kind), *rest) for offset, kind, *rest in one.records]
    return one._replace(records=records)


def expected_rows(one: TopicContents) -> list[tuple[object, ...]]:
    """Returns the records as `comparable` has them."""
    return comparable([Seen(*record) for record in one.records])


def reads(kafka: Kafka | Kraft, java: LineClient, result: dict[str, TopicContents]) -> int:
    """Reads the expected records of each topic with Java, and appends to it; returns their number. Raises Failed."""
    Writer(kafka, java).wait_until_ready()
    count = 0
    for topic, one in result.items():
        wanted = expected_rows(one)
        found = java.consume(kafka.address, topic, one.log_start_offset, len(wanted), 30)
        same(f"{topic} from Kafka {kafka.release}", comparable(found), wanted)
        first = java.produce(kafka.address, topic, rows(77), "lz4")[0]
        if first < one.high_watermark:
            raise Failed(f"{topic} continues at {first} in Kafka {kafka.release}, below {one.high_watermark}")
        count += len(wanted)
    return count


def transplanted(release: str, source: Path, place: Path, result: dict[str, TopicContents], **configs: str) -> int:
    """Partitions of a directory in a new one of another Kafka, as `reads`."""
    with client(release) as java:
        with running(release, place) as kafka:
            writer = Writer(kafka, java)
            for topic in result:
                writer.topic(topic, retention_ms="-1", **configs)
        for topic in result:
            transplant(source, kafka.logs, topic, keep_id=True)
        with running(release, place) as kafka:
            return reads(kafka, java, result)


def run_upgrade() -> str:
    """Upgrades the directory of a Kafka that writes the old formats: storage, tools and brokers read the same from
    it."""
    with folder() as place:
        home = place / "kafka"
        home.mkdir()
        with client(OLDEST) as java, running(OLDEST, home) as kafka:
            found = json.loads(json.dumps(kafka_directories.write(kafka, java, OLD_TOPICS)))
        result = {topic: upgraded_expected(parsed(one)) for topic, one in found.items()}
        root = home / "logs"
        before, entries = sums(root), magics(*partitions(root))
        # Of others Kafka's tool complains, too: in their time indexes Kafka has left the offsets of records in batches.
        old = [one for one in partitions(root) if set(magics(one)) - {2}]
        if not entries.get(0) or not entries.get(1):
            raise Failed(f"Kafka {OLDEST} wrote the formats {entries}")
        command("upgrade", str(root), "--dry-run")
        if sums(root) != before:
            raise Failed("a dry run changes the directory")
        command("upgrade", str(root), "--report", str(place / "report.json"))
        after = sums(root)
        if set(magics(*partitions(root))) != {2}:
            raise Failed(f"there is left of each format: {magics(*partitions(root))}")
        files = sum(before.get(name) != one for name, one in after.items() if name.endswith(".log"))
        command("upgrade", str(root))
        if sums(root) != after:
            raise Failed("a second run changes the directory")
        for release in dumped.TOOLS:
            dumped.check(release, old)
        verified(root)
        shutil.copytree(root, place / "copy")
        count = compare(place / "copy", result)
        with client("3.9.1") as java, running("3.9.1", home) as kafka:
            reads(kafka, java, result)
        verified(root)
        (place / "newest").mkdir()
        transplanted("4.3.1", place / "copy", place / "newest", result)
    what = f"{entries[0] + entries[1]} old entries of {sum(entries.values())}, {files} segments new"
    return f"{what}; {count} records as before, by storage, by Kafka 3.9.1 and 4.3.1"


# -- compact


def overwritten(writer: Writer) -> None:
    """Keys again and again, tombstones, records that come only once, in each codec."""
    for codec in CODECS:
        topic = writer.topic(f"compacted-{codec}", **COMPACTED)
        for number, keys in enumerate(("abcde", "bdfgh", "aBhij", "Gabcdefhij", "klm", "z")):
            sent = keyed(keys, b"%d " % number, int(time.time() * 1000))
            writer.java.produce(writer.address, topic, sent, codec, **{"enable.idempotence": "true"})
            time.sleep(0.15)


def transacted(writer: Writer) -> None:
    """Writes committed and aborted records of two producers, and an open transaction; nothing after it is compacted."""
    for name, stays_open in (("compacted-transactions", False), ("compacted-open", True)):
        topic = writer.topic(name, **COMPACTED)
        producer = writer.transactional(f"cleaned {name}")
        for number, keys in enumerate(("abcde", "bdfgh", "abhij", "aBc", "jkl")):
            producer.begin_transaction()
            send(producer, topic, keyed(keys, b"%d " % number, int(time.time() * 1000)))
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
            time.sleep(0.15)
        if stays_open:
            producer.begin_transaction()
            send(producer, topic, keyed("ab", b"open ", int(time.time() * 1000)))
            time.sleep(0.15)
        for number in range(3):
            sent = keyed("acz", b"last %d" % number, int(time.time() * 1000))
            writer.java.produce(writer.address, topic, sent, "none")
            time.sleep(0.15)


def old_overwritten(writer: Writer) -> None:
    """Writes the same in messages of v0 and v1."""
    for version in ("0.9.0", "0.10.2"):
        for codec in ("none", "gzip"):
            topic = writer.topic(f"compacted-{codec}-{version}", message_format_version=version, **COMPACTED)
            for number, keys in enumerate(("abcde", "bdfgh", "aBhij", "Gabcdefhij", "z")):
                sent = keyed(keys, b"%d " % number, int(time.time() * 1000))
                writer.java.produce(writer.address, topic, sent, codec, **{"enable.idempotence": "false"})
                time.sleep(0.15)


COMPACTED_TOPICS = {
    "2.8.2": (overwritten, transacted, old_overwritten),
    "3.9.1": (overwritten, transacted),
    "4.3.1": (overwritten, transacted),
}


FLAGS = {
    "2.8.2": ("--keep-old-formats", "--no-empty-at-end", "--no-delete-horizon", "--force"),
    "3.9.1": ("--keep-old-formats", "--no-empty-at-end"),
    "4.3.1": (),
}


class Batch(NamedTuple):
    """A batch as the cleaner left it, less what hangs on when that was and on the compressor, and its records."""

    base_offset: int
    last_offset: int
    codec: int
    is_control: bool
    is_transactional: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[tuple[object, ...], ...]


def batches(folder: Path) -> list[Batch]:
    """Returns all batches of a partition, without their format: the two cleaners may convert differently."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in formats.headers(data):
            records = list(formats.records(data, position))
            fields = (header.codec, bool(header.is_control), bool(header.is_transactional))
            producer = (header.producer_id, header.producer_epoch, header.base_sequence)
            first = header.base_offset if header.magic == 2 else records[0].offset
            shown = tuple((one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in records)
            found.append(Batch(first, header.last_offset, *fields, *producer, shown))
    return found


def uncompacted(kafka: Kafka | Kraft, java: LineClient) -> list[str]:
    """Makes the topics that will be compacted."""
    writer = Writer(kafka, java)
    for make in COMPACTED_TOPICS[kafka.release]:
        make(writer)
    return list(writer.configs)


def cleaned(kafka: Kafka | Kraft, topics: Sequence[str]) -> None:
    """Returns when the cleaner has come to the end of what it may clean of each topic."""
    checkpoint = kafka.logs / "cleaner-offset-checkpoint"
    ends = {topic: max(int(path.stem) for path in (kafka.logs / f"{topic}-0").glob("*.log")) for topic in topics}
    deadline = time.monotonic() + SECONDS
    while ends:
        time.sleep(0.3)
        if checkpoint.exists():
            for line in checkpoint.read_text().splitlines()[2:]:
                topic, _, offset = line.split(" ")
                if int(offset) >= ends.get(topic, 1 << 62) or (topic.endswith("-open") and topic in ends):
                    del ends[topic]
        if time.monotonic() > deadline:
            raise Failed(f"Kafka does not clean {sorted(ends)}")
    time.sleep(2)  # until the swapped files are renamed


def kafka_of(release: str, home: Path, **settings: str) -> AbstractContextManager[Kafka | Kraft]:
    """Runs a Kafka with KRaft, if the release has it: then the directory itself has the configs of topics."""
    return running(release, home, kraft=release != OLDEST, **settings)


def run_compact(release: str) -> str:
    """Compacts a directory that Kafka was kept from cleaning: one copy with our job, one with its cleaner."""
    with folder() as place:
        home = place / "kafka"
        home.mkdir()
        with client(release) as java, kafka_of(release, home, log_cleaner_enable="false") as kafka:
            topics = uncompacted(kafka, java)
        ours = place / "ours"
        shutil.copytree(kafka.logs, ours)
        uncleaned = {topic: batches(ours / f"{topic}-0") for topic in topics}
        with kafka_of(release, home) as kafka:
            cleaned(kafka, topics)
        theirs = {topic: batches(kafka.logs / f"{topic}-0") for topic in topics}
        before = sums(ours)
        flags = [*FLAGS[release], *(word for topic in topics for word in ("--topic", topic))]
        if release == OLDEST:  # if the directory has no configs of topics
            flags += ["--config", f"delete.retention.ms={COMPACTED['delete_retention_ms']}"]
        command("compact", str(ours), "--dry-run", *flags)
        if sums(ours) != before:
            raise Failed("a dry run changes the directory")
        command("compact", str(ours), *flags)
        count = left = 0
        for topic in topics:
            if theirs[topic] == uncleaned[topic]:
                raise Failed(f"Kafka {release} has not cleaned {topic}")
            same(f"{topic} compacted, where Kafka {release} has the other", batches(ours / f"{topic}-0"), theirs[topic])
            left += sum(len(one.records) for one in theirs[topic])
            count += sum(len(one.records) for one in uncleaned[topic])
        # The oldest one's own time indexes have the offsets of records within batches of transactions: complained of.
        left_out = ("compacted-open", "compacted-transactions") if release == OLDEST else ()
        dumped.check("4.3.1", [ours / f"{topic}-0" for topic in topics if topic not in left_out])
        verified(ours, "compacted", "__")
        shutil.rmtree(kafka.logs)
        shutil.copytree(ours, kafka.logs)
        with client(release) as java, kafka_of(release, home, log_cleaner_enable="false") as kafka:
            Writer(kafka, java).wait_until_ready()
            for topic in topics:
                wanted = [record for one in theirs[topic] if not one.is_control for record in one.records]
                found = java.consume(kafka.address, topic, 0, len(wanted), 30)
                same(f"{topic} from Kafka {release}", [one.offset for one in found], [record[0] for record in wanted])
    return f"{count} records of {len(topics)} topics, {left} left, batch for batch as Kafka's cleaner leaves them"


CHECKS = [
    Check(f"Spark's upgrade of a directory of Kafka {OLDEST}", run_upgrade),
    *(
        Check(f"Spark's compact beside the cleaner of Kafka {release}", partial(run_compact, release))
        for release in COMPACTED_TOPICS
    ),
]
