"""`ottla mirror` of running brokers of Apache Kafka: the same bytes as in their segments, and the same records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from directories import committed, folder, java, same, verified
from our_directories import read

from ottla.protocol.records import formats
from ottla_testing.clients.line_clients import Librdkafka
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.oracle import kafka_directories, released_directories
from ottla_testing.oracle.stored_directories import parsed


def mirror(address: str, topics: list[str], target: Path) -> str:
    command = [sys.executable, "-m", "ottla.tools", "mirror", "--bootstrap", address]
    command += ["--topics", ",".join(topics), "--data-dir", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Failed(f"ottla mirror: {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout


def entries(place: Path) -> list[bytes]:
    """Returns the batches and old messages of a partition's folder as stored. Those without records are omitted: a
    broker need not keep them."""
    data = b"".join(path.read_bytes() for path in sorted(place.glob("*.log")))
    return [data[at : at + header.size_bytes] for at, header in formats.headers(data)]


def compare(topic: str, theirs: Path, ours: Path, start: int) -> int:
    """Compares all entries from the log start on, byte for byte; returns the number of bytes."""
    wanted = [entry for entry in entries(theirs) if formats.read_header(entry).last_offset >= start]
    found = entries(ours)
    same(f"{topic} in the segments", found, wanted)
    return sum(map(len, found))


def run(release: str) -> str:
    """Mirrors all kinds of topics of such a broker while it runs, and once more after further records."""
    makers = kafka_directories.TOPICS
    if release.startswith("2."):
        makers = (kafka_directories.old_formats, *makers)
    client = Librdkafka()
    with folder() as place:
        (place / "kafka").mkdir()
        kafka = released_directories.start(release, place / "kafka")
        try:
            found = json.loads(json.dumps(kafka_directories.write(kafka, java(release), makers)))
            result = {topic: parsed(one) for topic, one in found.items()}
            data = place / "ours" / "data"
            data.parent.mkdir()
            topics = list(result)
            mirror(kafka.address, topics[: len(topics) // 2], data)
            mirror(kafka.address, topics, data)
            if " 0 batches, 0 bytes" not in mirror(kafka.address, topics[:1], data):
                raise Failed("a copy that is whole was copied again")
        finally:
            kafka.stop()
        size = sum(
            compare(topic, kafka.logs / f"{topic}-0", data / f"{topic}-0", one.log_start_offset)
            for topic, one in result.items()
        )
        verified(data, "compacted", "deleted")
        broker = RunningBroker(place / "ours")
        try:
            for topic, one in result.items():
                ours = read(client, broker.address, topic, dict(found[topic]["configs"]))
                same(f"{topic} from the copy", ours.records, committed(one))
        finally:
            broker.close()
    records = sum(len(one.records) for one in result.values())
    return f"{size} bytes of {len(result)} topics are the same, and {records} records"


CHECKS = [
    Check(f"ottla mirror of Kafka {release}", lambda r=release: run(r)) for release in released_directories.RELEASES
]
