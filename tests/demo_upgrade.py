"""`make demo-upgrade`: the story of KIP-724 with one data directory, from Kafka 2.8 over 3.9 to 4.x, by real clients.

1. --release 2.8: old clients write v0 (message.format.version 0.9.0), then v1 (0.10.2); all that read them, read them.
2. --release 3.9: old data is served, converted down for old consumers, unchanged to new ones; whatever is written, by
   old producers too, is stored as v2.
3. --release 4.3: Produce v2 and Fetch v3 are refused; a new client reads the old data as it was stored.
4. --release 4.3 with log.record.version.force.upgrade=2: the same records, and only v2 on the disk.

On the way `ottla formats` and `ottla clients` list formats, and clients that would fail on 4.3. Prints what each client
saw at each step; exits with 1 when anything is lost, doubled, changed or out of order.

    python tests/demo_upgrade.py [RECORDS]     so many by each client and codec (default 100)
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from ottla.protocol.records import formats
from ottla.protocol.records.compression import Codec
from ottla_testing.clients.exchange import comparable, expected
from ottla_testing.clients.four_clients import create_topic
from ottla_testing.clients.line_clients import ClientError, Librdkafka, Row, Seen, kafka_python_2
from ottla_testing.clients.running_broker import RunningBroker

TOPIC = "orders"
CODECS = ("none", "gzip", "snappy", "lz4")
BASE_MS = 1_500_000_000_000
GROUP = "billing"
FORMAT = "message.format.version"
BROKER_FORMAT = "log.message.format.version"
UPGRADE = "log.record.version.force.upgrade"
MARKS = {0: "v0", 1: "v1", 2: "v2"}
# The newest format that each client knows, by the versions of Produce and Fetch that it sends.
CLIENTS = {
    "kafka-python as 0.8.2": 0,  # Produce v0, Fetch v0
    "kafka-python as 0.9": 0,  # Produce v1, Fetch v1
    "kafka-python as 0.10": 1,  # Produce v2, Fetch v2
    "kafka-python as 0.10.1": 1,  # Fetch v3
    "librdkafka": 2,
}


def order_rows(count: int, first: int, *, headers: bool) -> list[Row]:
    """Orders with a key, some of them cancelled by a null value."""
    made = []
    for i in range(first, first + count):
        value = None if i % 10 == 9 else b"order %d of %d pieces, to be sent by post; " % (i, i % 7) * (1 + i % 5)
        pairs = (("trace", b"%d" % i), ("trace", b"again")) if headers else ()
        made.append(Row(b"customer %d" % (i % 13), value, BASE_MS + 10 * i + i % 3, pairs))
    return made


class Story:
    """One data directory on its way, all that was written to it, and what went wrong."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self.problems: list[str] = []
        self.rows: list[tuple[Row, int]] = []  # with the newest format that the row went through until it was stored
        self.billed = 0  # how far the group has read
        self.broker = RunningBroker(folder, "2.8", **{BROKER_FORMAT: "0.9.0"})
        self.clients: dict[str, Any] = {
            name: Librdkafka() if name == "librdkafka" else kafka_python_2(name.rpartition(" ")[2]) for name in CLIENTS
        }

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self.broker.close()

    # what is printed

    def title(self, text: str) -> None:
        print(f"\n== {text}", flush=True)

    def say(self, who: str, text: str) -> None:
        print(f"   {who:24} {text}", flush=True)

    def check(self, holds: bool, problem: str) -> None:
        """Prints and keeps what is wrong."""
        if not holds:
            self.problems.append(problem)
            print(f"   WRONG: {problem}", flush=True)

    # what is done

    def write(self, name: str, stored_magic: int, codecs: Sequence[str] = CODECS) -> None:
        """Writes with one client in each codec; `stored_magic` is the format in which the broker stores the records."""
        known = min(CLIENTS[name], stored_magic)
        start, headers_before = len(self.rows), len(self.stored())
        for codec in codecs:
            sent = order_rows(self.count, len(self.rows), headers=known == 2)
            offsets = self.clients[name].produce(self.broker.address, TOPIC, sent, codec)
            wanted = list(range(len(self.rows), len(self.rows) + len(sent)))
            self.check(offsets == wanted, f"{name} was given offsets {offsets[:3]}..., not {wanted[:3]}...")
            self.rows += [(row, known) for row in sent]
        new = self.stored()[headers_before:]
        magics = sorted({MARKS[header.magic] for header in new})
        self.check(magics == [MARKS[stored_magic]], f"what {name} wrote is stored as {magics}")
        self.check(
            {h.codec for h in new} == {Codec[c.upper()] for c in codecs}, f"{name}: codecs {codecs} are not kept"
        )
        self.say(
            name, f"wrote {len(self.rows) - start} records with {', '.join(codecs)}; stored as {', '.join(magics)}"
        )

    def read(self, name: str) -> None:
        """Reads everything with one client, and compares it with what its format can hold."""
        found = self.clients[name].consume(self.broker.address, TOPIC, 0, len(self.rows))
        wanted = [
            one
            for offset, (row, magic) in enumerate(self.rows)
            for one in expected([row], offset, min(magic, CLIENTS[name]))
        ]
        got = comparable(found)
        wrong = next((i for i, (one, other) in enumerate(zip(got, wanted, strict=False)) if one != other), None)
        self.check(wrong is None, f"{name}: {wrong is not None and (got[wrong], wanted[wrong])}")
        self.check(len(got) == len(wanted), f"{name} read {len(got)} of {len(wanted)} records")
        self.say(name, f"read {len(found)} records: {self.seen(found)}")

    def seen(self, found: Iterable[Seen]) -> str:
        """Returns a line about the format of records."""
        listed = list(found)
        stamped = sum(one.timestamp >= 0 for one in listed)
        headed = sum(bool(one.headers) for one in listed)
        digest = hashlib.sha256(repr([(one.key, one.value) for one in listed]).encode()).hexdigest()[:12]
        return f"{stamped} with a time, {headed} with headers; keys and values {digest}"

    def member(self, name: str) -> None:
        """Reads some records with one client for the group, from the previous client's commit on, and commits."""
        setting = "group.id" if name == "librdkafka" else "group_id"
        found = self.clients[name].consume(self.broker.address, TOPIC, 0, self.count, **{setting: GROUP})
        offsets = [one.offset for one in found]
        wanted = list(range(self.billed, self.billed + self.count))
        self.check(offsets == wanted, f"{name} in group {GROUP} read from {offsets[:1]}, not from {self.billed}")
        self.billed += self.count
        self.say(name, f"read {len(found)} records for group {GROUP}, and committed offset {self.billed}")

    def group_data(self) -> set[str]:
        """Returns the formats in which the group's data is stored."""
        folders = self.broker.data_dir.glob("__consumer_offsets-*")
        numbers = [int(folder.name.rpartition("-")[2]) for folder in folders]
        return {
            MARKS[header.magic] for number in numbers for header in self.broker.stored("__consumer_offsets", number)
        }

    def refused(self, name: str, *, write: bool) -> None:
        """Checks that the release refuses one client."""
        before = self.files()
        who, verb = self.clients[name], "Produce" if write else "Fetch"
        try:
            if write:
                who.produce(self.broker.address, TOPIC, order_rows(1, 0, headers=False), "none", retries="0")
                self.check(False, f"{name} could write")
            else:
                found = who.consume(self.broker.address, TOPIC, 0, 1, 2)
                self.check(not found, f"{name} could read")
                self.say(name, f"{verb} refused: nothing came in two seconds")
        except ClientError as error:
            self.say(name, f"{verb} refused: {str(error).partition('>')[0][:90]}")
        self.check(self.files() == before, f"a refused {verb} changed the files")

    def alter(self, config: str, value: str) -> None:
        """Sets one config of the topic."""
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        self.say("admin", f"{config} = {value}")

    def restart(self, release: str, **overrides: str) -> None:
        """Stops cleanly and starts as another release, over the same directory."""
        self.check(self.broker.stop() == 0, f"release {self.broker.release} did not end cleanly")
        self.broker.release = release
        self.broker.overrides |= overrides
        self.broker.start()

    def stored(self) -> list:
        return list(self.broker.stored(TOPIC))

    def files(self) -> dict[str, str]:
        """Returns name -> checksum of the topic's log files."""
        logs = sorted((self.broker.data_dir / f"{TOPIC}-0").glob("*.log"))
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in logs}

    def log(self) -> bytes:
        """Returns all segments of the topic, concatenated."""
        return b"".join(path.read_bytes() for path in sorted((self.broker.data_dir / f"{TOPIC}-0").glob("*.log")))

    def records(self) -> list:
        """Returns all stored records, with their offsets and times, as they lie on the disk."""
        data = self.log()
        return [record for position, _ in formats.headers(data) for record in formats.records(data, position)]

    def ottla(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs one command beside the running broker; prints its output, and returns its JSON on request."""
        command = [sys.executable, "-m", "ottla.tools", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        print(f"   $ ottla {' '.join(arguments).replace(str(self.broker.data_dir), 'DIR')}")
        for line in (done.stdout + done.stderr).splitlines():
            print("     " + line.replace(str(self.broker.data_dir), "DIR"))
        print(f"     (exit code {done.returncode})", flush=True)
        return done

    def magics_by_formats(self) -> set[int]:
        """Returns the formats of the topic's records as `ottla formats --json` counts them."""
        self.ottla("formats", str(self.broker.data_dir))
        command = [sys.executable, "-m", "ottla.tools", "formats", str(self.broker.data_dir), "--json"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
        return formats_of(found)


def formats_of(report: dict) -> set[int]:
    """Returns the formats that `ottla formats --json` names for the topic."""
    (topic,) = [one for one in report["topics"] if one["topic"] == TOPIC]
    return {int(one["format"].removeprefix("v")) for one in topic["formats"]}


def written_at_2_8(story: Story) -> None:
    """Runs step 1."""
    story.title("1. Kafka 2.8 (--release 2.8): old clients write v0, then v1")
    create_topic(story.broker.address, TOPIC, message_format_version="0.9.0", retention_ms="-1")
    story.say("admin", f"topic {TOPIC} with {FORMAT} = 0.9.0")
    story.write("kafka-python as 0.8.2", 0)
    story.write("kafka-python as 0.9", 0)
    story.alter(FORMAT, "0.10.2")
    story.write("kafka-python as 0.10", 1)
    story.write("librdkafka", 1)
    for name in story.clients:
        story.read(name)
    story.member("kafka-python as 0.9")
    story.check(story.group_data() == {"v0"}, f"the group's data is stored as {story.group_data()}")
    story.check(story.magics_by_formats() == {0, 1}, "stored is something else than v0 and v1")


def served_at_3_9(story: Story) -> None:
    """Runs step 2."""
    before = story.log()
    story.restart("3.9")
    story.title(f"2. Kafka 3.9 (--release 3.9): the same directory; {FORMAT} counts no more")
    story.check(story.log() == before, "the start changed stored data")
    for name in story.clients:
        story.read(name)
    story.member("kafka-python as 0.10.1")
    story.check("v2" in story.group_data(), f"the group's data is stored as {story.group_data()}")
    story.write("kafka-python as 0.8.2", 2)
    story.write("kafka-python as 0.10", 2)
    story.write("librdkafka", 2)
    for name in story.clients:
        story.read(name)
    story.check(story.log().startswith(before), "what was stored in v0 and v1 did not stay as it was")
    story.check(story.magics_by_formats() == {0, 1, 2}, "v2 did not come to v0 and v1")


def who_would_fail(story: Story) -> None:
    """Lists, between steps 2 and 3, the clients that 4.3 will refuse, from the broker's own notes."""
    story.restart("3.9")  # a clean stop writes it too
    reported = story.ottla("clients", str(story.broker.data_dir), "--release", "4.3")
    story.check(reported.returncode == 1, "`ottla clients` finds nothing that fails on 4.3")
    for name in ("kafka-python", "librdkafka"):
        story.check(name in reported.stdout, f"`ottla clients` does not know {name}")


def restricted_at_4_3(story: Story) -> None:
    """Runs step 3."""
    before = story.log()
    del story.broker.overrides[BROKER_FORMAT]  # a config that 4.0 does not know any more
    story.restart("4.3")
    story.title("3. Kafka 4.3 (--release 4.3): no Produce below v3, no Fetch below v4; the old data is still there")
    story.refused("kafka-python as 0.10", write=True)
    story.refused("kafka-python as 0.8.2", write=True)
    story.refused("kafka-python as 0.10.1", write=False)
    story.refused("kafka-python as 0.9", write=False)
    story.read("librdkafka")
    story.member("librdkafka")
    story.check(story.log() == before, "4.3 changed what was stored")
    story.write("librdkafka", 2, ("none", "zstd"))
    story.read("librdkafka")
    story.check(story.log().startswith(before), "4.3 changed what was stored before")
    story.check(story.magics_by_formats() == {0, 1, 2}, "4.3 converted what it should leave alone")


def forcibly_upgraded(story: Story) -> None:
    """Runs step 4."""
    records = story.records()
    story.restart("4.3", **{UPGRADE: "2"})
    story.title(f"4. Kafka 4.3 with {UPGRADE}=2: only v2 is left")
    for line in story.broker.log.read_text().splitlines():
        if "upgrade" in line:
            print("     " + line[:150])
    story.check(story.records() == records, "the upgrade changed a record")
    story.check({header.magic for header in story.stored()} == {2}, "the upgrade left something else than v2")
    story.check(story.group_data() == {"v2"}, f"the group's data is stored as {story.group_data()}")
    story.read("librdkafka")
    story.member("librdkafka")
    story.check(story.magics_by_formats() == {2}, "`ottla formats` still finds something else than v2")


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if every step succeeded."""
    count = int(arguments[0]) if arguments else 100
    with tempfile.TemporaryDirectory(prefix="ottla-upgrade-") as place:
        story = Story(Path(place), count)
        try:
            for step in (written_at_2_8, served_at_3_9, who_would_fail, restricted_at_4_3, forcibly_upgraded):
                step(story)
        finally:
            story.close()
    print()
    for problem in story.problems:
        print(f"failed: {problem[:1000]}")
    if not story.problems:
        print(f"{len(story.rows)} records, the same through all four steps")
    return 1 if story.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
