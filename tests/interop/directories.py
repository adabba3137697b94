"""Directories that pass between Ottla and Apache Kafka, both ways: partitions, and a data directory as a whole.

Kafka's own tool checks our files, Kafka's brokers read and continue them, and our brokers continue theirs. A directory
in use is locked against the other side.

One case is left out, as Kafka does not lock there: a KRaft broker and controller in one process opens the log of
`__cluster_metadata-0` before it takes the lock, and elects itself there even if the directory is in use.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import dumped
import our_directories
from our_directories import Log, Stage, read

from ottla.storage.check.directory import Verification
from ottla.storage.config import LogConfig
from ottla.storage.format.checkpoint import read_offsets, write_offsets
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla_testing.clients.exchange import rows
from ottla_testing.clients.line_clients import Librdkafka, LineClient, Row, Seen
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.interop.java_lines import java_client
from ottla_testing.oracle import released_directories
from ottla_testing.oracle.kafka_directories import Writer
from ottla_testing.oracle.kafka_process import Kafka, Kraft
from ottla_testing.oracle.stored_directories import TopicContents, differences, parsed

WITH_ZOOKEEPER = "3.9.1"
# Kafka 4.x refuses the small segment.bytes of the other stages, as it does in directories of Kafka 3.9.
WHOLE = (
    *(("3.9.1", name) for name in ("own profile", "closed", "killed", "recovered", "upgraded")),
    ("4.3.1", "own profile"),
)
OFFSETS = [f"{kind}-offset-checkpoint" for kind in ("recovery-point", "replication", "log-start", "cleaner")]
METADATA = "partition.metadata"
CLEAN = ".kafka_cleanshutdown"


@cache
def java(release: str) -> LineClient:
    made = java_client(release.rpartition(".")[0])
    atexit.register(made.close)
    return made


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="directories-") as place:
        yield Path(place)


def same(who: str, found: Sequence[object], wanted: Sequence[object]) -> None:
    """Raises Failed with the first difference."""
    for one, other in zip(found, wanted, strict=False):
        if one != other:
            raise Failed(f"{who}: {str(one)[:300]} instead of {str(other)[:300]}")
    if len(found) != len(wanted):
        raise Failed(f"{who}: {len(found)} records instead of {len(wanted)}")


def verified(root: Path, *compacted: str) -> None:
    """Raises Failed with the findings of `ottla verify` in a directory."""
    found = Verification(root, deep=True, may_have_gaps=lambda topic: topic.startswith(compacted or ("-",)))
    wrong = [f"{one.file} at {one.byte}: {one.what}" for one in found.findings() if one.wrong]
    if wrong:
        raise Failed(f"verify finds {len(wrong)} faults: {wrong[:5]}")


# -- Kafka's tool and our files


def run_tool(release: str) -> str:
    """Checks with Kafka's tool all directories that our brokers leave, of every stage."""
    seen: list[str] = []
    for stage in our_directories.stages().values():
        if stage.name != "killed":  # what it lacks, recovery makes
            counts = dumped.check(release, stage.folders())
            seen.append(f"{stage.name}: {counts['file']} files, {counts['batch']} entries, {counts['record']} records")
    return "; ".join(seen)


# -- Kafka's directories, read by us


def compare(root: Path, result: dict[str, TopicContents]) -> int:
    """Opens the logs of a directory, compares them, and returns the number of records."""
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    count = 0
    try:
        for topic, one in result.items():
            log = directory.open_partition(topic, 0, config=LogConfig(), now_ms=1_800_000_000_000)
            if log.cut_bytes:
                raise Failed(f"{topic}: {log.cut_bytes} bytes cut")
            if found := differences(log, one):
                raise Failed(f"{topic}: {found}")
            count += len(one.records)
    finally:
        directory.close()
    return count


def committed(result: TopicContents) -> list[tuple]:
    """Returns the records that a read_committed client gets, such as librdkafka by default."""
    offsets = set(result.committed)
    return [record for record in result.records if record[0] in offsets]


