"""`make demo`: a real text file through a broker and back, by two different clients, with every byte compared.

Starts a broker on a free port with a temporary directory; confluent-kafka (librdkafka) produces the file line by line,
kafka-python consumes it as a group. Prints counts, checksums and times; exits with 1 if anything is lost, duplicated,
changed or out of order.

    python -m ottla_testing.demo [FILE]

Without FILE the text is Python's own standard library, all its sources.
"""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from kafka import KafkaConsumer

TOPIC, GROUP, PARTITIONS = "demo", "demo-readers", 3
LINES_WANTED = 100_000
START_SECONDS, CLIENT_SECONDS = 20.0, 120.0
READY = re.compile(r"ottla ready on (\S+)")
_SUM_BITS = 128


class Digest:
    """Counts and checksums of one side: of all lines in any order, and of each partition's lines in their order."""

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        self.partitions: dict[int, int] = {}
        self._sum = 0
        self._ordered: dict[int, hashlib._Hash] = {}

    def add(self, partition: int, line: bytes) -> None:
        """Adds a line. A sum of hashes detects a duplicated line, which an exclusive or would not."""
        self.count += 1
        self.size_bytes += len(line)
        self.partitions[partition] = self.partitions.get(partition, 0) + 1
        self._sum += int.from_bytes(hashlib.blake2b(line, digest_size=_SUM_BITS // 8).digest(), "big")
        ordered = self._ordered.setdefault(partition, hashlib.sha256())
        ordered.update(len(line).to_bytes(4, "big") + line)

    @property
    def unordered(self) -> str:
        """A checksum that is equal for the same lines in any order."""
        return f"{self._sum % (1 << _SUM_BITS):032x}"

    @property
    def ordered(self) -> dict[int, str]:
        """Partition -> checksum of its lines in their order."""
        return {partition: self._ordered[partition].hexdigest()[:16] for partition in sorted(self._ordered)}


def differences(sent: Digest, received: Digest) -> list[str]:
    """Returns the differences between both sides in words; an empty list if there are none."""
    found: list[str] = []
    if sent.count != received.count:
        found.append(f"{sent.count:,} lines were sent, {received.count:,} received")
    if sent.unordered != received.unordered:
        found.append("the lines are not the same")
    wanted, got = sent.ordered, received.ordered
    found += [
        f"partition {partition} is not the same, or in another order"
        for partition in sorted(wanted.keys() | got.keys())
        if wanted.get(partition) != got.get(partition)
    ]
    return found


def standard_library() -> Iterator[Path]:
    """Python's sources on this machine, in a fixed order, until they hold enough lines."""
    lines = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        yield path
        lines += path.read_bytes().count(b"\n")
        if lines >= 2 * LINES_WANTED:
            return


def read_lines(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yields every line of all files without its line end."""
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                yield line.rstrip(b"\r\n")


def partition_of(line: bytes) -> int:
    """Returns the partition of a line; equal lines go to the same partition."""
    return zlib.crc32(line) % PARTITIONS


class Broker:
    """`ottla serve` as a process, on a port that it chooses."""

    def __init__(self, data: str) -> None:
        script = Path(sys.executable).parent / "ottla"
        head = [str(script)] if script.exists() else [sys.executable, "-m", "ottla.tools"]
        command = [*head, "serve", "--listen", "127.0.0.1:0", "--data-dir", data]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(START_SECONDS, self.process.kill)
        timer.start()
        self.address = self._ready()
        timer.cancel()

    def _ready(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := READY.search(line):
                return match[1]
        raise SystemExit(f"the broker did not start: exit code {self.process.wait()}")

    def stop(self) -> int:
        """Returns the exit code; kills the process after ten seconds."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def produce(address: str, lines: Iterable[bytes]) -> Digest:
    """Sends every line; raises SystemExit unless all are acknowledged."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(CLIENT_SECONDS)
    failed: list[str] = []
    config = {"bootstrap.servers": address, "acks": "all", "enable.idempotence": True}
    producer = Producer({**config, "on_delivery": lambda error, _: failed.append(str(error)) if error else None})
    sent = Digest()
    for line in lines:
        partition = partition_of(line)
        while True:
            try:
                producer.produce(TOPIC, line, partition=partition)
                break
            except BufferError:
                producer.poll(0.01)
        sent.add(partition, line)
        if sent.count % 1000 == 0:
            producer.poll(0)
    left = producer.flush(CLIENT_SECONDS)
    if failed or left:
        raise SystemExit(f"{left:,} lines were not acknowledged, {len(failed):,} failed: {failed[:1]}")
    return sent


def consume(address: str, count: int) -> Digest:
    """Reads `count` lines as a member of a group, and then checks that there are no more."""
    from kafka import KafkaConsumer  # not at the top: it loads a hundred schemas

    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=address,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=5000,
    )
    received = Digest()
    deadline = time.monotonic() + CLIENT_SECONDS
    try:
        while received.count < count and time.monotonic() < deadline:
            take(consumer, received, 1000)
        take(consumer, received, 300)  # one more look: nothing may follow
        consumer.commit()
    finally:
        consumer.close()
    return received


def take(consumer: KafkaConsumer, received: Digest, timeout_ms: int) -> None:
    """Polls once."""
    for place, records in consumer.poll(timeout_ms=timeout_ms).items():
        for record in records:
            received.add(place.partition, record.value or b"")


def show(title: str, digest: Digest, seconds: float) -> None:
    """Prints one side's figures."""
    print(f"{title}: {digest.count:,} lines, {digest.size_bytes:,} bytes in {seconds:.2f} s")
    print(f"  all lines, in any order: {digest.unordered}")
    for partition, checksum in digest.ordered.items():
        print(f"  partition {partition}, in order: {checksum}  ({digest.partitions[partition]:,} lines)")


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if both sides are equal."""
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    paths = [Path(arguments[0])] if arguments else list(standard_library())
    if missing := [path for path in paths if not path.is_file()]:
        print(f"no such file: {missing[0]}", file=sys.stderr)
        return 2
    print(f"input: {paths[0]}" if arguments else f"input: {len(paths)} files of Python's standard library")
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as data:
        broker = Broker(data)
        try:
            print(f"broker: {broker.address}, data in {data}")
            started = time.monotonic()
            sent = produce(broker.address, read_lines(paths))
            produced = time.monotonic()
            show("produced by confluent-kafka", sent, produced - started)
            received = consume(broker.address, sent.count)
            show(f"consumed by kafka-python in group {GROUP}", received, time.monotonic() - produced)
        except KafkaException as error:
            print(f"failed: {error}")
            return 1
        finally:
            code = broker.stop()
        problems = differences(sent, received)
        if code:
            problems.append(f"the broker ended with exit code {code}")
    for problem in problems:
        print(f"failed: {problem}")
    if not problems:
        print("the same on both sides")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