def run_reading(release: str) -> str:
    """Opens directories that a Kafka leaves, after a clean stop and after a kill, with our storage and with a
    broker."""
    client = Librdkafka()
    with folder() as place:
        (place / "kafka").mkdir()
        found = json.loads(json.dumps(released_directories.make(release, place / "kafka", place)))
        result = {topic: parsed(one) for topic, one in found.items()}
        killed = {"killed": result.pop("killed")}
        verified(place / release, "compacted")
        verified(place / f"{release}-killed")
        (place / "ours").mkdir()
        shutil.copytree(place / release, place / "ours" / "data")
        count = compare(place / release, result) + compare(place / f"{release}-killed", killed)
        verified(place / release, "compacted")
        verified(place / f"{release}-killed")
        broker = RunningBroker(place / "ours")
        try:
            for topic, one in result.items():
                configs = dict(found[topic]["configs"])
                ours = read(client, broker.address, topic, configs)
                same(f"{topic} from a broker of ours", ours.records, committed(one))
        finally:
            broker.close()
        verified(place / "ours" / "data", "compacted")
    return f"{count} records of {len(result) + 1} topics read equal, by storage and by a broker; verify finds nothing"


# -- our partitions in a directory of Kafka's


def transplant(source: Path, target: Path, topic: str, *, keep_id: bool) -> None:
    """Puts a partition folder in the place of another one of that name, with its offsets. With `keep_id` it takes over
    the topic id of the folder that was there, else it has none."""
    name = f"{topic}-0"
    metadata = (target / name / METADATA).read_bytes()
    shutil.rmtree(target / name)
    shutil.copytree(source / name, target / name)
    (target / name / METADATA).unlink(missing_ok=True)
    if keep_id:
        (target / name / METADATA).write_bytes(metadata)
    files = DiskFiles()
    for checkpoint in OFFSETS:
        given = read_offsets(files, str(source / checkpoint))
        offsets = read_offsets(files, str(target / checkpoint))
        offsets.pop((topic, 0), None)
        if (topic, 0) in given:
            offsets[topic, 0] = given[topic, 0]
        write_offsets(files, str(target / checkpoint), offsets)


def older_files(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Returns of each file of all segments but the newest: bytes, inode, modification time."""
    newest = max(path.stem for path in folder.glob("*.log"))
    return {
        path.name: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.stem < newest and path.stem.isdigit() and path.suffix != ".snapshot"
    }


def configs_for_kafka(log: Log) -> dict[str, str]:
    """Returns the configs for Kafka: nothing is deleted there, and message.format.version is omitted."""
    left_out = ("message.format.version", "retention.bytes")
    return {name.replace(".", "_"): value for name, value in log.configs.items() if name not in left_out}


def run_transplant(name: str) -> str:
    """Moves our partition folders into Kafka's directory, and back into ours: equal when read, and each side continues
    them."""
    stage = our_directories.stages()[name]
    client = java(WITH_ZOOKEEPER)
    with folder() as place:
        kafka = Kafka(WITH_ZOOKEEPER, place)
        try:
            writer = Writer(kafka, client)
            for topic, log in stage.logs.items():
                writer.topic(topic, **configs_for_kafka(log))
        finally:
            kafka.stop()
        for number, topic in enumerate(stage.logs):
            transplant(stage.root, kafka.logs, topic, keep_id=number % 2 == 0)
        if name == "killed":
            (kafka.logs / CLEAN).unlink()
        before = {topic: older_files(kafka.logs / f"{topic}-0") for topic in stage.logs}
        kafka = Kafka(WITH_ZOOKEEPER, place)
        try:
            Writer(kafka, client).wait_until_ready()
            grown = {topic: read_and_write(kafka, client, topic, log) for topic, log in stage.logs.items()}
        finally:
            kafka.stop()
        if name != "killed":
            for topic, files in before.items():
                if topic.startswith("compacted"):
                    continue  # it may have rolled, and cleaned, what was written just now
                after = older_files(kafka.logs / f"{topic}-0")
                if changed := [one for one in files if after.get(one) != files[one]]:
                    raise Failed(f"{topic}: Kafka rewrote these: {changed}")
        verified(kafka.logs, "compacted")
        take_back(stage, kafka.logs, place, grown)
    count = sum(len(log.records) for log in stage.logs.values())
    return f"{count} records of {len(stage.logs)} topics, and what each side wrote then"


def more(topic: str, number: int) -> list[Row]:
    """Returns further records; a compacted topic takes none without a key."""
    return [row for row in rows(number, headers=True) if row.key is not None or not topic.startswith("compacted")]


def read_and_write(kafka: Kafka | Kraft, client: LineClient, topic: str, log: Log) -> list[Seen]:
    """Compares a log with what Java reads of Kafka; Java adds to it. All that it reads then."""
    found = client.consume(kafka.address, topic, log.start, len(log.records), 30)
    same(f"{topic} from Kafka", found, log.records)
    added = more(topic, 99)
    client.produce(kafka.address, topic, added, "lz4")
    return client.consume(kafka.address, topic, log.start, len(log.records) + len(added), 30)


def take_back(stage: Stage, logs: Path, place: Path, grown: dict[str, list[Seen]]) -> None:
    """Moves the folders back: a broker of ours reads what Java read, and continues."""
    (place / "ours").mkdir()
    ours = shutil.copytree(stage.root, place / "ours" / "data")
    for topic in stage.logs:
        transplant(logs, ours, topic, keep_id=True)
    if not (stage.root / CLEAN).exists():
        (ours / CLEAN).unlink(missing_ok=True)  # Kafka has closed these; the others stayed open
    goes_on(place / "ours", stage, grown)


def goes_on(place: Path, stage: Stage, grown: dict[str, list[Seen]]) -> None:
    """Runs a broker of ours with the directory `place/data`."""
    client = Librdkafka()
    broker = RunningBroker(place, "3.9", log_retention_ms="-1")
    try:
        for topic, wanted in grown.items():
            same(f"{topic} back with us", read(client, broker.address, topic, {}).records, wanted)
            offsets = client.produce(broker.address, topic, more(topic, 98), "gzip")
            if offsets[0] != wanted[-1].offset + 1:
                raise Failed(f"{topic} continues at {offsets[0]}")
    finally:
        broker.close()
    verified(broker.data_dir, "compacted")


# -- the whole directory


def run_whole(release: str, name: str) -> str:
    """Starts Kafka in our directory, `__cluster_metadata-0` and all, and ours in the directory that it leaves."""
    stage = our_directories.stages()[name]
    client = java(release)
    with folder() as place:
        shutil.copytree(stage.root, place / "logs")
        kafka = Kraft(release, place, offsets_topic_num_partitions=str(our_directories.GROUP_PARTITIONS))
        try:
            Writer(kafka, client).wait_until_ready()
            grown = {topic: read_and_write(kafka, client, topic, log) for topic, log in stage.logs.items()}
            group = {"group.id": our_directories.GROUP, "auto.offset.reset": "error"}
            (found,) = Librdkafka().consume(kafka.address, "codecs", 0, 1, 20, **group)
            if found.offset != our_directories.COMMITTED:
                raise Failed(f"the group continues at {found.offset}")
            configs = our_directories.topic_configs(kafka.address, list(stage.logs))
            for topic, log in stage.logs.items():
                if configs[topic] != {key: value for key, value in log.configs.items() if key in configs[topic]}:
                    raise Failed(f"{topic}: configs {configs[topic]} instead of {log.configs}")
        finally:
            kafka.stop()
        verified(place / "logs", "compacted")
        (place / "logs").rename(place / "data")
        goes_on(place, stage, grown)
    return f"{len(stage.logs)} topics, their configs, a group's offset: read by Kafka, continued, taken back"


# -- the lock


def run_lock_of_kafka(release: str) -> str:
    """Starts a broker of ours in the directory of a running Kafka: it is refused in one line, and changes nothing."""
    with folder() as place:
        kafka = released_directories.start(release, place)
        try:
            Writer(kafka, java(release)).wait_until_ready()
            before = (kafka.logs / "meta.properties").read_bytes()
            command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", "127.0.0.1:0"]
            command += ["--data-dir", str(kafka.logs)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            lines = done.stderr.strip().splitlines()
            if done.returncode != 2 or "in use" not in lines[-1]:
                raise Failed(f"exit code {done.returncode}: {lines[-3:]}")
            after = (kafka.logs / "meta.properties").read_bytes()
            if after != before or list(kafka.logs.glob("ottla*")):
                raise Failed(f"changed: {before!r} to {after!r}, {sorted(kafka.logs.iterdir())}")
        finally:
            kafka.stop()
    return lines[-1].replace(str(place), "...")


def run_lock_of_ours() -> str:
    """Starts Kafka in a directory that a broker of ours has taken over: it does not start, and changes nothing."""
    with folder() as place:
        kafka = Kafka(WITH_ZOOKEEPER, place)
        try:
            Writer(kafka, java(WITH_ZOOKEEPER)).topic("t")
        finally:
            kafka.stop()
        # A directory that we took over has an identity of version 1, which a broker with ZooKeeper refuses by itself.
        identity = (kafka.logs / "meta.properties").read_bytes()
        (place / "ours").mkdir()
        (place / "ours" / "data").symlink_to(kafka.logs)
        broker = RunningBroker(place / "ours")
        try:
            (kafka.logs / "meta.properties").write_bytes(identity)
            # What a broker of ours writes now and then is its own affair.
            names = [path for path in sorted(kafka.logs.rglob("*")) if not path.name.endswith(("checkpoint", ".json"))]
            state = {path: path.stat().st_mtime_ns for path in names if path.is_file()}
            try:
                Kafka(WITH_ZOOKEEPER, place).kill()
                raise Failed("Kafka started in a directory that we use")
            except RuntimeError as refused:
                result = str(refused)
            changed = [path.name for path, at in state.items() if not path.exists() or path.stat().st_mtime_ns != at]
            if changed:
                raise Failed(f"changed: {changed}")
            Librdkafka().produce(broker.address, "t", rows(0, headers=True), "none")
        finally:
            broker.close()
        kafka = Kafka(WITH_ZOOKEEPER, place)
        try:
            Writer(kafka, java(WITH_ZOOKEEPER)).wait_until_ready()
            found = java(WITH_ZOOKEEPER).consume(kafka.address, "t", 0, 30, 30)
        finally:
            kafka.stop()
        if len(found) != 30:
            raise Failed(f"and when we were gone it read {len(found)} records")
    return f"{result}; when we are gone it does, and reads what we wrote"


CHECKS = [
    *(
        Check(f"DumpLogSegments {release} on our directories", lambda r=release: run_tool(r))
        for release in dumped.TOOLS
    ),
    *(
        Check(f"our directories: what Kafka {release} wrote", lambda r=release: run_reading(r))
        for release in released_directories.RELEASES
    ),
    *(
        Check(f"our directories: partitions in Kafka {WITH_ZOOKEEPER}, {name}", lambda n=name: run_transplant(n))
        for name in ("closed", "killed", "upgraded")
    ),
    *(
        Check(f"our directories: a whole one in Kafka {release}, {name}", lambda r=release, n=name: run_whole(r, n))
        for release, name in WHOLE
    ),
    *(
        Check(f"our directories: locked by Kafka {release}", lambda r=release: run_lock_of_kafka(r))
        for release in released_directories.RELEASES
    ),
    Check(f"our directories: locked against Kafka {WITH_ZOOKEEPER}", run_lock_of_ours),
]
